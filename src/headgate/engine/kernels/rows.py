"""Rows with lifetimes: what windows hold and what joins combine, for all instants at once.

A tuple enters a window at its own place in the order of tuples and leaves it by number (`ROWS`: when so many have come
after it) or by time (`RANGE`). So everything a window ever holds is one column of beginnings and two of ends, and a row
of a join lives where the lives of its tuples overlap. No instant is looked at on its own.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from headgate.engine.kernels.limits import few_rows
from headgate.engine.kernels.sorting import Bools as Bools
from headgate.engine.kernels.sorting import Ints as Ints
from headgate.engine.kernels.sorting import Places, rising, stable_order
from headgate.plan.nodes import Window

NEVER = np.int64(1 << 62)
BEFORE = np.int64(-1)


@dataclass(frozen=True)
class Rows:
    """Combinations of tuples, by their places in the order of tuples, one array for each side.

    A row is there at an instant (after p tuples, at time t) if start < p <= end and t <= until. Rows that were there
    before anything new came start BEFORE.
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

    def ends(self, times: Places) -> Ints:
        """After how many tuples the row is gone, if it ends with a tuple: by number or by the tuple's time."""
        if self.until.min(initial=NEVER) == NEVER:
            return np.minimum(self.end, len(times))
        return np.minimum(self.end, times.up_to(self.until))


def window_rows(window: Window, held: Ints, entering: Ints, times: Ints, partition: Ints) -> Rows:
    """The rows of a window: what it `held` before, and what is `entering` now, both in order.

    `times` are those of all tuples; `partition` tells the tuples of this window apart, in the order held, entering.
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
    """What was there before anything else, and stays."""
    return Rows((places,), *(np.full(len(places), x) for x in (BEFORE, NEVER, NEVER)))


def join_rows(left: Rows, right: Rows, left_keys: Ints, right_keys: Ints, times: Ints) -> Rows:
    """All pairs with equal keys whose lives overlap. Whichever of the two comes later finds the other there."""
    known_left, known_right = left_keys >= 0, right_keys >= 0
    left, left_keys = left.where(known_left), left_keys[known_left]
    right, right_keys = right.where(known_right), right_keys[known_right]
    places = Places(times)
    first, second = _meetings(left, left_keys, right, right_keys, places, ties=True)
    later, earlier = _meetings(right, right_keys, left, left_keys, places, ties=False)
    a, b = np.concatenate([first, earlier]), np.concatenate([second, later])
    return Rows(
        (*(side[a] for side in left.sides), *(side[b] for side in right.sides)),
        np.maximum(left.start[a], right.start[b]),
        np.minimum(left.end[a], right.end[b]),
        np.minimum(left.until[a], right.until[b]),
    )


def _meetings(
    there: Rows, keys: Ints, coming: Rows, coming_keys: Ints, times: Places, *, ties: bool
) -> tuple[Ints, Ints]:
    """For each row that comes, the rows that are there already; with `ties` also those that come with it."""
    size = np.int64(len(times) + 2)
    order, coming_order = _by_key(keys, there.start), _by_key(coming_keys, coming.start)
    keys_in_order, ends = keys[order], there.ends(times)[order]
    moments = (coming_keys * size + coming.start + 1)[coming_order]  # in order: then searching is a walk
    until = np.searchsorted(keys_in_order * size + there.start[order] + 1, moments, "right" if ties else "left")
    leaving = keys_in_order * size + np.minimum(ends, size - 2)
    in_turn = rising(leaving)  # what came first leaves first: those that left stand together
    since = (
        np.searchsorted(leaving, moments) if in_turn else np.searchsorted(keys_in_order * size, moments // size * size)
    )
    counts, begins = np.empty((2, len(coming)), np.int64)
    counts[coming_order], begins[coming_order] = np.maximum(until - since, 0), since
    few_rows(int(counts.sum()))
    which = np.repeat(np.arange(len(coming)), counts)
    found = np.arange(len(which)) + np.repeat(begins - (np.cumsum(counts) - counts), counts)
    if not in_turn:
        alive = np.flatnonzero(ends[found] > coming.start[which])
        found, which = found[alive], which[alive]
    return order[found], which


def _by_key(keys: Ints, start: Ints) -> Ints:
    return stable_order(keys) if rising(start) else np.lexsort((start, keys))
