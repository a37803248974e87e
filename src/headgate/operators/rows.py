"""Rows with validity intervals: what windows hold and what joins combine, for all instants at once.

A tuple enters a window at its position in the order of tuples, and leaves it by count (`ROWS`: after so many later
tuples) or by time (`RANGE`). So everything that a window ever holds is one column of starts and two of ends, and a row
of a join is valid where the intervals of its tuples overlap. No instant is evaluated on its own.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from headgate.columns.sorting import Bools, Ints, Positions, rising, stable_order
from headgate.expressions.limits import few_rows
from headgate.model.budget import charge
from headgate.plan.nodes import Window

NEVER = np.int64(1 << 62)
BEFORE = np.int64(-1)


@dataclass(frozen=True)
class Rows:
    """Combinations of tuples, by their positions in the order of tuples, one array for each side.

    A row is there at an instant (after p tuples, at time t) if start < p <= end and t <= until. Rows that were there
    before this batch start BEFORE.
    """

    sides: tuple[Ints, ...]
    start: Ints
    end: Ints
    until: Ints

    def __len__(self) -> int:
        return len(self.start)

    def where(self, chosen: Bools) -> Rows:
        return self if chosen.all() else self.at(np.flatnonzero(chosen))

    def at(self, rows: Ints) -> Rows:
        return Rows(tuple(side[rows] for side in self.sides), self.start[rows], self.end[rows], self.until[rows])

    def ends(self, times: Positions) -> Ints:
        """After how many tuples the row is gone, if it ends with a tuple: by count or by the tuple's time."""
        if self.until.min(initial=NEVER) == NEVER:
            return np.minimum(self.end, len(times))
        return np.minimum(self.end, times.up_to(self.until))


def window_rows(window: Window, held: Ints, entering: Ints, times: Ints, partition: Ints) -> Rows:
    """The rows of a window: the tuples that it `held` before and those that are `entering` now, both in order.

    `times` are those of all tuples; `partition` is the number of the window partition of each of the window's tuples,
    in the order held, entering.
    """
    places = np.concatenate([held, entering])
    start = np.concatenate([np.full(len(held), BEFORE), entering])
    end, until = np.full(len(places), NEVER), np.full(len(places), NEVER)
    match window.kind:
        case "ROWS":
            end[: -window.rows or None] = places[window.rows :]
        case "PARTITIONED":
            by_partition = stable_order(partition)
            ahead = by_partition[window.rows :]
            behind = by_partition[: len(ahead)]
            same = np.flatnonzero(partition[behind] == partition[ahead])
            end[behind[same]] = places[ahead[same]]
        case "RANGE":
            until = times[places] + window.range - (1 if window.slide else 0)
        case "NOW":
            until = times[places]
    return Rows((places,), start, end, until)


def lasting(places: Ints) -> Rows:
    """Rows that were there before everything else, and stay."""
    return Rows((places,), *(np.full(len(places), x) for x in (BEFORE, NEVER, NEVER)))


def join_rows(left: Rows, right: Rows, left_keys: Ints, right_keys: Ints, times: Ints) -> Rows:
    """All pairs with equal keys whose intervals overlap. Whichever row of a pair starts later finds the other there."""
    known_left, known_right = left_keys >= 0, right_keys >= 0
    left, left_keys = left.where(known_left), left_keys[known_left]
    right, right_keys = right.where(known_right), right_keys[known_right]
    size, places = np.int64(len(times) + 2), Positions(times)
    here, there = _ByKey(left, left_keys, size, places), _ByKey(right, right_keys, size, places)
    first, second = _meetings(here, there, ties=True)
    later, earlier = _meetings(there, here, ties=False)
    charge(8 * (len(first) + len(earlier)) * (len(left.sides) + len(right.sides) + 3))
    a, b = np.concatenate([first, earlier]), np.concatenate([second, later])
    return Rows(
        (*(side[a] for side in left.sides), *(side[b] for side in right.sides)),
        np.maximum(left.start[a], right.start[b]),
        np.minimum(left.end[a], right.end[b]),
        np.minimum(left.until[a], right.until[b]),
    )


class _ByKey:
    """Rows ordered by key and start. The moments at which rows start and end are numbers that include the key: keys are
    `size` apart."""

    def __init__(self, rows: Rows, keys: Ints, size: np.int64, times: Positions) -> None:
        self.order = stable_order(keys) if rising(rows.start) else np.lexsort((rows.start, keys))
        self.keys = keys[self.order] * size
        self.comes = self.keys + (rows.start[self.order] + 1)
        self.leaves = self.keys + np.minimum(rows.ends(times), size - 2)[self.order]
        self.in_turn = rising(self.leaves)
        """Whether rows end in the order in which they start: then the rows that are gone are contiguous."""


def _meetings(there: _ByKey, coming: _ByKey, *, ties: bool) -> tuple[Ints, Ints]:
    """For each row of `coming`, the rows that are there when it starts; with `ties` also those that start with it."""
    moments = coming.comes  # in order, so the search proceeds in one direction
    until = np.searchsorted(there.comes, moments, "right" if ties else "left")
    since = np.searchsorted(there.leaves, moments) if there.in_turn else np.searchsorted(there.keys, coming.keys)
    counts, begins = np.empty((2, len(moments)), np.int64)
    counts[coming.order], begins[coming.order] = np.maximum(until - since, 0), since
    few_rows(counts)
    which = np.repeat(np.arange(len(moments)), counts)
    found = np.arange(len(which)) + np.repeat(begins - (np.cumsum(counts) - counts), counts)
    if not there.in_turn:
        came = np.empty(len(moments), np.int64)
        came[coming.order] = moments
        alive = np.flatnonzero(there.leaves[found] >= came[which])
        found, which = found[alive], which[alive]
    return there.order[found], which
