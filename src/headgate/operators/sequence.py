"""The tuples that entered one input, a stream after the conditions before its window, for one view group, in order.

Windows over one input share its sequence: each of them, except PARTITIONED ones, holds a range of it. So a smaller
window costs nothing where there is a larger one. A row of the sequence has a slot, which loops use as its number.
"""

from __future__ import annotations

import numpy as np

from headgate.columns.sorting import Ints
from headgate.loops.arrays import grown, zeros
from headgate.loops.labels import enter_rows
from headgate.loops.slots import SlotPool
from headgate.loops.windows import came_before, first_held
from headgate.operators.group_labels import LabelKinds
from headgate.operators.program import LABEL, TIME
from headgate.operators.tuple_store import TupleStore

Narrow = np.ndarray[tuple[int, ...], np.dtype[np.int32]]
"""Slots and kinds of labels as they are kept: in 32 bits."""
_EMPTY = np.empty(0, np.int64)


class Sequence:
    """By slot: `times`, `positions` (among all tuples that became final for the view group), `kinds` (of labels), and
    the tuples. `order` has the slots of the rows numbered from `first` to `end`. Slots are kept in 32 bits: there is a
    sequence for each view group, and what it takes for each row is most of what a view takes."""

    def __init__(self, store: TupleStore, kinds: LabelKinds) -> None:
        self._store = store
        self._pool = SlotPool()
        self._kinds = kinds
        self.times = self.positions = _EMPTY
        self.kinds = self._tuples = np.empty(0, np.int32)
        self._order = np.empty(16, np.int32)
        self._begin = 0
        self.first = self.end = 0
        self.entered: Ints = _EMPTY
        self._ordered = True

    @property
    def capacity(self) -> int:
        return self._pool.capacity

    def enter(self, tuples: Ints, positions: Ints) -> None:
        """These tuples enter, in order. `entered` are their slots."""
        self._store.hold(tuples)
        slots = self.entered = self._pool.take(len(tuples))
        capacity = self._pool.capacity
        if len(self._tuples) < capacity:
            for name in ("_tuples", "times", "positions", "kinds"):
                setattr(self, name, grown(getattr(self, name), capacity))
        labels, missed = self._store.numbers(LABEL), np.empty(len(tuples), np.int64)
        count = enter_rows(
            tuples, positions, slots, self._store.numbers(TIME), labels, *self._kinds.cached,
            self._tuples, self.times, self.positions, self.kinds, missed,
        )  # fmt: skip
        if count:
            self.kinds[slots[missed[:count]]] = self._kinds.kinds_of_new(labels[tuples[missed[:count]]])
        if self._ordered:
            self._append(slots)
        self.end += len(slots)
        if not self._ordered:
            self.first = self.end

    def _append(self, slots: Ints) -> None:
        size = self.end - self.first
        if self._begin + size + len(slots) > len(self._order):
            room = (
                self._order
                if 2 * (size + len(slots)) <= len(self._order)
                else zeros(int(1.5 * (size + len(slots))) + 16, np.int32)
            )
            room[:size] = self._order[self._begin : self._begin + size].copy()
            self._order, self._begin = room, 0
        self._order[self._begin + size : self._begin + size + len(slots)] = slots

    def order(self, first: int, end: int) -> Ints:
        """The slots of the rows with these numbers."""
        return self._numbered(first, end).astype(np.int64)

    def _numbered(self, first: int, end: int) -> Narrow:
        """The same, as a view of the array."""
        return self._order[self._begin + first - self.first : self._begin + end - self.first]

    def tuples(self, rows: Ints) -> Ints:
        """The tuples of rows, by their slots in the store."""
        return self._tuples[rows].astype(np.int64)

    def over(self, first: int, end: int, span: int, now: int) -> int:
        """How many of the rows with these numbers, from the first on, a window by time no longer holds at a time."""
        return first_held(self._numbered(first, end), self.times, span, now)

    def number_at(self, passed: int) -> int:
        """The number of the first row that did not come before a position."""
        return self.first + came_before(self._numbered(self.first, self.end), self.positions, passed)

    def number_of(self, tuple_: int) -> int:
        """The number of the row of a tuple, which is among the rows."""
        rows = self._numbered(self.first, self.end)
        return self.first + int(np.flatnonzero(self._tuples[rows] == tuple_)[0])

    def forget(self, before: int) -> None:
        """No window holds the rows before this number any more."""
        if before > self.first:
            slots = self.order(self.first, before)
            self._begin += before - self.first
            self.first = before
            self._free(slots)

    def _free(self, slots: Ints) -> None:
        self._store.release(self.tuples(slots))
        self._pool.give(slots)

    def unorder(self) -> None:
        """Keep no order from now on: its one reader keeps it, and drops rows one by one."""
        self._ordered = False
        self.first, self._order, self._begin = self.end, np.empty(0, np.int32), 0

    def drop(self, slots: Ints) -> None:
        """Nobody holds these rows any more."""
        self._free(slots)
