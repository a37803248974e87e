"""What the roles of a query's owner allow it for each view: state (MAX STATE) and results in a second (MAX RESULTS).

A view ends at one certain tuple: that which makes it exceed its limit. All that it had yielded by then is delivered, so
nothing depends on how tuples are split into batches; and since only what the view itself sees counts, nothing depends
on tuples that its readers may not see. The clock of results is that of their own times, for the same two reasons: any
other would tell how fast batches are computed, or what else is computed with them. Reasons name no number: what the
owner's roles allow would tell readers which roles these are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from headgate.columns.sorting import Bools, Ints
from headgate.model.view import View
from headgate.model.visibility import Position

HOLDS = "its windows hold more tuples than its owner's roles allow (MAX STATE)"
WAITS = "more tuples wait for their time than its owner's roles allow (MAX STATE)"
YIELDS = "it has more results in a second than its owner's roles allow (MAX RESULTS)"

NEVER = 1 << 62
SECOND = 1000


@dataclass(frozen=True)
class Changes:
    """When tuples enter the windows of a block (+1) and when they leave (-1), as some views see it: what has entered
    before has the earliest of all positions."""

    views: tuple[int, ...]
    time: Ints
    stream: Ints
    arrival: Ints
    change: Ints


def too_much_held(parts: Sequence[Changes], most: int) -> Position | None:
    """The first tuple that enters when windows hold more than that, itself included."""
    time, stream, arrival, change = (
        np.concatenate([getattr(part, name) for part in parts]) for name in ("time", "stream", "arrival", "change")
    )
    order = np.lexsort((arrival, stream, time))
    time, stream, arrival, change = time[order], stream[order], arrival[order], change[order]
    held = np.cumsum(change)
    last = np.ones(len(order), np.bool_)
    last[:-1] = (np.diff(time) != 0) | (np.diff(stream) != 0) | (np.diff(arrival) != 0)
    ends = np.flatnonzero(last)
    entered = np.add.reduceat(change > 0, np.concatenate([[0], ends[:-1] + 1])) > 0 if len(ends) else last
    beyond = ends[entered & (held[ends] > most) & (stream[ends] >= 0)]
    if not len(beyond):
        return None
    at = int(beyond[0])
    return Position(int(time[at]), int(stream[at]), int(arrival[at]))


def too_many_wait(before: Ints, times: Ints, entering: Bools, marks: Ints, most: int) -> int | None:
    """The first of the tuples that are entering with which more than that wait. `before` are the times of those that
    waited before, `marks` the watermark after each tuple, which never falls: what lies behind it waits no more."""
    there = np.flatnonzero(entering)
    counts = np.zeros(len(times) + 1, np.int64)
    counts[0] = len(before)
    np.add.at(counts, there, 1)
    np.subtract.at(counts, np.searchsorted(marks, times[there], side="right"), 1)
    np.subtract.at(counts, np.searchsorted(marks, before, side="right"), 1)
    beyond = there[np.cumsum(counts)[there] > most]
    return int(beyond[0]) if len(beyond) else None


def too_many_results(times: Ints, most: int, second: int, yielded: int) -> tuple[int | None, int, int]:
    """Which of the results, in the order in which they come, is one too many; then the last second and how many there
    were in it. Time does not go back: what lies before the second of a result that came earlier counts in that."""
    if not len(times):
        return None, second, yielded
    seconds = np.maximum.accumulate(np.maximum(times // SECOND, second))
    first = np.flatnonzero(np.diff(seconds, prepend=seconds[0] - 1))
    starts = np.repeat(first, np.diff(np.append(first, len(seconds))))
    counts = np.arange(1, len(seconds) + 1) - starts
    counts[seconds == second] += yielded
    beyond = np.flatnonzero(counts > most)
    return (int(beyond[0]) if len(beyond) else None), int(seconds[-1]), int(counts[-1])


def enter(view: View, times: Ints, entering: Bools, marks: Ints, arrived: int) -> int | None:
    """Notes tuples that arrive, which of them enter windows, and the watermark after each; the first of them has
    the number `arrived`. Returns the first with which too many wait, if any: there it ends."""
    end = None
    if view.waiting is not None and view.running.most_state is not None:
        end = too_many_wait(view.waiting, times, entering, marks, view.running.most_state)
        view.waiting = np.concatenate([view.waiting, times[entering]])
    if end is not None:
        view.ending, view.ended_early = WAITS, True
    if view.mixed:
        view.marks.append((arrived + np.arange(len(times))[:end], marks[:end]))
    return end
