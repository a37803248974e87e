"""Visibility for one batch: for each visibility row and view, whether a tuple is hidden or which columns are masked."""

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
"""In a visibility row: the view does not see the tuple. Any other number is the number of a mask plus one."""

VisibilityRows = npt.NDArray[np.int32]
Mask = frozenset[tuple[str, str]]
"""Columns that a view may not see, as pairs of stream and column; they read as NULL."""


class TuplePosition(NamedTuple):
    """The position of a tuple in the order of SPEC.md, 4.2; streams are numbered in the order of their names."""

    time: int
    stream: int
    arrival: int


@dataclass(frozen=True)
class Visibility:
    """What each view sees of the tuples of one batch. A column stands for one block of one view.

    targets: for each column its query and block; an empty query: the view was removed
    table: for each visibility row and column, HIDDEN or the number of a mask plus one
    since, until: for each column the times from and to which instants become final with this batch
    levels: the levels of each label, as text
    copied: pairs (new, old) of columns: a new view starts with the state of an old one
    limits: the limits of each view
    cutoff: by column, the position from which on a view that ends with this batch sees nothing
    budgets: by column, what its view may use in this batch, and has used
    """

    targets: tuple[tuple[str, int], ...]
    table: VisibilityRows
    masks: tuple[Mask, ...]
    since: Ints
    until: Ints
    levels: Mapping[int, str]
    copied: tuple[tuple[int, int], ...] = ()
    limits: Limits = field(default_factory=Limits)
    cutoff: Mapping[int, TuplePosition] = field(default_factory=dict)
    budgets: Mapping[int, Budget] = field(default_factory=dict)

    def meter(self, views: Iterable[int]) -> Meter:
        """The meter of a block that these columns share."""
        return Meter({view: self.budgets.get(view) or Budget(self.limits) for view in views})

    def visible(self, view: int) -> Bools:
        """The visibility rows whose tuples the view sees."""
        return np.asarray(self.table[:, view] != HIDDEN, np.bool_)
