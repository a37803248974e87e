"""What a block emits (SPEC.md, 4.2)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from headgate.columns.sorting import Ints
from headgate.operators.label_sets import LabelSets
from headgate.operators.rowsets import Instants

_NONE = np.empty(0, np.int64)


@dataclass(frozen=True)
class Emitted:
    """The results of one block, in order. Tuples are given by their slots in the store.

    time: the time of each result's instant
    instant: the tuple of that instant; empty if the block slides
    rows: for each source, the tuples of a result's first row; results of an instant are ordered by them
    values: the columns of the results
    labels: the labels of all tuples that a result combines
    """

    time: Ints
    instant: Ints
    rows: tuple[Ints, ...]
    values: tuple[pa.Array, ...]
    labels: LabelSets

    def __len__(self) -> int:
        return len(self.time)


def emitted(instants: Instants, at: Ints, rows: tuple[Ints, ...], values: list[pa.Array], labels: LabelSets) -> Emitted:
    return Emitted(
        instants.time[at], instants.tuples[at] if len(instants.tuples) else _NONE, rows, tuple(values), labels
    )


NOTHING = Emitted(_NONE, _NONE, (_NONE,), (), LabelSets(_NONE, ()))
