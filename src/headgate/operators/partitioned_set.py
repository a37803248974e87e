"""The content of a PARTITIONED window: the last rows of each partition."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from headgate.columns.sorting import Bools, Ints
from headgate.expressions.sql import arrow_type
from headgate.loops.arrays import grown
from headgate.loops.keys import KeyCodes
from headgate.loops.windows import last_of_each
from headgate.operators.rowsets import NEVER, Instants
from headgate.operators.sequence import Narrow, Sequence
from headgate.operators.visible import Reader
from headgate.plan import nodes as n
from headgate.plan.expressions import Expr

if TYPE_CHECKING:
    from headgate.operators.window_set import WindowSet

_NONE = np.empty(0, np.int64)


class PartitionedSet:
    """The content of a PARTITIONED window: the last rows of each partition. It has a sequence of its own."""

    fifo = False
    step = selecting = ""
    folded = 0

    def __init__(self, window: n.Window, stream: str, conditions: frozenset[Expr], sequence: Sequence) -> None:
        self.window = window
        self._stream = stream
        self._conditions = conditions
        self.sequence = sequence
        self._codes = KeyCodes(*(arrow_type(column.type) for column in window.partition))
        self._head = self._tail = self._count = self._following = _NONE
        self.entered = self.new = self.displaced = self.gone = _NONE
        self._passes: Bools = np.zeros(0, np.bool_)
        self._waiting = self._displaced = self._left = _NONE
        self._alive: Bools = np.zeros(0, np.bool_)
        self.held = 0

    @property
    def came(self) -> Ints:
        return self.sequence.positions

    @property
    def capacity(self) -> int:
        return self.sequence.capacity

    def sides(self, rows: Ints) -> tuple[Ints, ...]:
        return (self.sequence.tuples(rows),)

    def kinds(self) -> Narrow:
        return self.sequence.kinds[:, np.newaxis]

    def orders(self) -> Ints:
        return self.sequence.positions[:, np.newaxis]

    def until_of(self, rows: Ints) -> Ints:
        return np.full(len(rows), NEVER)

    def windows(self) -> list[WindowSet | PartitionedSet]:
        return [self]

    def content(self) -> Ints:
        rows = np.flatnonzero(self._alive)
        rows = rows[self.gone[rows] == NEVER]
        return self.sequence.tuples(rows[np.argsort(self.sequence.positions[rows])])

    def content_at(self, last: int) -> Ints:
        rows = np.flatnonzero(self._alive)
        rows = rows[self.sequence.times[rows] <= last]
        return self.sequence.tuples(rows[np.argsort(self.sequence.positions[rows])])

    def start(self) -> int | None:
        """-1: it holds the last rows of each partition of all that entered."""
        return -1

    def start_at(self, last: int) -> int | None:  # noqa: ARG002
        return -1

    def begin(self, held: Ints, before: Ints, last: int, slides: bool, reader: Reader) -> None:  # noqa: ARG002
        """As `WindowSet.begin`; the sequence has the tuples of both. Where partitions became one, it keeps the last
        rows of all."""
        rows = self.sequence.order(self.sequence.first, self.sequence.end)
        there = np.isin(self.sequence.tuples(rows), held)
        unseen = (self.sequence.times[rows] > last) & slides
        self.entered = rows[there]
        self._take(reader)
        gone = rows[~there]
        surplus = self.displaced
        if len(gone):
            self._alive[gone] = True
            self.gone = grown(self.gone, self.capacity)
            first = rows[unseen]
            self.gone[gone] = self.sequence.positions[first[0]] if len(first) else 0
            self._passed(gone, reader)
            self._displaced = gone
            self.new = np.union1d(self.new, gone)
            self.new = self.new[np.argsort(self.sequence.positions[self.new])]
        self._displaced = np.setdiff1d(self._displaced, surplus)
        self._alive[surplus] = False
        self._waiting = rows[~np.isin(rows, surplus)]
        self.new = self.new[~np.isin(self.new, surplus)]
        self.displaced = _NONE
        if len(surplus):
            self.sequence.drop(surplus)
        self.sequence.unorder()

    def close(self) -> None:
        """Let go of all rows."""
        self.sequence.drop(np.flatnonzero(self._alive))
        self._alive[:] = False

    def advance(self, reader: Reader) -> None:
        with reader.profile.running(self.step) as step:
            self.entered = self.sequence.entered
            self._take(reader)
            self._displaced = np.concatenate([self._displaced, self.displaced])
            self._waiting = np.concatenate([self._waiting, self.entered])
            step.count(len(self.entered), len(self.entered))

    def _passed(self, rows: Ints, reader: Reader) -> Bools:
        passes = np.ones(len(rows), np.bool_)
        if self._conditions:
            with reader.profile.running(self.selecting) as step:
                passes = reader.meets([self._stream], (self.sequence.tuples(rows),), self._conditions)
                self._passes = grown(self._passes, self.capacity)
                self._passes[rows] = passes
                step.count(len(rows), int(np.count_nonzero(passes)))
        return passes

    def _take(self, reader: Reader) -> None:
        rows, size = self.entered, self.capacity
        self.gone = grown(self.gone, size)
        self._following, self._alive = grown(self._following, size), grown(self._alive, size)
        self.gone[rows], self._alive[rows] = NEVER, True
        tuples = self.sequence.tuples(rows)
        columns = [reader.tuples.column(self._stream, x.name, tuples) for x in self.window.partition]
        codes = self._codes.codes(columns, null_is_a_value=True) if len(rows) else _NONE
        parts = len(self._codes)
        self._head, self._tail, self._count = (grown(x, parts) for x in (self._head, self._tail, self._count))
        left, left_at = np.empty(len(rows), np.int64), np.empty(len(rows), np.int64)
        found = last_of_each(
            rows, codes, self.window.rows, self._head, self._tail, self._count, self._following, left, left_at
        )
        self.displaced = left[:found]
        self.gone[self.displaced] = self.sequence.positions[rows[left_at[:found]]]
        self.held += len(rows) - found
        self.new = rows[self._passed(rows, reader)]

    def entering(self, instants: Instants) -> tuple[Ints, Ints]:
        passed = int(instants.passed[-1]) if len(instants) else -NEVER
        there = self.sequence.positions[self._waiting] < passed
        rows, self._waiting = self._waiting[there], self._waiting[~there]
        if self._conditions:
            rows = rows[self._passes[rows]]
        return rows, instants.enter(self.sequence.positions[rows])

    def leaving(self, instants: Instants) -> tuple[Ints, Ints]:
        rows = self.left(instants)
        return rows, instants.enter(self.gone[rows])

    def left(self, instants: Instants) -> Ints:
        passed = int(instants.passed[-1]) if len(instants) else -NEVER
        there = self.gone[self._displaced] < passed
        self._left, self._displaced = self._displaced[there], self._displaced[~there]
        return self._left[self._passes[self._left]] if self._conditions else self._left

    def release(self) -> None:
        self._alive[self._left] = False
        self.sequence.drop(self._left)
        self._left = _NONE
