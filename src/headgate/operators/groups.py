"""Groups of rows with validity intervals, aggregated at all instants at once.

A *point* is a group at an instant. Where the rows of a group leave in the order in which they entered, the rows of a
point are contiguous, and sums, extremes and label sets come from prefix sums and from tables of powers of two (sparse
tables). Otherwise every row is copied to each point at which it is there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from headgate.columns.sorting import Bools, Ints, Positions, distinct, rising, stable_order
from headgate.operators.instants import Instants, ValidityIntervals, spread

Array = npt.NDArray[Any]
Parts = tuple[npt.NDArray[np.float64], ...]


@dataclass(frozen=True)
class Points:
    """Points, ordered by group and then instant, with the rows of each.

    `rows` are row numbers; the rows of point i are rows[low[i]:high[i]].
    """

    group: Ints
    instant: Ints
    rows: Ints
    low: Ints
    high: Ints

    def __len__(self) -> int:
        return len(self.group)

    @cached_property
    def longest(self) -> int:
        return int((self.high - self.low).max(initial=0))

    def sums(self, values: Ints) -> Ints:
        """The sum, for each point, of one whole number for each row."""
        total = np.zeros(len(self.rows) + 1, np.int64)
        np.cumsum(values[self.rows], out=total[1:])
        return np.subtract(total[self.high], total[self.low])

    def combined(self, values: Parts, combine: Callable[[Parts, Parts], Parts], nothing: tuple[float, ...]) -> Parts:
        """Combine the values of each point by an operation that sees every value once and never subtracts: differences
        of long sums would lose small values. Rows are combined in pieces whose lengths are powers of two."""
        tables = tuple(column[self.rows] for column in values)
        found = tuple(np.full(len(self), start) for start in nothing)
        place, lengths, width = self.low.copy(), self.high - self.low, 1
        while width <= self.longest:
            chosen = np.flatnonzero(lengths & width)
            pieces = tuple(table[place[chosen]] for table in tables)
            for column, part in zip(found, combine(tuple(x[chosen] for x in found), pieces), strict=True):
                column[chosen] = part
            place[chosen] += width
            if 2 * width <= self.longest:
                tables = combine(tuple(x[:-width] for x in tables), tuple(x[width:] for x in tables))
            width *= 2
        return found

    def folded(self, values: Array, fold: Callable[[Array, Array], Array]) -> Array:
        """Combine the values of each point by an operation that may see a value twice: minimum, maximum, bitwise or.

        INVARIANT: every point has at least one row.
        """
        table = values[self.rows]
        result = np.empty(len(self), table.dtype)
        width = 1
        while width <= self.longest:
            chosen = self._as_wide_as(width)
            if len(chosen) == len(self):
                return fold(table[self.low], table[self.high - width])
            result[chosen] = fold(table[self.low[chosen]], table[self.high[chosen] - width])
            table = fold(table[:-width], table[width:]) if 2 * width <= self.longest else table
            width *= 2
        return result

    def _as_wide_as(self, width: int) -> Ints:
        """The points with at least `width` and fewer than twice `width` rows."""
        lengths = self.high - self.low
        return np.flatnonzero((lengths >= width) & (lengths < 2 * width))

    def at(self, chosen: Ints) -> Points:
        """Some of the points, in any order; `rows` stays as it is."""
        return Points(self.group[chosen], self.instant[chosen], self.rows, self.low[chosen], self.high[chosen])

    def members(self) -> tuple[Ints, Ints]:
        """Point and row numbers of all rows of all points."""
        point, place = spread(self.low, self.high)
        return point, self.rows[place]


def points(groups: Ints, lives: ValidityIntervals, instants: Instants, *, every: bool) -> Points:
    """The points at which a group gained a row, or, with `every`, all points at which it has any row."""
    there = np.flatnonzero(lives.seen)
    groups, first, gone = groups[there], lives.first[there], lives.gone[there]
    size = np.int64(len(instants) + 1)
    order = stable_order(groups) if rising(first) else np.lexsort((first, groups))
    starts = groups[order] * size + first[order]
    ends = groups[order] * size + np.minimum(gone[order], size - 1)
    if every:
        looked = _every(groups, first, gone, size)
        high = Positions(starts).up_to(looked)
    else:
        looked, high = _gains(starts, ~lives.old[there[order]])
    group, instant = looked // size, looked % size
    if rising(ends):  # rows leave in the order in which they entered
        low = Positions(ends).up_to(looked)
        return Points(group, instant, there[order], low, high)
    since = np.searchsorted(looked, groups * size + first, side="left")
    until = np.searchsorted(looked, groups * size + np.minimum(gone, size - 1), side="left")
    row, point = spread(since, until)
    by_point = np.argsort(point, kind="stable")
    counts = np.bincount(point, minlength=len(looked))
    high = np.cumsum(counts)
    return Points(group, instant, there[row[by_point]], high - counts, high)


def _gains(starts: Ints, new: Bools) -> tuple[Ints, Ints]:
    """Of rows in order: the moments at which a new row begins, and how many rows have begun up to each."""
    ends = np.append(np.flatnonzero(np.diff(starts)) + 1, len(starts)) if len(starts) else np.empty(0, np.int64)
    known = np.concatenate([np.zeros(1, np.int64), np.cumsum(new)])[ends]
    ends = ends[np.diff(known, prepend=0) > 0]
    return starts[ends - 1], ends


def _every(groups: Ints, first: Ints, gone: Ints, size: np.int64) -> Ints:
    which, at = spread(first, gone)
    return distinct(groups[which] * size + at)
