"""State size: which tuples enter the windows of a block and which leave them, tuple by tuple, and so how much a view
holds at any moment (MAX STATE)."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from headgate.columns.sorting import Ints
from headgate.model.times import NO_TIME
from headgate.operators.program import ARRIVAL, STREAM
from headgate.operators.rows import NEVER, Rows
from headgate.operators.tuples import VisibleTuples
from headgate.plan import nodes as n

Keys = tuple[Ints, Ints, Ints]
"""Times, streams and arrivals of tuples."""


def changes(block: n.Node, rows_of: Callable[[n.Window], Rows], tuples: VisibleTuples) -> tuple[Ints, Ints, Ints, Ints]:
    """The positions at which tuples enter (+1) and leave (-1). Tuples that were there before enter before everything. A
    window by time loses a tuple when its time is over, whether or not there is an instant then. A stream that is read
    twice counts twice."""
    keys = tuples.times, tuples.numbers(STREAM).astype(np.int64), tuples.numbers(ARRIVAL)
    found: list[tuple[Ints, Ints, Ints, Ints]] = [_at(_earliest(np.empty(0, np.int64)), 1)]
    for window in _windows(block):
        rows = rows_of(window)
        entered = rows.start[rows.start >= 0]
        until = np.minimum(rows.until, NEVER)
        by_tuple = (rows.end < len(tuples.times)) & (np.append(tuples.times, NEVER)[_within(rows, tuples)] <= until)
        by_time = ~by_tuple & (until < NEVER)
        found += [
            _at(_earliest(np.full(len(rows) - len(entered), NO_TIME)), 1),
            _at(_of(keys, entered), 1),
            _at(_of(keys, rows.end[by_tuple]), -1),
            _at(_earliest(until[by_time] + 1), -1),
        ]
    times, streams, arrivals, steps = (np.concatenate(parts) for parts in zip(*found, strict=True))
    return times, streams, arrivals, steps


def _windows(node: n.Node) -> Iterator[n.Window]:
    """The windows of a block, one for each source that it reads."""
    if isinstance(node, n.Window):
        yield node
    else:
        for below in node.inputs:
            yield from _windows(below)


def _within(rows: Rows, tuples: VisibleTuples) -> Ints:
    return np.minimum(rows.end, len(tuples.times))


def _of(keys: Keys, places: Ints) -> Keys:
    times, streams, arrivals = (key[places] for key in keys)
    return times, streams, arrivals


def _earliest(times: Ints) -> Keys:
    """The positions before all tuples of these times."""
    before = np.full(len(times), -1)
    return times, before, before


def _at(keys: Keys, step: int) -> tuple[Ints, Ints, Ints, Ints]:
    return *keys, np.full(len(keys[0]), step)
