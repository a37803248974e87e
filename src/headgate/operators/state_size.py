"""State size: which tuples would enter the windows of a block and which would leave them, tuple by tuple, and so how
much a view would hold at any moment (MAX STATE). Only views near their limit are counted like this."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from headgate.columns.factorize import codes
from headgate.columns.sorting import Ints, stable_order
from headgate.model.times import NO_TIME
from headgate.operators.program import ARRIVAL, STREAM, TIME
from headgate.operators.reading import stream_of
from headgate.operators.tuple_store import TupleStore, VisibleTuples
from headgate.plan import nodes as n

Keys = tuple[Ints, Ints, Ints]
"""Times, streams and arrivals of tuples."""


def changes(
    windows: Sequence[tuple[n.Window, Ints, int, Ints]], tuples: VisibleTuples, store: TupleStore
) -> tuple[Ints, Ints, Ints, Ints]:
    """The positions at which tuples enter (+1) and leave (-1): each window with what it holds, how many more tuples it
    has folded, and what enters it, in order. Tuples that were there before enter before everything. A window by time
    loses a tuple when its time is over, whether or not there is an instant then. A stream that is read twice counts
    twice."""
    found: list[tuple[Ints, Ints, Ints, Ints]] = [_at(_earliest(np.empty(0, np.int64)), 1)]
    for window, held, folded, entering in windows:
        every = np.concatenate([held, entering])
        found += [_at(_earliest(np.full(len(held), NO_TIME)), 1), _at(_keys(store, entering), 1)]
        found.append(_at(_earliest(np.full(min(folded, 1), NO_TIME)), folded))
        match window.kind:
            case "ROWS":
                found.append(_at(_keys(store, every[window.rows :]), -1))
            case "PARTITIONED":
                found.append(_at(_keys(store, every[_displacing(window, every, tuples)]), -1))
            case "RANGE" | "NOW":
                over = store.numbers(TIME)[every] + (window.range - (1 if window.slide else 0))
                found.append(_at(_earliest(over + 1), -1))
    times, streams, arrivals, steps = (np.concatenate(parts) for parts in zip(*found, strict=True))
    return times, streams, arrivals, steps


def _displacing(window: n.Window, every: Ints, tuples: VisibleTuples) -> Ints:
    """The tuples that displace another one of their partition."""
    if not len(every):
        return np.empty(0, np.int64)
    columns = [tuples.column(stream_of(window), column.name, every) for column in window.partition]
    partition = codes(columns, null_is_a_value=True)
    order = stable_order(partition)
    ahead = order[window.rows :]
    found: Ints = ahead[partition[order[: len(ahead)]] == partition[ahead]]
    return found


def _keys(store: TupleStore, tuples: Ints) -> Keys:
    times, streams, arrivals = (store.numbers(x)[tuples].astype(np.int64) for x in (TIME, STREAM, ARRIVAL))
    return times, streams, arrivals


def _earliest(times: Ints) -> Keys:
    """The positions before all tuples of these times."""
    before = np.full(len(times), -1)
    return times, before, before


def _at(keys: Keys, step: int) -> tuple[Ints, Ints, Ints, Ints]:
    return *keys, np.full(len(keys[0]), step)
