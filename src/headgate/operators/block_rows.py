"""The rows of a block: what its windows hold and its joins combine, and how that changes from instant to instant.

Blocks over the same windows and joins share them, whatever they select or aggregate.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from headgate.columns.sorting import Ints, distinct
from headgate.expressions.limits import few_rows
from headgate.expressions.sql.forms import LAST_MICROSECOND
from headgate.loops.arrays import grown
from headgate.loops.windows import interleaved, slides_over
from headgate.model.budget import charge
from headgate.model.times import NO_TIME
from headgate.operators.join import JoinSet, Matching
from headgate.operators.join_order import joining_order
from headgate.operators.partitioned_set import PartitionedSet
from headgate.operators.reading import stream_of, streams_of
from headgate.operators.rowsets import Instants, RowSet, TableSet
from headgate.operators.sequence import Sequence
from headgate.operators.visible import Reader
from headgate.operators.window_set import WindowSet
from headgate.plan import nodes as n
from headgate.plan import steps
from headgate.plan.expressions import Expr

LAST = LAST_MICROSECOND // 1000
"""The last time that can be written down, in milliseconds."""
_NONE = np.empty(0, np.int64)
_NO_SIGNS = np.empty(0, np.int8)


@dataclass(frozen=True)
class Finals:
    """The tuples of a view group that become final with a piece of a batch, in order, by their slots in the store;
    `first` is the position of the first of them, `since` and `until` are the bounds of the times that become final.
    `waiting` says how many tuples wait after the batch; only the last piece of a batch has it."""

    tuples: Ints
    times: Ints
    first: int
    since: int
    until: int
    waiting: int | None = None


@dataclass(frozen=True)
class Changes:
    """The rows of a block that enter (sign 1) and leave (sign -1), in order, with the number of the instant.

    new: the rows that enter, in order
    enters: at which instant
    entered: which of the changes they are
    """

    row: Ints
    sign: np.ndarray[tuple[int], np.dtype[np.int8]]
    step: Ints
    instants: Instants
    new: Ints
    enters: Ints
    entered: Ints

    def parts(self, size: int) -> Iterator[Changes]:
        """The same in parts, if all rows enter at one instant."""
        for first in range(0, len(self.row), size):
            end = first + size
            rows, steps = self.row[first:end], self.step[first:end]
            yield Changes(rows, self.sign[first:end], steps, self.instants, rows, steps, np.arange(len(rows)))

    @cached_property
    def left(self) -> Ints:
        """The positions of the changes that leave."""
        return np.flatnonzero(self.sign < 0)


def windows_of(node: n.Node) -> list[tuple[n.Window, frozenset[Expr]]]:
    """The windows of the rows of a block, with the conditions after each, one for each source that is no table."""
    sides = node.sides if isinstance(node, n.Join) else (node,)
    found = []
    for side in sides:
        conditions = side.conditions if isinstance(side, n.Select) else frozenset[Expr]()
        window = side.input if isinstance(side, n.Select) else side
        if isinstance(window, n.Window):
            found.append((window, conditions))
    return found


def shared_sequence(window: n.Window) -> str:
    """The name of the sequence of any other window: one for all windows over an input, and one for UNBOUNDED windows
    over it, which keep some of its tuples only (`folding.py`)."""
    return window.key if window.kind == "UNBOUNDED" else window.input.key


def own_sequence(rows: n.Node, side: n.Node, number: int) -> str:
    """The name of the sequence of a PARTITIONED window, which no other window reads; `number` tells equal sources
    apart."""
    return f"{side.key} {rows.key} {number}"


class BlockRows:
    """`kept`: whether the rows of a join are remembered. The caller makes the sequences that its windows read."""

    def __init__(
        self, node: n.Node, sequences: Mapping[str, Sequence], tables: Mapping[str, TableSet], *, kept: bool
    ) -> None:
        self.node = node
        self.streams = tuple(streams_of(node))
        self.slide = max((window.slide for window, _ in windows_of(node)), default=0)
        self.last = NO_TIME
        self._order: tuple[int, ...] | None = None
        self._alike: Counter[str] = Counter()
        self._leaves_at = _NONE
        """By row, when it leaves; -1 between batches."""
        self._tables = {key: x.capacity for key, x in tables.items()}
        self.top = self._made(node, sequences, tables, kept or bool(self.slide))
        self.kept = kept or bool(self.slide) or not isinstance(self.top, JoinSet)

    def _made(
        self, node: n.Node, sequences: Mapping[str, Sequence], tables: Mapping[str, TableSet], kept: bool
    ) -> RowSet:
        if not isinstance(node, n.Join):
            return self._side(node, sequences, tables, joined=False)
        order, arranged = joining_order(node)
        if order != tuple(sorted(order)):
            self._order = tuple(order.index(number) for number in range(len(order)))
        streams = tuple(stream_of(side) for side in arranged.sides)
        top, waiting = self._side(arranged.sides[0], sequences, tables, joined=True), set(arranged.conditions)
        for number in range(1, len(arranged.sides)):
            ready = frozenset(x for x in waiting if max(x.inputs, default=0) <= number)
            waiting -= ready
            right = self._side(arranged.sides[number], sequences, tables, joined=True)
            last = number == len(arranged.sides) - 1
            top = JoinSet(
                top, right, Matching.of(number, ready, streams), kept=kept or not last,
                order=self._order if last else None,
            )  # fmt: skip
            top.step = steps.within(node, node)
        return top

    def _side(
        self, side: n.Node, sequences: Mapping[str, Sequence], tables: Mapping[str, TableSet], *, joined: bool
    ) -> RowSet:
        if any(isinstance(x, n.Table) for x in side.walk()):
            return tables[side.key]
        ((window, conditions),) = windows_of(side)
        stream = stream_of(window)
        if window.kind == "PARTITIONED":
            self._alike[side.key] += 1
            name = own_sequence(self.node, side, self._alike[side.key])
            made: WindowSet | PartitionedSet = PartitionedSet(window, stream, conditions, sequences[name])
        else:
            made = WindowSet(window, stream, conditions, sequences[shared_sequence(window)], joined=joined)
        made.step, made.selecting = steps.within(window, self.node), steps.within(side, self.node)
        return made

    @property
    def windows(self) -> list[WindowSet | PartitionedSet]:
        return self.top.windows()

    @property
    def held(self) -> int:
        """How many tuples its windows hold, and how many it sees of tables; a window that is read twice counts once."""
        return sum({x.window.key: x.held for x in self.windows}.values()) + sum(self._tables.values())

    @property
    def stored(self) -> int:
        """How many of these tuples are kept."""
        return self.held - sum({x.window.key: x.folded for x in self.windows}.values())

    @property
    def rows(self) -> int:
        """How many rows it keeps."""
        return self.stored + (self.top.rows if isinstance(self.top, JoinSet) else 0)

    @property
    def keys(self) -> int:
        """How many keys its joins know, of rows that are there or were."""
        return self.top.keys if isinstance(self.top, JoinSet) else 0

    def sides(self, rows: Ints) -> tuple[Ints, ...]:
        """The tuples of rows, one array for each source, in the order of the block's sources."""
        return self._arranged(self.top.sides(rows))

    def _arranged(self, sides: tuple[Ints, ...]) -> tuple[Ints, ...]:
        return sides if self._order is None else tuple(sides[number] for number in self._order)

    def pairs(self, instants: Instants) -> tuple[tuple[Ints, ...], Ints]:
        """The rows of a join that does not remember them: their tuples, and the instants at which they are new, in the
        order of results."""
        top = self.top
        assert isinstance(top, JoinSet)  # noqa: S101  windows keep their rows
        left, right, at = top.pairs
        step = instants.enter(at)
        if not top.is_in_order(step):
            keys = top.positions(left, right)
            order = np.lexsort((*(keys[:, x] for x in reversed(range(keys.shape[1]))), step))
            left, right, step = left[order], right[order], step[order]
        return self._arranged(top.combined(left, right)), step

    # Batches ----------------------------------------------------------------------------------------------------------

    def begin(self, held: Mapping[str, Ints], before: Mapping[str, Ints], last: int, reader: Reader) -> Changes:
        """Continue with what windows held, at the last instant (`before`) and now, by the window's key."""
        self.last = last
        position = self._position(last)  # now: a PARTITIONED window takes its rows out of the order of its sequence
        for window in self.windows:
            now = held.get(window.window.key, _NONE)
            window.begin(now, before.get(window.window.key, now), last, bool(self.slide), reader)
        _begin(self.top, reader)
        seen = Instants(np.array([last]), np.array([position]), _NONE, bool(self.slide))
        rows = self.top.entering(seen)[0] if self.kept else _NONE
        steps = np.zeros(len(rows), np.int64)
        return Changes(rows, np.ones(len(rows), np.int8), steps, seen, rows, steps, np.arange(len(rows)))

    def _position(self, last: int) -> int:
        """The position of the first tuple that came after the last instant."""
        if not self.slide:
            return 1 << 61
        positions = [
            x.sequence.positions[rows[x.sequence.times[rows] > last]]
            for x in self.windows
            for rows in [x.sequence.order(x.sequence.first, x.sequence.end)]
        ]
        later = np.concatenate(positions)
        return int(later.min()) if len(later) else 0

    def advance(self, finals: Finals, reader: Reader) -> Changes:
        """Take what entered the sequences. The changes are those that instants see."""
        instants = self._instants(finals)
        self.top.advance(reader)
        if len(instants):
            self.last = int(instants.time[-1])
        if not self.kept:
            self.top.left(instants)
            return Changes(_NONE, _NO_SIGNS, _NONE, instants, _NONE, _NONE, _NONE)
        entering, enters = self.top.entering(instants)
        leaving, leaves = self.top.leaving(instants)
        if self.slide:
            entering, enters, leaving, leaves = self._seen(entering, enters, leaving, leaves)
        size = len(entering) + len(leaving)
        row, step, sign = np.empty(size, np.int64), np.empty(size, np.int64), np.empty(size, np.int8)
        entered = np.empty(len(entering), np.int64)
        interleaved(entering, enters, leaving, leaves, row, sign, step, entered)
        return Changes(row, sign, step, instants, entering, enters, entered)

    def _seen(self, entering: Ints, enters: Ints, leaving: Ints, leaves: Ints) -> tuple[Ints, Ints, Ints, Ints]:
        """Without the rows that leave before any instant sees them: at the instant at which they would enter."""
        if not len(entering) or not len(leaving) or enters[0] > leaves[-1]:
            return entering, enters, leaving, leaves
        leaves_at = self._leaves_at = grown(self._leaves_at, self.top.capacity, -1)
        leaves_at[leaving] = leaves
        stay = leaves_at[entering] != enters
        leaves_at[entering[~stay]] = -1
        go = leaves_at[leaving] >= 0
        leaves_at[leaving] = -1
        return entering[stay], enters[stay], leaving[go], leaves[go]

    def release(self) -> None:
        """Forget the rows that have left, after everything was computed from them."""
        self.top.release()

    def _instants(self, finals: Finals) -> Instants:
        if self.slide:
            return self._slides(finals)
        sequences = {id(x.sequence): x.sequence for x in self.windows}.values()
        if all(len(x.entered) == len(finals.tuples) for x in sequences):
            places = np.arange(len(finals.tuples))
        else:
            entered = np.zeros(len(finals.tuples), np.bool_)
            for x in sequences:
                entered[x.positions[x.entered] - finals.first] = True
            places = np.flatnonzero(entered)
        if len(places) == len(finals.tuples):
            return Instants(finals.times, places + (finals.first + 1), finals.tuples, slides=False)
        return Instants(finals.times[places], places + (finals.first + 1), finals.tuples[places], slides=False)

    def _slides(self, finals: Finals) -> Instants:
        found = []
        until = min(finals.until, LAST + 1)
        for x in self.windows:
            if x.window.slide:
                times = x.sequence.times[x.sequence.entered]
                ended = x.sequence.end - len(times)
                earlier = x.sequence.order(max(x.sequence.first, ended - 1), ended)
                covered = int(x.sequence.times[earlier[-1]]) + x.window.range if len(earlier) else NO_TIME
                since = finals.since if len(earlier) or not len(times) else max(finals.since, int(times[0]))
                if covered == NO_TIME and not len(times):
                    continue
                room = np.empty(1024, np.int64)
                while True:
                    count = slides_over(times, covered, x.window.range, x.window.slide, since, until, room)
                    few_rows(np.array([count]))
                    if count <= len(room):
                        break
                    charge(8 * count)
                    room = np.empty(count, np.int64)
                found.append(room[:count])
        at = distinct(np.concatenate(found)) if found else _NONE
        passed = finals.first + np.searchsorted(finals.times, at, side="right")
        return Instants(at, passed, _NONE, slides=True)


def _begin(rows: RowSet, reader: Reader) -> None:
    if isinstance(rows, JoinSet):
        for x in rows.inputs:
            _begin(x, reader)
        rows.begin(reader)
