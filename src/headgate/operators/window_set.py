"""The content of a window over a shared sequence."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from headgate.columns.sorting import Bools, Ints
from headgate.loops.arrays import grown
from headgate.operators.rowsets import NEVER, Instants
from headgate.operators.sequence import Narrow, Sequence
from headgate.operators.visible import Reader
from headgate.plan import nodes as n
from headgate.plan.expressions import Expr

if TYPE_CHECKING:
    from headgate.operators.partitioned_set import PartitionedSet

_NONE = np.empty(0, np.int64)


class WindowSet:
    """The content of a window over a shared sequence: ROWS, RANGE, NOW or UNBOUNDED; with the conditions after it.

    joined: whether its rows are joined, so that `gone` is needed by row if tuples displace others
    first: the number of the first row that has not left
    kept: the number of the first row that the window holds now; it may be ahead of `first` until the next instant
    applied: the number of the first row that no instant has seen yet
    folded: how many tuples it holds that are not kept
    step, selecting: the names of its steps, and of the selection after it
    """

    fifo = True
    step = selecting = ""

    def __init__(
        self, window: n.Window, stream: str, conditions: frozenset[Expr], sequence: Sequence, *, joined: bool
    ) -> None:
        self.window = window
        self._stream = stream
        self._conditions = conditions
        self.sequence = sequence
        self._span = _span(window)
        self._most = window.rows if window.kind == "ROWS" else NEVER
        self._displaces = joined and self._most < NEVER
        self.first = self.kept = self.applied = sequence.first
        self._displaced_before = sequence.first
        self.folded = 0
        self.entered = self.new = self.displaced = self.gone = _NONE
        self._passes: Bools = np.zeros(0, np.bool_)

    @property
    def came(self) -> Ints:
        return self.sequence.positions

    @property
    def capacity(self) -> int:
        return self.sequence.capacity

    @property
    def held(self) -> int:
        return self.sequence.end - self.kept + self.folded

    def sides(self, rows: Ints) -> tuple[Ints, ...]:
        return (self.sequence.tuples(rows),)

    def kinds(self) -> Narrow:
        return self.sequence.kinds[:, np.newaxis]

    def orders(self) -> Ints:
        return self.sequence.positions[:, np.newaxis]

    def until_of(self, rows: Ints) -> Ints:
        return np.minimum(self.sequence.times[rows] + self._span, NEVER)

    def windows(self) -> list[WindowSet | PartitionedSet]:
        return [self]

    def content(self) -> Ints:
        """The tuples that the window holds, in order, by their slots in the store."""
        return self.sequence.tuples(self.sequence.order(self.kept, self.sequence.end))

    def content_at(self, last: int) -> Ints:
        """The tuples that it held at the last instant, whose time is given."""
        rows = self.sequence.order(self.first, self.sequence.end)
        return self.sequence.tuples(rows[self.sequence.times[rows] <= last])

    def start(self) -> int | None:
        """The first tuple that the window holds; None if it holds none. It holds all that entered since."""
        return self._tuple_at(self.kept)

    def start_at(self, last: int) -> int | None:
        """The first tuple that it held at the last instant, whose time is given."""
        rows = self.sequence.order(self.first, min(self.first + 1, self.sequence.end))
        return self._tuple_at(self.first) if (self.sequence.times[rows] <= last).any() else None

    def _tuple_at(self, number: int) -> int | None:
        if number >= self.sequence.end:
            return None
        return int(self.sequence.tuples(self.sequence.order(number, number + 1))[0])

    def begin(self, held: Ints, before: Ints, last: int, slides: bool, reader: Reader) -> None:
        """Continue with what the window held (`held`), and what it held at the last instant (`before`), by slots in the
        store: the end of the sequence. `last` is the time of that instant."""
        numbers, end = self.sequence.number_of, self.sequence.end
        self.kept = self._displaced_before = numbers(held[0]) if len(held) else end
        self.first = min(self.kept, numbers(before[0]) if len(before) else end)
        self.entered = self.sequence.order(self.first, end)
        self._take(reader)
        displaced = self.sequence.order(self.first, self.kept)
        seen = end
        if slides:
            times = self.sequence.times[self.sequence.order(self.first, end)]
            seen = self.first + int(np.searchsorted(times, last, side="right"))
        if self._displaces:
            unseen = self.sequence.order(seen, end)
            self.gone[displaced] = self.sequence.positions[unseen[0]] if len(unseen) else 0
        if self._span < NEVER:  # kept for another block; here it has left
            left = self.sequence.over(self.first, seen, self._span, last)
            self.first += left
            self.kept = max(self.kept, self.first)
            self.new = self.entered[left:]
            if self._conditions:
                self.new = self.new[self._passes[self.new]]
        self.applied = self.first  # the caller applies what the last instant saw

    def advance(self, reader: Reader) -> None:
        with reader.profile.running(self.step) as step:
            self.entered = self.sequence.entered
            self._take(reader)
            kept = max(self.kept, self.sequence.end - self._most)
            self.displaced = self.sequence.order(self.kept, kept)
            if self._displaces and len(self.displaced):
                by = self.sequence.order(self.kept + self._most, kept + self._most)
                self.gone[self.displaced] = self.sequence.positions[by]
            self.kept = kept
            step.count(len(self.entered), len(self.entered))

    def _take(self, reader: Reader) -> None:
        rows = self.new = self.entered
        if self._displaces:
            self.gone = grown(self.gone, self.capacity)
            self.gone[rows] = NEVER
        if self._conditions:
            with reader.profile.running(self.selecting) as step:
                passes = reader.meets([self._stream], (self.sequence.tuples(rows),), self._conditions)
                self._passes = grown(self._passes, self.capacity)
                self._passes[rows] = passes
                self.new = rows[passes]
                step.count(len(rows), len(self.new))

    def entering(self, instants: Instants) -> tuple[Ints, Ints]:
        end = self.sequence.number_at(int(instants.passed[-1])) if len(instants) else self.applied
        rows = self.sequence.order(self.applied, end)
        self.applied = end
        if self._conditions:
            rows = rows[self._passes[rows]]
        return rows, instants.enter(self.sequence.positions[rows])

    def leaving(self, instants: Instants) -> tuple[Ints, Ints]:
        rows = self._over(instants)
        steps = self._leave(instants, rows)
        passes = self._passed(rows)
        return (rows, steps) if passes is None else (rows[passes], steps[passes])

    def left(self, instants: Instants) -> Ints:
        rows = self._over(instants)
        self._drop(rows)
        passes = self._passed(rows)
        return rows if passes is None else rows[passes]

    def _over(self, instants: Instants) -> Ints:
        """The first rows, which the window no longer holds at the last of these instants."""
        sequence, end = self.sequence, self.first
        if not len(instants):
            return _NONE
        came = sequence.number_at(int(instants.passed[-1]))
        if self._span < NEVER:
            end += sequence.over(end, came, self._span, int(instants.time[-1]))
        if self._most < NEVER:
            end = max(end, self._displaced_before, min(self.kept, came - self._most))
        return sequence.order(self.first, end)

    def _drop(self, rows: Ints) -> None:
        """Hold these rows, the first ones, no longer."""
        self.first += len(rows)
        self.kept = max(self.kept, self.first)

    def _passed(self, rows: Ints) -> Bools | None:
        """Which rows meet the conditions after the window; None: all."""
        return self._passes[rows] if self._conditions else None

    def _leave(self, instants: Instants, rows: Ints) -> Ints:
        """Hold these rows, the first ones, no longer; returns the first instants at which they are not there."""
        begin = self.first
        self._drop(rows)
        if self._most == NEVER:
            return instants.leave_by_time(self.sequence.times[rows] + self._span)
        gone = np.full(len(rows), NEVER)
        before = max(self._displaced_before - begin, 0)
        gone[:before] = -NEVER
        first = begin + before + self._most
        by = self.sequence.order(first, min(first + max(len(rows) - before, 0), self.sequence.end))
        gone[before : before + len(by)] = self.sequence.positions[by]
        return instants.enter(gone)

    def release(self) -> None:
        """The view group trims the sequence when all its readers have left a row."""


def _span(window: n.Window) -> int:
    """How long a row is there after its time."""
    match window.kind:
        case "RANGE":
            return window.range - (1 if window.slide else 0)
        case "NOW":
            return 0
    return NEVER
