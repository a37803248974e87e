"""Sets of rows with validity: the content of a window, the tuples of a table, the combinations that a join makes.

A row has a number (its slot), which is its own while it is there. It came with the tuple at a position, is there until
a time (`until`), and until the tuple at a position displaces it (`gone`). Each batch brings new rows (`new`) and tells
which rows leave (`leaving`); both cost what comes and goes, never what is held.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np

from headgate.columns.sorting import Ints
from headgate.loops.windows import steps_after
from headgate.operators.sequence import Narrow
from headgate.operators.visible import Reader

if TYPE_CHECKING:
    from headgate.operators.partitioned_set import PartitionedSet
    from headgate.operators.window_set import WindowSet

NEVER = 1 << 62
_NONE = np.empty(0, np.int64)


@dataclass(frozen=True)
class Instants:
    """The instants of a block in one batch, in order.

    time: the time of each instant
    passed: how many tuples of the view group became final up to it, since the group exists
    tuples: the tuple of each instant, by its slot in the store; empty if the block slides
    """

    time: Ints
    passed: Ints
    tuples: Ints
    slides: bool

    def __len__(self) -> int:
        return len(self.time)

    def enter(self, came: Ints) -> Ints:
        """The first instants at which rows that came at these positions are there."""
        return _steps(came, self.passed)

    def leave_by_time(self, until: Ints) -> Ints:
        """The first instants after these times."""
        return _steps(until, self.time)

    def leave(self, until: Ints, gone: Ints) -> Ints:
        """The first instants at which rows are no longer there."""
        return np.minimum(self.leave_by_time(until), _steps(gone, self.passed))


def _steps(values: Ints, bounds: Ints) -> Ints:
    found = np.empty(len(values), np.int64)
    steps_after(values, bounds, found)
    return found


class RowSet(Protocol):
    """Rows by slot.

    fifo: whether rows leave in the order in which they came
    entered: all slots that were taken with this batch
    new: the rows that came with this batch, in order
    displaced: the rows that a tuple of this batch displaced
    came, gone: by slot; `gone` is empty if no tuple displaces any
    """

    fifo: bool
    entered: Ints
    new: Ints
    displaced: Ints
    gone: Ints

    @property
    def came(self) -> Ints: ...

    @property
    def capacity(self) -> int: ...

    def sides(self, rows: Ints) -> tuple[Ints, ...]:
        """The tuples of rows, by their slots in the store, one array for each source."""
        ...

    def kinds(self) -> Narrow:
        """The labels of the tuples of each row, as [row, side]."""
        ...

    def orders(self) -> Ints:
        """What rows are ordered by, as [row, side]: the positions of their tuples."""
        ...

    def until_of(self, rows: Ints) -> Ints:
        """The times until which rows are there."""
        ...

    def windows(self) -> list[WindowSet | PartitionedSet]: ...

    def advance(self, reader: Reader) -> None:
        """Take what came with this batch."""
        ...

    def entering(self, instants: Instants) -> tuple[Ints, Ints]:
        """The rows that these instants are the first to see, and which does, in order."""
        ...

    def leaving(self, instants: Instants) -> tuple[Ints, Ints]:
        """The rows that leave with these instants, and with which, in the order in which they leave."""
        ...

    def left(self, instants: Instants) -> Ints:
        """As `leaving`, where nobody asks with which instants rows leave."""
        ...

    def release(self) -> None:
        """Forget the rows that have left; their slots may be taken again."""
        ...


class TableSet:
    """The tuples of a table that meet the conditions on it. They were there before everything else, and stay."""

    fifo = False

    def __init__(self, tuples: Ints, kinds: Ints) -> None:
        self._tuples = tuples
        self._kinds = kinds.astype(np.int32)
        self.entered = self.new = np.arange(len(tuples))
        self.displaced = _NONE
        self.came = self.new - len(tuples) - NEVER
        self.gone = _NONE

    @property
    def capacity(self) -> int:
        return len(self._tuples)

    def sides(self, rows: Ints) -> tuple[Ints, ...]:
        return (self._tuples[rows],)

    def kinds(self) -> Narrow:
        return self._kinds[:, np.newaxis]

    def orders(self) -> Ints:
        return np.arange(len(self._tuples))[:, np.newaxis]

    def until_of(self, rows: Ints) -> Ints:
        return np.full(len(rows), NEVER)

    def windows(self) -> list[WindowSet | PartitionedSet]:
        return []

    def advance(self, reader: Reader) -> None:  # noqa: ARG002
        self.entered = self.new = _NONE

    def entering(self, instants: Instants) -> tuple[Ints, Ints]:  # noqa: ARG002
        return _NONE, _NONE

    def leaving(self, instants: Instants) -> tuple[Ints, Ints]:  # noqa: ARG002
        return _NONE, _NONE

    def left(self, instants: Instants) -> Ints:  # noqa: ARG002
        return _NONE

    def release(self) -> None:
        """Nothing leaves."""
