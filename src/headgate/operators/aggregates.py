"""The aggregates of SPEC.md, 4.1, computed for all points (groups at instants) at once."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headgate.columns.factorize import NULL_CODE, ranks
from headgate.columns.sorting import Bools, Ints
from headgate.expressions.limits import taken
from headgate.model.budget import charge
from headgate.operators.groups import Parts, Points
from headgate.plan.expressions import AggregateCall, Expr

_SAFE = 1 << 62
_BIGINT = 1 << 63
_EXACT = 1 << 53
_FEW = 1 << 10


class Aggregates:
    """`value_of` returns the argument's value for each row. Values that several aggregates need are computed once."""

    def __init__(self, points: Points, value_of: Callable[[Expr], pa.Array]) -> None:
        self._points = points
        self._value_of = value_of
        self._counts: dict[Expr, Ints] = {}

    @cached_property
    def _sizes(self) -> Ints:
        return self._points.high - self._points.low

    def of(self, call: AggregateCall) -> pa.Array:
        charge(8 * len(self._points))
        if call.argument is None:
            return pa.array(self._sizes, pa.int64())
        values = self._value_of(call.argument)
        if call.distinct:
            return self._distinct(call, values)
        match call.function:
            case "COUNT":
                return pa.array(self._count(call.argument, values), pa.int64())
            case "MIN" | "MAX":
                return self._extreme(call, values)
            case _:
                return self._number(call, values)

    def _count(self, argument: Expr, values: pa.Array) -> Ints:
        if argument not in self._counts:
            self._counts[argument] = (
                self._points.sums(_known(values).astype(np.int64)) if values.null_count else self._sizes
            )
        return self._counts[argument]

    def _extreme(self, call: AggregateCall, values: pa.Array) -> pa.Array:
        fold = np.minimum if call.function == "MIN" else np.maximum
        if pa.types.is_integer(values.type) and not values.null_count:
            return pa.array(self._points.folded(values.to_numpy(), fold), values.type)
        places, ordered = ranks(values)
        if call.function == "MIN":
            places = np.where(places == NULL_CODE, len(ordered), places)
        found = self._points.folded(places, fold)
        missing = (found == NULL_CODE) | (found == len(ordered))
        return taken(ordered, np.where(missing, 0, found), mask=missing)

    def _number(self, call: AggregateCall, values: pa.Array) -> pa.Array:
        """SUM, AVG and STDDEV. Whole numbers are summed exactly, in two halves, because their sum may not fit a
        BIGINT."""
        argument = call.argument
        if argument is None:
            raise ValueError(f"{call} has no argument")
        count, known = self._count(argument, values), _known(values)
        whole = pa.types.is_integer(values.type)
        numbers = (values.fill_null(0) if values.null_count else values).to_numpy(zero_copy_only=False)
        with np.errstate(all="ignore"):
            if call.function == "STDDEV":
                return _doubles(self._deviation(numbers.astype(np.float64), known), count < 2)
            if whole:
                wide = numbers.astype(np.int64)
                if _small(wide):
                    return self._small_number(call, self._points.sums(wide), count)
                high, low = self._points.sums(wide >> 32), self._points.sums(wide & 0xFFFFFFFF)
                if call.function == "SUM":
                    return _whole(high, low, count == 0)
                total = high.astype(np.longdouble) * 2.0**32 + low
            else:
                total = self._points.combined((numbers.astype(np.float64),), _added, (0.0,))[0]
            return _doubles(total / count if call.function == "AVG" else total, count == 0)

    def _small_number(self, call: AggregateCall, total: Ints, count: Ints) -> pa.Array:
        """SUM and AVG of whole numbers whose sums surely fit. If counts and sums are small, a double holds both
        exactly, so the quotient is rounded once and needs no long double."""
        if call.function == "SUM":
            return pa.array(total, pa.int64(), mask=count == 0)
        few = count.max(initial=0) < _FEW and (np.abs(total) < _EXACT).all()
        return _doubles((total if few else total.astype(np.longdouble)) / count, count == 0)

    def _deviation(self, numbers: npt.NDArray[np.float64], known: Bools) -> npt.NDArray[np.float64]:
        """From counts, means and squared distances of pieces, by the formula of Chan, Golub and LeVeque."""
        parts = (known.astype(np.float64), numbers, np.zeros(len(numbers)))
        count, _, squares = self._points.combined(parts, _joined, (0.0, 0.0, 0.0))
        return np.sqrt(squares / (count - 1))

    def _distinct(self, call: AggregateCall, values: pa.Array) -> pa.Array:
        """Aggregate each value of a point once: of equal values at a point only the first row stays."""
        places, _ = ranks(values)
        point, row = self._points.members()
        seen = places[row] != NULL_CODE
        point, row = point[seen], row[seen]
        _, first = np.unique(point * np.int64(len(values) + 1) + places[row], return_index=True)
        point, row = point[first], row[first]
        high = np.searchsorted(point, np.arange(len(self._points)), side="right")
        low = np.searchsorted(point, np.arange(len(self._points)), side="left")
        once = Points(self._points.group, self._points.instant, row, low, high)
        plain = AggregateCall(call.function, call.argument, False, call.result)
        if call.function in ("MIN", "MAX"):
            return self.of(plain)
        return Aggregates(once, self._value_of).of(plain)


def _added(a: Parts, b: Parts) -> Parts:
    return (a[0] + b[0],)


def _joined(a: Parts, b: Parts) -> Parts:
    count = a[0] + b[0]
    share = np.divide(b[0], count, out=np.zeros(len(count)), where=count > 0)
    apart = b[1] - a[1]
    return count, a[1] + apart * share, a[2] + b[2] + apart * apart * a[0] * share


def _doubles(values: object, missing: Bools) -> pa.Array:
    plain = np.asarray(values, np.float64)
    return pa.array(plain, pa.float64(), mask=missing | ~np.isfinite(plain))


def _whole(high: Ints, low: Ints, missing: Bools) -> pa.Array:
    """high * 2^32 + low, NULL where that is not a BIGINT."""
    fits = np.abs(high.astype(np.float64)) * 2.0**32 + low.astype(np.float64) < _SAFE
    for place in np.flatnonzero(~fits):
        fits[place] = -_BIGINT <= (int(high[place]) << 32) + int(low[place]) < _BIGINT
    return pa.array((high << 32) + low, pa.int64(), mask=missing | ~fits)


def _small(numbers: Ints) -> bool:
    """Whether the sum of any subset of the numbers surely fits."""
    if not len(numbers):
        return True
    return max(-int(numbers.min()), int(numbers.max())) * len(numbers) < _SAFE


def _known(values: pa.Array) -> Bools:
    return np.asarray(values.is_valid().to_numpy(zero_copy_only=False), np.bool_)
