"""Accumulators: what is kept of each group for one aggregate of SPEC.md, 4.1, while rows come and go.

Each takes the changes of a batch and returns a value for each emission. Sums are exact, so they do not depend on what
came and went before; those of tuples that are not kept are added as they are (`folding.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headgate.columns.sorting import Bools, Ints
from headgate.expressions.sql import arrow_type
from headgate.loops import sums
from headgate.loops.arrays import grown
from headgate.loops.arrow import from_numbers, is_text
from headgate.loops.counts import Counts
from headgate.loops.exact import DIGIT, Digits, ExactSums
from headgate.loops.heaps import GREATEST, LEAST, Heaps
from headgate.loops.keys import KeyCodes
from headgate.loops.store import ColumnStore
from headgate.model.budget import charge
from headgate.plan.expressions import INTEGERS, AggregateCall

if TYPE_CHECKING:
    from headgate.operators.block_rows import Changes
    from headgate.operators.grouping import Emissions

_NONE = np.empty(0, np.int64)
_ALL: Bools = np.empty(0, np.bool_)
_SAFE, _BIGINT = 1 << 62, 1 << 63
_VALUE = "value"


@dataclass(frozen=True)
class Amounts:
    """What some rows contribute to an aggregate, a row for each part of them.

    count: how many of them have a value
    sums: the sums that the aggregate is computed from
    """

    count: Ints
    sums: tuple[Digits, ...] = ()

    def __len__(self) -> int:
        return len(self.count)

    def at(self, rows: Ints) -> Amounts:
        return Amounts(self.count[rows], tuple(x.at(rows) for x in self.sums))

    def equals(self, other: Amounts) -> bool:
        """Whether they are the same, written in the same way."""
        return np.array_equal(self.count, other.count) and all(
            a.unit == b.unit and np.array_equal(a.digits, b.digits) for a, b in zip(self.sums, other.sums, strict=True)
        )

    @staticmethod
    def together(parts: Sequence[Amounts]) -> Amounts:
        """Amounts of several partitions of the same aggregate."""
        sums = tuple(Digits.together(some) for some in zip(*(x.sums for x in parts), strict=True))
        return Amounts(np.concatenate([x.count for x in parts]), sums)


def adds_up(call: AggregateCall) -> bool:
    """Whether rows contribute to an aggregate by amounts. For the others single rows count: the one with the least
    value, or one with each value."""
    return not call.distinct and call.function not in ("MIN", "MAX")


def accumulator(call: AggregateCall) -> Accumulator:
    whole = call.argument is not None and call.argument.type in INTEGERS
    match call.function:
        case "COUNT":
            return Count(call)
        case "MIN" | "MAX":
            return Extreme(call)
        case "STDDEV":
            return Deviation(call)
        case _:
            return WholeSum(call) if whole else DoubleSum(call)


class Accumulator:
    """`advance` takes the new rows with the values of the argument (None: COUNT(*)), and all changes with their
    groups."""

    def __init__(self, call: AggregateCall) -> None:
        self.call = call
        self._store: ColumnStore | None = None
        if call.argument is not None:
            self._store = ColumnStore(pa.schema([(_VALUE, arrow_type(call.argument.type))]))
        self._capacity = 0
        self._once = _Once(call) if call.distinct and call.function not in ("MIN", "MAX") else None

    def advance(
        self, changes: Changes, group: Ints, new: Ints, argument: pa.Array | None, found: Emissions, groups: int,
        capacity: int,
    ) -> pa.Array:  # fmt: skip
        if self._store is not None:
            self._store.put(new, {_VALUE: argument}, capacity=capacity)
        sign = changes.sign
        if self._once is not None:
            sign = self._once.counting(changes, group, new, argument, self._known(), capacity)
        self._capacity = capacity
        self._prepare(argument, groups)
        values = self._advance((changes.row, group, sign), (found.after, found.of))
        if self._store is not None and is_text(self._store.schema.field(_VALUE).type):
            self._store.drop(changes.row[changes.left])
        return values

    def amounts(self) -> Amounts:
        """What the rows of each group contribute. INVARIANT: the aggregate adds up, and so for `add`."""
        raise NotImplementedError

    def add(self, group: Ints, amounts: Amounts) -> None:
        """Add what rows contribute that are not kept. There is room for the groups."""
        raise NotImplementedError

    @property
    def keys(self) -> int:
        """How many values it knows, of rows that are there or were; 0 if it does not tell values apart."""
        return 0 if self._once is None else len(self._once)

    def _prepare(self, argument: pa.Array | None, groups: int) -> None:
        """Make room for these values and groups."""

    def _known(self) -> Bools:
        """Which rows have a value, by row; empty if all have."""
        valid = None if self._store is None else self._store.valid(_VALUE)
        return _ALL if valid is None else valid

    def _values(self) -> Any:
        assert self._store is not None  # noqa: S101  only COUNT(*) has no argument
        return self._store.numbers(_VALUE)

    def _advance(self, changes: tuple[Any, ...], found: tuple[Ints, Ints]) -> pa.Array:
        raise NotImplementedError


class _Once:
    """DISTINCT: each value of a group counts once."""

    def __init__(self, call: AggregateCall) -> None:
        assert call.argument is not None  # noqa: S101  COUNT(DISTINCT *) is not CQL
        self._codes = KeyCodes(arrow_type(call.argument.type))
        self._code = _NONE
        self._counts = Counts()

    def __len__(self) -> int:
        return len(self._codes)

    def counting(
        self, changes: Changes, group: Ints, new: Ints, argument: pa.Array | None, known: Bools, capacity: int
    ) -> Any:
        self._code = grown(self._code, capacity)
        if len(new):
            self._code[new] = self._codes.codes([argument], null_is_a_value=True)
        self._counts.reserve(len(new))
        sign = np.empty(len(changes.row), np.int8)
        counts = self._counts
        sums.first_and_last(
            changes.row, group, changes.sign, self._code, known, counts.table, counts.seed, counts.used, sign
        )
        return sign


class Count(Accumulator):
    def __init__(self, call: AggregateCall) -> None:
        super().__init__(call)
        self._count = _NONE

    def _prepare(self, argument: pa.Array | None, groups: int) -> None:  # noqa: ARG002
        self._count = grown(self._count, groups)

    def _advance(self, changes: tuple[Any, ...], found: tuple[Ints, Ints]) -> pa.Array:
        counts = np.empty(len(found[0]), np.int64)
        sums.counted(*changes, self._known(), *found, self._count, counts)
        return pa.array(counts, pa.int64())

    def amounts(self) -> Amounts:
        return Amounts(self._count.copy())

    def add(self, group: Ints, amounts: Amounts) -> None:
        np.add.at(self._count, group, amounts.count)


class WholeSum(Accumulator):
    """SUM and AVG of whole numbers."""

    def __init__(self, call: AggregateCall) -> None:
        super().__init__(call)
        self._count = self._high = self._low = _NONE

    def _prepare(self, argument: pa.Array | None, groups: int) -> None:  # noqa: ARG002
        self._count, self._high, self._low = (grown(x, groups) for x in (self._count, self._high, self._low))

    def _advance(self, changes: tuple[Any, ...], found: tuple[Ints, Ints]) -> pa.Array:
        if self.call.function == "SUM":
            return self._sums(changes, found)
        return self._means(changes, found)

    def _kept(self) -> tuple[Ints, Ints, Ints]:
        return self._count, self._high, self._low

    def _sums(self, changes: tuple[Any, ...], found: tuple[Ints, Ints]) -> pa.Array:
        count, high, low = (np.empty(len(found[0]), np.int64) for _ in range(3))
        sums.whole_sums(*changes, self._values(), self._known(), *found, *self._kept(), count, high, low)
        return _whole(high, low, count == 0)

    def _means(self, changes: tuple[Any, ...], found: tuple[Ints, Ints]) -> pa.Array:
        size = len(found[0])
        means, (count, great, high, low) = np.empty(size), (np.empty(size, np.int64) for _ in range(4))
        missing, many = sums.whole_means(
            *changes, self._values(), self._known(), *found, *self._kept(), means, count, great, high, low
        )
        if many:
            at, total = great[:many], high[:many].astype(np.longdouble) * 2.0**32 + low[:many]
            means[at] = np.asarray(total / count[at], np.float64)
        return _doubles(means, count == 0) if missing or many else from_numbers(pa.float64(), means, None)

    def amounts(self) -> Amounts:
        low, high = self._low & DIGIT, self._high + (self._low >> 32)
        return Amounts(self._count.copy(), (Digits(np.column_stack([low, high])),))

    def add(self, group: Ints, amounts: Amounts) -> None:
        low, high = amounts.sums[0].digits.T
        for kept, more in zip(self._kept(), (amounts.count, high, low), strict=True):
            np.add.at(kept, group, more)


class DoubleSum(Accumulator):
    """SUM and AVG of doubles."""

    def __init__(self, call: AggregateCall) -> None:
        super().__init__(call)
        self._sums = ExactSums()
        self._count = _NONE

    def _prepare(self, argument: pa.Array | None, groups: int) -> None:
        self._sums.cover(_as_doubles(argument))
        self._sums.grow(groups)
        self._count = grown(self._count, groups)

    def _advance(self, changes: tuple[Any, ...], found: tuple[Ints, Ints]) -> pa.Array:
        values, counts = np.zeros(len(found[0])), np.empty(len(found[0]), np.int64)
        kind = sums.MEAN if self.call.function == "AVG" else sums.SUM
        sums.double_sums(
            kind, *changes, self._values(), self._known(), *found, self._sums.limbs, self._sums.low, self._count,
            values, counts,
        )  # fmt: skip
        return _doubles(values, counts == 0)

    def amounts(self) -> Amounts:
        return Amounts(self._count.copy(), (self._sums.digits(),))

    def add(self, group: Ints, amounts: Amounts) -> None:
        np.add.at(self._count, group, amounts.count)
        self._sums.add(group, amounts.sums[0])


class Deviation(Accumulator):
    """STDDEV: the sample standard deviation."""

    def __init__(self, call: AggregateCall) -> None:
        super().__init__(call)
        self._sums, self._squares = ExactSums(), ExactSums(squares=True)
        self._count = _NONE

    def _prepare(self, argument: pa.Array | None, groups: int) -> None:
        given = _as_doubles(argument)
        for kept in (self._sums, self._squares):
            kept.cover(given)
            kept.grow(groups)
        self._count = grown(self._count, groups)

    def _advance(self, changes: tuple[Any, ...], found: tuple[Ints, Ints]) -> pa.Array:
        values, counts = np.zeros(len(found[0])), np.empty(len(found[0]), np.int64)
        sums.deviations(
            *changes, self._values(), self._known(), *found, self._sums.limbs, self._sums.low, self._squares.limbs,
            self._squares.low, self._count, values, counts,
        )  # fmt: skip
        return _doubles(values, counts < 2)

    def amounts(self) -> Amounts:
        return Amounts(self._count.copy(), (self._sums.digits(), self._squares.digits()))

    def add(self, group: Ints, amounts: Amounts) -> None:
        np.add.at(self._count, group, amounts.count)
        for kept, more in zip((self._sums, self._squares), amounts.sums, strict=True):
            kept.add(group, more)


class Extreme(Accumulator):
    """MIN and MAX."""

    def __init__(self, call: AggregateCall) -> None:
        super().__init__(call)
        self._heaps = Heaps()

    def _prepare(self, argument: pa.Array | None, groups: int) -> None:  # noqa: ARG002
        self._heaps.grow(groups, self._capacity)

    def _advance(self, changes: tuple[Any, ...], found: tuple[Ints, Ints]) -> pa.Array:
        assert self._store is not None  # noqa: S101  MIN and MAX have an argument
        heaps, rows = self._heaps, np.empty(len(found[0]), np.int64)
        order = LEAST if self.call.function == "MIN" else GREATEST
        sums.extremes(
            order, *changes, self._keys(), self._known(), *found, heaps.root, heaps.child, heaps.following,
            heaps.previous, rows,
        )  # fmt: skip
        missing = rows < 0
        if is_text(self._store.schema.field(_VALUE).type):
            charge(int(self._store.lengths(_VALUE, rows[~missing]).sum()))
        found_values = self._store.take(_VALUE, np.where(missing, 0, rows))
        if not missing.any():
            return found_values
        return pc.if_else(pa.array(~missing), found_values, pa.scalar(None, found_values.type))

    @property
    def rows(self) -> Ints:
        """The row that has the value, by group; -1 if none has."""
        return self._heaps.root.astype(np.int64)

    def _keys(self) -> Any:
        assert self._store is not None  # noqa: S101
        if is_text(self._store.schema.field(_VALUE).type):
            texts = self._store.texts(_VALUE)
            return texts.begin, texts.length, texts.heap
        return self._store.numbers(_VALUE)


def _as_doubles(array: pa.Array | None) -> Any:
    assert array is not None  # noqa: S101  sums have an argument
    return array.cast(pa.float64()).drop_null().to_numpy(zero_copy_only=False)


def _doubles(values: Any, missing: Bools) -> pa.Array:
    plain = np.asarray(values, np.float64)
    return pa.array(plain, pa.float64(), mask=missing | ~np.isfinite(plain))


def _whole(high: Ints, low: Ints, missing: Bools) -> pa.Array:
    """high * 2^32 + low, NULL where that is not a BIGINT."""
    fits = np.abs(high.astype(np.float64)) * 2.0**32 + low.astype(np.float64) < _SAFE
    for place in np.flatnonzero(~fits):
        fits[place] = -_BIGINT <= (int(high[place]) << 32) + int(low[place]) < _BIGINT
    return pa.array((high << 32) + low, pa.int64(), mask=missing | ~fits)
