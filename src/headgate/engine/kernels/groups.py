"""Aggregates over groups of rows with lifetimes, at all instants at once.

A *point* is a group at an instant. Where the rows of a group leave in the order they came, those there at a point
stand together, and sums, least values and sets of labels come from prefix sums and tables of powers of two. Otherwise
every row is spread over the points it is there for.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from headgate.engine.kernels.instants import Instants, Lives, spread
from headgate.engine.kernels.rows import Ints

Array = npt.NDArray[Any]
Parts = tuple[npt.NDArray[np.float64], ...]


@dataclass(frozen=True)
class Points:
    """Groups at instants, in the order of groups then instants, and which rows are there at each.

    `rows` are row numbers in the order in which they stand: for point i those from low[i] to high[i], exclusive.
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
        """Of one whole number for each row."""
        total: Ints = np.concatenate([np.zeros(1, np.int64), np.cumsum(values[self.rows], dtype=np.int64)])
        return np.subtract(total[self.high], total[self.low])

    def combined(self, values: Parts, combine: Callable[[Parts, Parts], Parts], nothing: tuple[float, ...]) -> Parts:
        """By an operation that sees every value once, and never takes anything back: differences of long sums would
        lose what is small. Rows are combined in pieces whose lengths are powers of two."""
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
        """By an operation that may see a value twice: least, greatest, any bit. Every point has rows."""
        table = values[self.rows]
        lengths = self.high - self.low
        result = table[np.minimum(self.low, max(len(table) - 1, 0))] if len(table) else table
        width = 1
        while width <= self.longest:
            chosen = (lengths >= width) & (lengths < 2 * width)
            result[chosen] = fold(table[self.low[chosen]], table[self.high[chosen] - width])
            table = fold(table[:-width], table[width:]) if 2 * width <= self.longest else table
            width *= 2
        return result

    def members(self) -> tuple[Ints, Ints]:
        """Point and row numbers of everything that is there."""
        point, place = spread(self.low, self.high)
        return point, self.rows[place]


def points(groups: Ints, lives: Lives, instants: Instants, *, every: bool) -> Points:
    """The points that are looked at: those at which a group gained a row, or `every` one at which it has any."""
    there = np.flatnonzero(lives.seen)
    groups, first, gone = groups[there], lives.first[there], lives.gone[there]
    size = np.int64(len(instants) + 1)
    if every:
        which, at = spread(first, gone)
        looked = np.unique(groups[which] * size + at)
    else:
        new = ~lives.old[there]
        looked = np.unique(groups[new] * size + first[new])
    group, instant = looked // size, looked % size
    order = np.lexsort((first, groups))
    starts, ends = groups[order] * size + first[order], groups[order] * size + np.minimum(gone[order], size - 1)
    if (np.diff(ends) >= 0).all():  # first come, first gone
        low = np.searchsorted(ends, looked, side="right")
        high = np.searchsorted(starts, looked, side="right")
        return Points(group, instant, there[order], low, high)
    since = np.searchsorted(looked, groups * size + first, side="left")
    until = np.searchsorted(looked, groups * size + np.minimum(gone, size - 1), side="left")
    row, point = spread(since, until)
    by_point = np.argsort(point, kind="stable")
    counts = np.bincount(point, minlength=len(looked))
    high = np.cumsum(counts)
    return Points(group, instant, there[row[by_point]], high - counts, high)
