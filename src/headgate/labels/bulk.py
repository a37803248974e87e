"""Decisions for whole columns: one per distinct label, then a table look-up per tuple."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headgate.labels.interning import UNREADABLE, LabelTable
from headgate.labels.label import Clearance, Rules


class Decisions:
    """What one clearance is permitted, by label number. Made anew when rights change."""

    def __init__(self, rules: Rules, clearance: Clearance, labels: LabelTable, *, aggregated: bool = False) -> None:
        self._rules = rules
        self._clearance = clearance
        self._labels = labels
        self._aggregated = aggregated
        self._known = np.zeros(1, dtype=bool)  # label UNREADABLE: nobody

    def of_numbers(self, numbers: npt.NDArray[np.int32]) -> npt.NDArray[np.bool_]:
        """Permitted or not, for a column of label numbers."""
        if len(numbers) and int(numbers.max()) >= len(self._known):
            self._extend()
        return self._known[numbers]

    def of_texts(self, texts: pa.Array) -> npt.NDArray[np.bool_]:
        """The same for a column of label texts; NULL is no label and permits nobody."""
        return self.of_numbers(numbers_of(texts, self._labels))

    def _extend(self) -> None:
        more = [
            self._rules.permits(self._labels.label(n), self._clearance, aggregated=self._aggregated)
            for n in range(len(self._known), len(self._labels))
        ]
        self._known = np.concatenate([self._known, np.array(more, dtype=bool)])


def numbers_of(texts: pa.Array, labels: LabelTable) -> npt.NDArray[np.int32]:
    """Label numbers of a column of texts: each distinct text is read once."""
    encoded = texts if pa.types.is_dictionary(texts.type) else pc.dictionary_encode(texts)
    by_index = [UNREADABLE if t is None else labels.number_of_text(t) for t in encoded.dictionary.to_pylist()]
    numbers = np.array([*by_index, UNREADABLE], dtype=np.int32)
    indices = pc.fill_null(encoded.indices, len(by_index)).to_numpy(zero_copy_only=False)
    picked: npt.NDArray[np.int32] = numbers[indices]
    return picked
