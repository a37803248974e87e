"""The rows of a block: what its windows hold and its joins combine, and how that changes from instant to instant.

Blocks over the same windows and joins share them, whatever they select or aggregate.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from headgate.columns.sorting import Ints, distinct
from headgate.expressions.limits import few_rows
from headgate.expressions.sql.forms import LAST_MICROSECOND
from headgate.loops.windows import interleaved, slides_over
from headgate.model.budget import charge
from headgate.model.times import NO_TIME
from headgate.operators.join import JoinSet, Matching
from headgate.operators.join_order import joining_order
from headgate.operators.reading import stream_of, streams_of
from headgate.operators.rowsets import Instants, PartitionedSet, RowSet, TableSet, WindowSet
from headgate.operators.sequence import Sequence
from headgate.operators.visible import Reader
from headgate.plan import nodes as n
from headgate.plan.expressions import Expr

LAST = LAST_MICROSECOND // 1000
"""The last time that can be written down, in milliseconds."""
_NONE = np.empty(0, np.int64)
_NO_SIGNS = np.empty(0, np.int8)


@dataclass(frozen=True)
class Finals:
    """The tuples of a view group that become final with a batch, in order, by their slots in the store; `first` is the
    position of the first of them, `since` and `until` are the bounds of the times that become final."""

    tuples: Ints
    times: Ints
    first: int
    since: int
    until: int


@dataclass(frozen=True)
class Changes:
    """The rows of a block that enter (sign 1) and leave (sign -1), in order, with the number of the instant."""

    row: Ints
    sign: np.ndarray[tuple[int], np.dtype[np.int8]]
    step: Ints
    instants: Instants

    @cached_property
    def entered(self) -> Ints:
        """The positions of the changes that enter."""
        return np.flatnonzero(self.sign > 0)

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
            return PartitionedSet(window, stream, conditions, sequences[name])
        return WindowSet(window, stream, conditions, sequences[window.input.key], joined=joined)

    @property
    def windows(self) -> list[WindowSet | PartitionedSet]:
        return self.top.windows()

    @property
    def held(self) -> int:
        """How many tuples its windows hold, and how many it sees of tables; a window that is read twice counts once."""
        return sum({x.window.key: x.held for x in self.windows}.values()) + sum(self._tables.values())

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
        step, keys = instants.enter(at), top.positions(left, right)
        order = np.lexsort((*(keys[:, x] for x in reversed(range(keys.shape[1]))), step))
        return self._arranged(top.combined(left[order], right[order])), step[order]

    # Batches ----------------------------------------------------------------------------------------------------------

    def begin(self, held: Mapping[str, Ints], before: Mapping[str, Ints], last: int, reader: Reader) -> Changes:
        """Continue with what windows held, at the last instant (`before`) and now, by the window's key."""
        self.last = last
        for window in self.windows:
            now = held.get(window.window.key, _NONE)
            window.begin(now, before.get(window.window.key, now), last, bool(self.slide), reader)
        _begin(self.top, reader)
        seen = Instants(np.array([last]), np.array([self._position(last)]), _NONE, bool(self.slide))
        rows = self.top.entering(seen)[0] if self.kept else _NONE
        return Changes(rows, np.ones(len(rows), np.int8), np.zeros(len(rows), np.int64), seen)

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
            self.top.leaving(instants)
            return Changes(_NONE, _NO_SIGNS, _NONE, instants)
        entering, enters = self.top.entering(instants)
        leaving, leaves = self.top.leaving(instants)
        if self.slide:
            entering, enters, leaving, leaves = _seen(entering, enters, leaving, leaves)
        size = len(entering) + len(leaving)
        row, step, sign = np.empty(size, np.int64), np.empty(size, np.int64), np.empty(size, np.int8)
        interleaved(entering, enters, leaving, leaves, row, sign, step)
        return Changes(row, sign, step, instants)

    def release(self) -> None:
        """Forget the rows that have left, after everything was computed from them."""
        self.top.release()

    def _instants(self, finals: Finals) -> Instants:
        if self.slide:
            return self._slides(finals)
        rows = [(x.sequence.positions[x.sequence.entered], x.sequence.tuples[x.sequence.entered]) for x in self.windows]
        if len(rows) == 1:
            ((positions, tuples),) = rows
        else:
            positions, first = np.unique(np.concatenate([x for x, _ in rows]), return_index=True)
            tuples = np.concatenate([x for _, x in rows])[first]
        return Instants(finals.times[positions - finals.first], positions + 1, tuples, slides=False)

    def _slides(self, finals: Finals) -> Instants:
        found = []
        until = min(finals.until, LAST + 1)
        for x in self.windows:
            if x.window.slide:
                times = x.sequence.times[x.sequence.entered]
                earlier = x.sequence.order(x.sequence.first, x.sequence.end - len(times))
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


def _seen(entering: Ints, enters: Ints, leaving: Ints, leaves: Ints) -> tuple[Ints, Ints, Ints, Ints]:
    """Without the rows that leave before any instant sees them."""
    unseen = np.intersect1d(entering[enters >= 0], leaving)
    if not len(unseen):
        return entering, enters, leaving, leaves
    gone = dict(zip(leaving.tolist(), leaves.tolist(), strict=True))
    never = [row for row, step in zip(entering.tolist(), enters.tolist(), strict=True) if gone.get(row, -1) == step]
    stay, go = ~np.isin(entering, never), ~np.isin(leaving, never)
    return entering[stay], enters[stay], leaving[go], leaves[go]
