"""The limits that the roles of a query's owner set for each view: MAX STATE and MAX RESULTS (SPEC.md, 4.3).

A view ends at exactly one tuple, the one that exceeds the limit. All results before it are delivered, so the outcome
does not depend on how tuples are split into batches. Only tuples that the view sees count, so the outcome does not
depend on tuples hidden from its subscribers. Results per second are counted by the results' own times, for the same two
reasons: any other clock would reveal how fast batches are computed, or what else is computed with them. The reasons
name no number: the number could tell subscribers which roles the owner has.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from headgate.columns.sorting import Bools, Ints
from headgate.model.view import View
from headgate.model.visibility import TuplePosition

_ALLOWED = "than its owner's roles allow (MAX STATE)"
_RAISED = "or have MAX STATE of a role raised (ALTER ROLE)"
HOLDS = f"its windows hold more tuples {_ALLOWED}; use smaller windows, {_RAISED}"
WAITS = f"more tuples wait for their time {_ALLOWED}; declare a DELAY for its streams, {_RAISED}"
YIELDS = (
    "it has more results in a second than its owner's roles allow (MAX RESULTS); select fewer results, or have MAX "
    "RESULTS of a role raised (ALTER ROLE)"
)
NEARLY = {
    "MAX STATE": f"its windows hold nearly as many tuples as its owner's roles allow (MAX STATE), and the query ends "
    f"beyond them; use smaller windows, {_RAISED}",
    "MAX RESULTS": "it has nearly as many results in a second as its owner's roles allow (MAX RESULTS), and the query "
    "ends beyond them; select fewer results, or have MAX RESULTS of a role raised (ALTER ROLE)",
}
"""Warnings, by limit."""

NEVER = 1 << 62
SECOND = 1000


@dataclass(frozen=True)
class WindowChanges:
    """The positions at which tuples enter (+1) and leave (-1) the windows of a block, for the views that share them.
    Tuples that entered before this batch have the earliest of all positions."""

    views: tuple[int, ...]
    time: Ints
    stream: Ints
    arrival: Ints
    change: Ints


def too_much_held(parts: Sequence[WindowChanges], most: int) -> TuplePosition | None:
    """The first entering tuple with which the windows hold more than `most` tuples, itself included."""
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
    return TuplePosition(int(time[at]), int(stream[at]), int(arrival[at]))


def too_many_wait(before: Ints, times: Ints, moments: Ints, marks: Ints, most: int) -> int | None:
    """The first moment at which tuples enter and more than `most` wait for the watermark. `before` are the times of the
    tuples that waited before, `times` and `moments` those of the tuples that enter, `marks` the watermark before each
    moment and after the last. INVARIANT: `marks` never falls, so a tuple below it never waits again."""
    counts = np.zeros(len(marks), np.int64)
    counts[0] = len(before)
    np.add.at(counts, moments, 1)
    for own in (before, times):
        np.subtract.at(counts, np.searchsorted(marks[1:], own, side="right"), 1)
    entered = np.zeros(len(marks), np.bool_)
    entered[moments] = True
    beyond = np.flatnonzero(entered & (np.cumsum(counts) > most))
    return int(beyond[0]) if len(beyond) else None


def too_many_results(times: Ints, most: int, second: int, yielded: int) -> tuple[int | None, int, int]:
    """Returns the first of the results, in order of delivery, that exceeds the limit (None: none does), the last second
    and how many results it has. Seconds never go back: a result older than an earlier one counts in the second of that
    one, so that old times are no way around the limit."""
    if not len(times):
        return None, second, yielded
    seconds = np.maximum.accumulate(np.maximum(times // SECOND, second))
    first = np.flatnonzero(np.diff(seconds, prepend=seconds[0] - 1))
    starts = np.repeat(first, np.diff(np.append(first, len(seconds))))
    counts = np.arange(1, len(seconds) + 1) - starts
    counts[seconds == second] += yielded
    beyond = np.flatnonzero(counts > most)
    return (int(beyond[0]) if len(beyond) else None), int(seconds[-1]), int(counts[-1])


def enter(view: View, times: Ints, entering: Bools, moments: Ints, marks: Ints) -> int | None:
    """The moment at which too many of the arriving tuples that are `entering` windows wait, if any: there the view
    ends. `marks` is the watermark before each moment and after the last."""
    if view.scratch.waiting is None or view.running.most_state is None:
        return None
    end = too_many_wait(view.scratch.waiting, times[entering], moments[entering], marks, view.running.most_state)
    if end is not None:
        view.scratch.ending, view.scratch.ended_early, view.scratch.ended_at = WAITS, True, end
    return end
