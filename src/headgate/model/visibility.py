"""Who sees what, as operators are told: for each kind of tuple and each view, hidden or with which columns masked."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from headgate.columns.sorting import Bools, Ints
from headgate.model.budget import Budget, Meter
from headgate.model.limits import Limits

HIDDEN = 0
"""In a sight: this view does not see the tuple. Any other number is one more than the number of a mask."""

VisibilityRows = npt.NDArray[np.int32]
Mask = frozenset[tuple[str, str]]
"""Columns, with their streams, that a view may not see."""


class Position(NamedTuple):
    """The place of a tuple in the order of SPEC.md, 4.2; streams have numbers in the order of their names."""

    time: int
    stream: int
    arrival: int


@dataclass(frozen=True)
class Visibility:
    """Who sees what: for each sight (a row) and each view (a column) HIDDEN or a mask. `targets` say which block of
    which query a view looks at (no query: nobody looks any more); `since` and `until` are the times from and to which
    tuples become final with this batch; `levels` are the levels of labels, as text; `copied` are views that go on from
    where others are, with these; no view may exceed the `limits`, nor what its `budgets` leave it of memory; some end
    with this batch, and see nothing from a position on (`cutoff`)."""

    targets: tuple[tuple[str, int], ...]
    table: VisibilityRows
    masks: tuple[Mask, ...]
    since: Ints
    until: Ints
    levels: Mapping[int, str]
    copied: tuple[tuple[int, int], ...] = ()
    limits: Limits = field(default_factory=Limits)
    cutoff: Mapping[int, Position] = field(default_factory=dict)
    budgets: Mapping[int, Budget] = field(default_factory=dict)

    def meter(self, views: Iterable[int]) -> Meter:
        """What a block is charged to that these look at alike."""
        return Meter({view: self.budgets.get(view) or Budget(self.limits.bytes) for view in views})

    def visible(self, view: int) -> Bools:
        """Of which sights the view sees the tuples."""
        return np.asarray(self.table[:, view] != HIDDEN, np.bool_)
