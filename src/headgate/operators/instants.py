"""Instants: the moments at which a block is evaluated, and the rows that it has at each (SPEC.md, 4.2)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from headgate.columns.sorting import Bools, Ints, Positions, distinct
from headgate.expressions.limits import few_rows
from headgate.expressions.sql.forms import LAST_MICROSECOND
from headgate.operators.rows import BEFORE, NEVER, Rows


@dataclass(frozen=True)
class Instants:
    """The instants of a block in one batch, in order.

    passed: how many tuples have arrived at each instant
    time: the time of each instant
    last: the time of the instant before all of these
    sliding: whether the block slides; then `last` also separates rows that were there at that instant from later rows
    """

    passed: Ints
    time: Ints
    last: int
    sliding: bool

    def __len__(self) -> int:
        return len(self.passed)

    @classmethod
    def of_tuples(cls, entering: Ints, times: Ints, last: int) -> Instants:
        return cls(entering + 1, times[entering], last, sliding=False)

    @classmethod
    def of_times(cls, at: Ints, times: Ints, last: int) -> Instants:
        return cls(np.searchsorted(times, at, side="right"), at, last, sliding=True)

    @cached_property
    def by_number(self) -> Positions:
        return Positions(self.passed)

    @cached_property
    def by_time(self) -> Positions:
        return Positions(self.time)

    @property
    def latest(self) -> int:
        return int(self.time[-1]) if len(self) else self.last


@dataclass(frozen=True)
class ValidityIntervals:
    """For each row the numbers [first, gone) of the instants at which it is there, and whether it was there before
    them."""

    first: Ints
    gone: Ints
    old: Bools

    @cached_property
    def seen(self) -> Bools:
        return self.first < self.gone


def validity_intervals(rows: Rows, instants: Instants, times: Ints) -> ValidityIntervals:
    gone = instants.by_number.up_to(rows.end) if rows.end.min(initial=NEVER) < NEVER else None
    if rows.until.min(initial=NEVER) < NEVER:
        by_time = instants.by_time.up_to(rows.until)
        gone = by_time if gone is None else np.minimum(gone, by_time)
    if gone is None:
        gone = np.full(len(rows), len(instants))
    first = instants.by_number.up_to(rows.start)
    before = rows.start == BEFORE
    gone[before & (rows.until < instants.last)] = 0  # kept for another block; here it was gone before
    old = before & (rows.until >= instants.last)
    if instants.sliding:
        old &= np.maximum.reduce([times[side] for side in rows.sides]) <= instants.last
    return ValidityIntervals(first, gone, old)


LAST = LAST_MICROSECOND // 1000
"""The last time that can be written down, in milliseconds."""


def slides(times: Ints, range_: int, step: int, since: int, until: int) -> Ints:
    """The multiples of `step` in [since, until) at which a sliding window holds at least one of these tuples."""
    if not len(times):
        return np.empty(0, np.int64)
    until = min(until, LAST + 1)
    lowest = np.maximum(-(-times // step) * step, -(-since // step) * step)
    counts = np.maximum(-(-(np.minimum(times + range_, until) - lowest) // step), 0)
    few_rows(counts)
    offsets = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    return distinct(np.repeat(lowest, counts) + offsets * step)


def spread(first: Ints, gone: Ints) -> tuple[Ints, Ints]:
    """Every row at each of its instants: row numbers and instant numbers."""
    counts = np.maximum(gone - first, 0)
    few_rows(counts)
    which = np.repeat(np.arange(len(first)), counts)
    offsets = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    return which, first[which] + offsets
