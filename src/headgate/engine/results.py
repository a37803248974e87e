"""Results on their way out of a cell: flat columns in their order, with the labels they combine by number."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import compress

import numpy as np
import pyarrow as pa

from headgate.engine.kernels.cell import Found
from headgate.engine.kernels.given import ARRIVAL, STREAM
from headgate.engine.kernels.narrow import places_of, renumbered, used
from headgate.engine.kernels.rows import Bools, Ints
from headgate.engine.kernels.tuples import Seen
from headgate.engine.kernels.yielding import Yielded


@dataclass(frozen=True)
class Batch:
    """Results of one block for some views, in order. `labels` numbers sets of labels, `sets` are these; `order` are the
    columns by which results of several batches are brought into one order, none where there are no others: the arrival
    of what merely passed; or the instant (its time, whether it slides, its tuple's stream and arrival), then time and
    arrival of the tuple of each side."""

    query: str
    block: int
    views: tuple[int, ...]
    time: Ints
    values: tuple[pa.Array, ...]
    labels: Ints
    sets: tuple[frozenset[int], ...]
    order: tuple[Ints, ...]
    exceeded: str = ""
    """Why there are none, and will be none any more."""

    def __len__(self) -> int:
        return len(self.time)

    def where(self, chosen: Bools, views: tuple[int, ...]) -> Batch:
        """Some of the results, for some of the views."""
        rows = np.flatnonzero(chosen)
        return replace(
            self,
            views=views,
            time=self.time[rows],
            values=tuple(column.take(pa.array(rows)) for column in self.values),
            labels=self.labels[rows],
            order=tuple(column[rows] for column in self.order),
        )


def packed(found: Found, *, passing: bool, alone: bool = False) -> Batch:
    """What a kernel found, without the tuples it was found from. `alone`: it is all that its query yields."""
    yielded, block = found.yielded, found.block
    if found.exceeded:
        nothing = yielded.time
        return Batch(block.query, block.number, found.views, nothing, (), nothing, (), (), found.exceeded)
    numbers, sets = yielded.labels.numbers, yielded.labels.sets
    if len(sets) > 1:
        there = used(numbers, len(sets))
        if not there.all():
            sets, numbers = tuple(compress(sets, there)), renumbered(numbers, places_of(there))
    order: tuple[Ints, ...] = ()
    if not alone:
        order = (found.tuples.numbers(ARRIVAL)[yielded.rows[0]],) if passing else _order(yielded, found.tuples)
    return Batch(block.query, block.number, found.views, yielded.time, yielded.values, numbers, sets, order)


def _order(yielded: Yielded, tuples: Seen) -> tuple[Ints, ...]:
    arrivals = tuples.numbers(ARRIVAL)
    nothing = np.zeros(len(yielded.time), np.int64)
    slides, stream, arrival = nothing + 1, nothing, nothing
    if not yielded.slides:
        last = yielded.passed - 1
        slides, stream, arrival = nothing, tuples.numbers(STREAM)[last].astype(np.int64), arrivals[last]
    rows = tuple(key[side] for side in yielded.rows for key in (tuples.times, arrivals))
    return yielded.time, slides, stream, arrival, *rows
