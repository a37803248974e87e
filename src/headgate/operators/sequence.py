"""The tuples that entered one input, a stream after the conditions before its window, for one view group, in order.

Windows over one input share its sequence: each of them, except PARTITIONED ones, holds a range of it. So a smaller
window costs nothing where there is a larger one. A row of the sequence has a slot, which loops use as its number.
"""

from __future__ import annotations

import numpy as np

from headgate.columns.sorting import Ints, dense
from headgate.loops.arrays import grown
from headgate.loops.slots import SlotPool
from headgate.loops.windows import came_before
from headgate.operators.program import LABEL, TIME
from headgate.operators.tuple_store import TupleStore

_EMPTY = np.empty(0, np.int64)


class LabelKinds:
    """Small numbers for the labels that a view group has seen."""

    def __init__(self) -> None:
        self.labels: list[int] = []
        self._kinds: dict[int, int] = {}

    def of(self, labels: Ints) -> Ints:
        kinds, kind = dense(labels)
        for label in kinds.tolist():
            if label not in self._kinds:
                self._kinds[label] = len(self.labels)
                self.labels.append(label)
        return np.array([self._kinds[label] for label in kinds.tolist()], np.int64)[kind] if len(kinds) else _EMPTY


class Sequence:
    """By slot: `tuples` (slots of the store), `times`, `positions` (among all tuples that became final for the view
    group), `kinds` (of labels). `order` has the slots of the rows numbered from `first` to `end`."""

    def __init__(self, store: TupleStore, kinds: LabelKinds) -> None:
        self._store = store
        self._pool = SlotPool()
        self._kinds = kinds
        self.tuples = self.times = self.positions = self.kinds = self.numbers = _EMPTY
        self._order = np.empty(16, np.int64)
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
        if len(self.tuples) < capacity:
            for name in ("tuples", "times", "positions", "kinds", "numbers"):
                setattr(self, name, grown(getattr(self, name), capacity))
        self.tuples[slots] = tuples
        self.times[slots] = self._store.numbers(TIME)[tuples]
        self.positions[slots] = positions
        self.kinds[slots] = self._kinds.of(self._store.numbers(LABEL)[tuples])
        self.numbers[slots] = np.arange(self.end, self.end + len(slots))
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
                else np.empty(int(1.5 * (size + len(slots))) + 16, np.int64)
            )
            room[:size] = self._order[self._begin : self._begin + size].copy()
            self._order, self._begin = room, 0
        self._order[self._begin + size : self._begin + size + len(slots)] = slots

    def order(self, first: int, end: int) -> Ints:
        """The slots of the rows with these numbers, a view of the array."""
        return self._order[self._begin + first - self.first : self._begin + end - self.first]

    def number_at(self, passed: int) -> int:
        """The number of the first row that did not come before a position."""
        return self.first + came_before(self.order(self.first, self.end), self.positions, passed)

    def number_of(self, tuple_: int) -> int:
        """The number of the row of a tuple, which is among the rows."""
        rows = self.order(self.first, self.end)
        return self.first + int(np.flatnonzero(self.tuples[rows] == tuple_)[0])

    def forget(self, before: int) -> None:
        """No window holds the rows before this number any more."""
        if before > self.first:
            slots = self.order(self.first, before).copy()
            self._begin += before - self.first
            self.first = before
            self._free(slots)

    def _free(self, slots: Ints) -> None:
        self._store.release(self.tuples[slots])
        self._pool.give(slots)

    def unorder(self) -> None:
        """Keep no order from now on: its one reader keeps it, and drops rows one by one."""
        self._ordered = False
        self.first, self._order, self._begin = self.end, np.empty(0, np.int64), 0

    def drop(self, slots: Ints) -> None:
        """Nobody holds these rows any more."""
        self._free(slots)
