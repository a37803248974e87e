"""Sets of rows with validity: the content of a window, the tuples of a table, the combinations that a join makes.

A row has a number (its slot), which is its own while it is there. It came with the tuple at a position, is there until
a time (`until`), and until the tuple at a position displaces it (`gone`). Each batch brings new rows (`new`) and tells
which rows leave (`leaving`); both cost what comes and goes, never what is held.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from headgate.columns.sorting import Bools, Ints
from headgate.expressions.sql import arrow_type
from headgate.loops.arrays import grown
from headgate.loops.keys import KeyCodes
from headgate.loops.windows import last_of_each, steps_after
from headgate.operators.sequence import Narrow, Sequence
from headgate.operators.visible import Reader
from headgate.plan import nodes as n
from headgate.plan.expressions import Expr

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


def _span(window: n.Window) -> int:
    """How long a row is there after its time."""
    match window.kind:
        case "RANGE":
            return window.range - (1 if window.slide else 0)
        case "NOW":
            return 0
    return NEVER
