"""Decisions for whole columns: one decision for each distinct label, then a table lookup for each tuple."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headgate.labels.interning import UNREADABLE, LabelTable
from headgate.labels.label import Clearance, Rules


class Decisions:
    """The decisions for one clearance, by label number. Rights that change need a new object."""

    def __init__(self, rules: Rules, clearance: Clearance, labels: LabelTable, *, aggregated: bool = False) -> None:
        self._rules = rules
        self._clearance = clearance
        self._labels = labels
        self._aggregated = aggregated
        self._known = np.zeros(1, dtype=bool)  # label UNREADABLE: nobody

    def of_numbers(self, numbers: npt.NDArray[np.int32]) -> npt.NDArray[np.bool_]:
        """Whether each label of a column of label numbers permits the clearance; an unknown number permits nobody."""
        if len(numbers) and int(numbers.max()) >= len(self._known):
            self._extend()
        if len(numbers) and (int(numbers.min()) < 0 or int(numbers.max()) >= len(self._known)):
            known = (numbers >= 0) & (numbers < len(self._known))
            numbers = np.where(known, numbers, UNREADABLE)
        return self._known[numbers]

    def of_texts(self, texts: pa.Array) -> npt.NDArray[np.bool_]:
        """The same for a column of label texts; NULL is not a label and permits nobody."""
        return self.of_numbers(numbers_of(texts, self._labels))

    def _extend(self) -> None:
        more = [
            self._rules.permits(self._labels.label(n), self._clearance, aggregated=self._aggregated)
            for n in range(len(self._known), len(self._labels))
        ]
        self._known = np.concatenate([self._known, np.array(more, dtype=bool)])


def numbers_of(texts: pa.Array | pa.ChunkedArray, labels: LabelTable) -> npt.NDArray[np.int32]:
    """The label numbers of a column of texts. Each distinct text is parsed once; NULL and invalid UTF-8 are
    unreadable."""
    column = texts.combine_chunks() if isinstance(texts, pa.ChunkedArray) else texts
    encoded = column if pa.types.is_dictionary(column.type) else pc.dictionary_encode(column)
    indices = pc.fill_null(encoded.indices.cast(pa.int64()), len(encoded.dictionary)).to_numpy(zero_copy_only=False)
    spellings = [_text(value) for value in encoded.dictionary.cast(pa.large_binary()).to_pylist()]
    tuples = np.bincount(indices, minlength=len(spellings) + 1)
    by_index = [
        UNREADABLE if text is None else labels.number_of_text(text, int(count))
        for text, count in zip(spellings, tuples[:-1], strict=True)
    ]
    missing = [int(count) for text, count in zip(spellings, tuples[:-1], strict=True) if text is None]
    labels.unreadable += sum(missing) + int(tuples[-1])
    picked: npt.NDArray[np.int32] = np.array([*by_index, UNREADABLE], dtype=np.int32)[indices]
    return picked


def _text(value: bytes | None) -> str | None:
    """The text; None for NULL and for bytes that are not UTF-8."""
    try:
        return None if value is None else value.decode()
    except UnicodeDecodeError:
        return None
