"""Joins: combinations of a row of each of two sets that meet the conditions and are there at the same time.

Both sets keep their rows in chains by key, from batch to batch, so a new row finds the rows of the other set that have
its key. A join of more than two sources is a join of a join. Where rows must be remembered (aggregates, DISTINCT,
DSTREAM, sliding windows, a further join), each row is listed with the two rows that it is made of, and leaves with the
first of them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from headgate.columns.sorting import Bools, Ints
from headgate.expressions.limits import few_rows
from headgate.expressions.sql import arrow_type
from headgate.loops.arrays import grown
from headgate.loops.joins import (
    CHAIN,
    LINKS,
    UNLINKED,
    Side,
    link_rows,
    list_rows,
    meetings,
    rows_made_of,
    unlink,
    unlist_rows,
)
from headgate.loops.keys import KeyCodes
from headgate.loops.slots import SlotPool
from headgate.loops.windows import pairs_ascend
from headgate.model.budget import charge
from headgate.operators.partitioned_set import PartitionedSet
from headgate.operators.program import TIME
from headgate.operators.rowsets import NEVER, Instants, RowSet
from headgate.operators.sequence import Narrow
from headgate.operators.visible import Reader
from headgate.operators.window_set import WindowSet
from headgate.plan.expressions import Compare, Expr, Type, wider

_NONE = np.empty(0, np.int64)
_ROOM = 1024


@dataclass(frozen=True)
class Matching:
    """The conditions of a join with its source `number`: pairs of equal expressions, one over the earlier sources and
    one over this one; and all other conditions. `streams` are those of all sources up to this one."""

    number: int
    equal: tuple[tuple[Expr, Expr], ...]
    others: frozenset[Expr]
    streams: tuple[str, ...]

    @classmethod
    def of(cls, number: int, conditions: frozenset[Expr], streams: tuple[str, ...]) -> Matching:
        found = {condition: pair for condition in conditions if (pair := _equal(condition, number))}
        return cls(
            number, tuple(found[x] for x in sorted(found, key=str)), conditions - found.keys(), streams[: number + 1]
        )


def _equal(condition: Expr, number: int) -> tuple[Expr, Expr] | None:
    if not isinstance(condition, Compare) or condition.operator != "=":
        return None
    for left, right in ((condition.left, condition.right), (condition.right, condition.left)):
        if right.inputs == {number} and left.inputs and max(left.inputs) < number and _common(left, right):
            return left, right
    return None


def _common(left: Expr, right: Expr) -> Type | None:
    """The type as which two values are compared; None if only the expression itself can tell."""
    return left.type if left.type == right.type else wider(left.type, right.type)


class _Chains:
    """The rows of one set by key."""

    def __init__(self) -> None:
        self.head, self.behind = np.empty(0, np.int32), _NONE
        self.links = np.empty((0, LINKS), np.int64)

    def grow(self, keys: int, rows: int, fifo: bool) -> None:
        self.head = grown(self.head, keys, -1)
        self.links = grown(self.links, rows)  # of rows that came; the caller sets their keys
        self.behind = grown(self.behind, 1 if fifo else rows)


class _Lists:
    """The rows of the join by the row of one set that they are made of."""

    def __init__(self) -> None:
        self.part = self.head = self.following = self.preceding = _NONE

    def grow(self, parts: int, rows: int) -> None:
        self.head = grown(self.head, parts, -1)
        self.part = grown(self.part, rows)
        self.following, self.preceding = grown(self.following, rows), grown(self.preceding, rows)


class JoinSet:
    """kept: whether its rows are remembered; else they are only there with the batch that brings them (`pairs`)
    order: the sources whose tuples rows are ordered by, in this order
    step: the name of its step
    """

    fifo = False
    step = ""

    def __init__(
        self, left: RowSet, right: RowSet, matching: Matching, *, kept: bool, order: tuple[int, ...] | None = None
    ) -> None:
        self.inputs = (left, right)
        self._matching = matching
        self._kept = kept
        types = [_common(a, b) for a, b in matching.equal]
        self._types = [arrow_type(x) for x in types if x is not None]
        self._codes = KeyCodes(*self._types) if self._types else None
        self._chains = (_Chains(), _Chains())
        self._lists = (_Lists(), _Lists())
        self._pool = SlotPool()
        self.entered = self.new = self.displaced = self.came = self.until = self.gone = _NONE
        self._unseen = self._left = _NONE
        self._marked: Bools = np.zeros(0, np.bool_)
        self._there: Bools = np.zeros(0, np.bool_)
        sources = len(left.sides(_NONE)) + len(right.sides(_NONE))
        self._order = list(order or range(sources))
        self._kinds, self._orders = np.zeros((0, sources), np.int32), np.zeros((0, sources), np.int64)
        self.pairs: tuple[Ints, Ints, Ints] = (_NONE, _NONE, _NONE)
        """Rows of the left, rows of the right, and the positions at which they met."""

    @property
    def capacity(self) -> int:
        return self._pool.capacity

    @property
    def rows(self) -> int:
        """How many rows it remembers, with those of the joins that it is made of."""
        return self._pool.used + sum(x.rows for x in self.inputs if isinstance(x, JoinSet))

    @property
    def keys(self) -> int:
        """How many keys it knows, of rows that are there or were; or a join that it is made of, if that knows more."""
        own = 0 if self._codes is None else len(self._codes)
        return max(own, *(x.keys if isinstance(x, JoinSet) else 0 for x in self.inputs))

    def windows(self) -> list[WindowSet | PartitionedSet]:
        return [window for x in self.inputs for window in x.windows()]

    def sides(self, rows: Ints) -> tuple[Ints, ...]:
        return self.combined(self._lists[0].part[rows], self._lists[1].part[rows])

    def combined(self, left: Ints, right: Ints) -> tuple[Ints, ...]:
        """The tuples of combinations of these rows."""
        return (*self.inputs[0].sides(left), *self.inputs[1].sides(right))

    def positions(self, left: Ints, right: Ints) -> Ints:
        """What combinations of these rows are ordered by, as [row, side]."""
        parts = [x.orders()[rows] for x, rows in zip(self.inputs, (left, right), strict=True)]
        return np.hstack(parts)[:, self._order]

    def is_in_order(self, step: Ints) -> bool:
        """Whether it is plain that its pairs, which are new at these steps, are in the order of results: mostly so if
        both inputs are windows, in the order of the block's sources."""
        left, right, _ = self.pairs
        if any(isinstance(x, JoinSet) for x in self.inputs) or self._order != [0, 1]:
            return False
        one, other = self.inputs
        return bool(pairs_ascend(step, left, one.came, right, other.came))

    def kinds(self) -> Narrow:
        return self._kinds

    def orders(self) -> Ints:
        return self._orders

    def until_of(self, rows: Ints) -> Ints:
        return self.until[rows]

    # What a batch brings ----------------------------------------------------------------------------------------------

    def begin(self, reader: Reader) -> None:
        """Combine the rows that both sets begin with. If combinations are not remembered, nobody asks for them."""
        if self._kept:
            self._combine(reader)
        else:
            for side in self._sides(reader):
                link_rows(side)

    def advance(self, reader: Reader) -> None:
        with reader.profile.running(self.step) as step:
            for x in self.inputs:
                x.advance(reader)
            self._displace()
            self._combine(reader)
            step.count(sum(len(x.new) for x in self.inputs), len(self.pairs[0]))
            step.held = self._pool.used

    def _displace(self) -> None:
        """What displaces a row of either set displaces the rows made of it."""
        found = []
        for x, lists in zip(self.inputs, self._lists, strict=True):
            if self._kept and len(x.displaced):
                lists.grow(x.capacity, self.capacity)
                rows = self._made_of(x.displaced, lists)
                self._marked[rows] = False
                self.gone[rows] = np.minimum(self.gone[rows], x.gone[lists.part[rows]])
                found.append(rows)
        self.displaced = np.unique(np.concatenate(found)) if found else _NONE

    def _made_of(self, parts: Ints, lists: _Lists) -> Ints:
        """The rows made of these rows that are not marked; they are marked then."""
        found = np.empty(max(len(parts), _ROOM), np.int64)
        while (count := rows_made_of(parts, lists.head, lists.following, self._marked, found)) > len(found):
            found = np.empty(count, np.int64)
        return found[:count]

    def _combine(self, reader: Reader) -> None:
        left, right, at = self._met(reader)
        if self._matching.others and len(left):
            sides = self.combined(left, right)
            met = reader.meets(self._matching.streams, sides, self._matching.others)
            left, right, at = left[met], right[met], at[met]
        self.pairs = left, right, at
        if self._kept:
            self._keep(left, right, at)

    def _sides(self, reader: Reader) -> list[Side]:
        """What both sets bring, with their chains."""
        keys = [self._keys(number, reader) for number in range(2)]
        size = 1 if self._codes is None else len(self._codes)
        sides = list[Side]()
        for x, chains, own in zip(self.inputs, self._chains, keys, strict=True):
            chains.grow(size, x.capacity, x.fifo)
            chains.links[x.entered, CHAIN] = UNLINKED  # a slot that is used again is in no chain yet
            came = x.new, own, _times(x, reader), x.until_of(x.new), x.came, x.gone
            sides.append(Side(*came, chains.head, chains.links, chains.behind, x.fifo))
        return sides

    def _met(self, reader: Reader) -> tuple[Ints, Ints, Ints]:
        sides = self._sides(reader)
        found, progress = list[tuple[Ints, Ints, Ints]](), np.zeros(3, np.int64)
        room = max(_ROOM, 2 * sum(len(side.rows) for side in sides))
        while True:
            left, right, at = (np.empty(room, np.int64) for _ in range(3))
            count = meetings(*sides, progress, left, right, at)
            end = count if count >= 0 else -1 - count
            found.append((left[:end], right[:end], at[:end]))
            charge(24 * end)
            few_rows(np.array([len(x) for x, _, _ in found]))
            if count >= 0:
                return tuple(np.concatenate(parts) for parts in zip(*found, strict=True))  # type: ignore[return-value]
            room = max(2 * room, int(progress[2]))

    def _keys(self, number: int, reader: Reader) -> Ints:
        """The key of each new row of one set; -1 if it equals none."""
        x = self.inputs[number]
        if self._codes is None:
            return np.zeros(len(x.new), np.int64)
        if not len(x.new):
            return _NONE
        matching = self._matching
        sides, exprs = x.sides(x.new), [pair[number] for pair in matching.equal]
        if number:
            sides = (*(_NONE for _ in range(matching.number)), *sides)
        values = reader.values(matching.streams, sides, exprs, many=False)
        columns = reader.evaluate(exprs, values, len(x.new))
        return self._codes.codes(
            [column.cast(type_) for column, type_ in zip(columns, self._types, strict=True)], null_is_a_value=False
        )

    def _keep(self, left: Ints, right: Ints, at: Ints) -> None:
        order = np.argsort(at, kind="stable")
        rows = self.entered = self.new = self._pool.take(len(left))
        size = self.capacity
        self.came, self.until, self.gone = (grown(x, size) for x in (self.came, self.until, self.gone))
        self._marked, self._there = grown(self._marked, size), grown(self._there, size)
        self._kinds, self._orders = grown(self._kinds, size), grown(self._orders, size)
        both = left[order], right[order]
        self._kinds[rows] = np.hstack([x.kinds()[parts] for x, parts in zip(self.inputs, both, strict=True)])
        self._orders[rows] = self.positions(*both)
        self.came[rows], self._there[rows] = at[order], True
        self.until[rows], self.gone[rows] = NEVER, NEVER
        for x, lists, parts in zip(self.inputs, self._lists, both, strict=True):
            lists.grow(x.capacity, size)
            lists.head[x.entered] = -1
            lists.part[rows] = parts
            list_rows(rows, parts, lists.head, lists.following, lists.preceding)
            self.until[rows] = np.minimum(self.until[rows], x.until_of(parts))
            if len(x.gone):
                self.gone[rows] = np.minimum(self.gone[rows], x.gone[parts])
        self._unseen = np.concatenate([self._unseen, rows])

    # What instants see ------------------------------------------------------------------------------------------------

    def entering(self, instants: Instants) -> tuple[Ints, Ints]:
        passed = int(instants.passed[-1]) if len(instants) else -NEVER
        there = self.came[self._unseen] < passed
        rows, self._unseen = self._unseen[there], self._unseen[~there]
        return rows, instants.enter(self.came[rows])

    def leaving(self, instants: Instants) -> tuple[Ints, Ints]:
        rows = self.left(instants)
        steps = instants.leave(self.until[rows], self.gone[rows])
        order = np.argsort(steps, kind="stable")
        return rows[order], steps[order]

    def left(self, instants: Instants) -> Ints:
        found = []
        for x, chains, lists in zip(self.inputs, self._chains, self._lists, strict=True):
            parts = x.left(instants)
            if not x.fifo and len(parts):
                unlink(parts, chains.head, chains.links, chains.behind)
            if self._kept and len(parts):
                lists.grow(x.capacity, self.capacity)
                found.append(self._made_of(parts, lists))
        self._left = np.concatenate(found) if found else _NONE
        return self._left

    def release(self) -> None:
        rows = self._left
        if len(rows):
            for lists in self._lists:
                unlist_rows(rows, lists.part[rows], lists.head, lists.following, lists.preceding)
            self._marked[rows] = self._there[rows] = False
            self._unseen = self._unseen[self._there[self._unseen]]
            self._pool.give(rows)
            self._left = _NONE
        for x in self.inputs:
            x.release()


def _times(rows: RowSet, reader: Reader) -> Ints:
    """The time at which each new row came: that of the latest of its tuples."""
    if isinstance(rows, WindowSet):
        return rows.sequence.times[rows.new]
    times = reader.tuples.numbers(TIME)
    sides = rows.sides(rows.new)
    return np.maximum.reduce([times[side] for side in sides]) if len(rows.new) else _NONE
