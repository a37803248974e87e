"""Results as they leave a partition: flat columns in result order, with the numbers of the labels that they combine."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import compress
from typing import Protocol

import numpy as np

from headgate.columns.narrow import positions_of, renumbered, used
from headgate.columns.sorting import Ints, repeated, same
from headgate.labels import Rules
from headgate.loops.merging import MERGED, merge
from headgate.model.results import BlockResults, ResultBatch, notice
from headgate.model.view import View
from headgate.operators.emit import Emitted
from headgate.operators.evaluation import BlockEmitted
from headgate.operators.program import ARRIVAL, STREAM, TIME

_INSTANT = 7
"""How many sort keys say when a result comes and from which block; the others say which tuples it has."""


class Numbered(Protocol):
    """Tuples with numbers: of all of them, or of those at some places."""

    def numbers(self, name: str, places: Ints | None = None) -> Ints: ...


def packed(
    found: BlockEmitted, tuples: Numbered, *, stateless: bool, alone: bool = False, one_block: bool = False
) -> BlockResults:
    """Convert the results of one view group and block to columns, without the tuples they were computed from. `alone`:
    the query has no other results, so they need no order. `one_block`: those of other partitions only, which have other
    tuples, and so other instants."""
    emitted, block = found.emitted, found.block
    if found.exceeded:
        nothing = emitted.time
        return BlockResults(block.query, block.number, found.views, nothing, (), nothing, (), (), found.exceeded)
    numbers, sets = emitted.labels.numbers, emitted.labels.sets
    if len(sets) > 1:
        there = used(numbers, len(sets))
        if not there.all():
            sets, numbers = tuple(compress(sets, there)), renumbered(numbers, positions_of(there))
    order: tuple[Ints, ...] = ()
    if stateless:
        order = (tuples.numbers(ARRIVAL, emitted.rows[0]),)
    elif not alone:
        order = _order(emitted, tuples, rows=not one_block)
    return BlockResults(block.query, block.number, found.views, emitted.time, emitted.values, numbers, sets, order)


def _order(emitted: Emitted, tuples: Numbered, *, rows: bool) -> tuple[Ints, ...]:
    """With `rows`, the tuples of a result decide after its instant. They always do if instants are slides: several
    partitions have the same."""
    arrivals, times = tuples.numbers(ARRIVAL), tuples.numbers(TIME)
    nothing = np.zeros(len(emitted), np.int64)
    slides, stream, arrival = nothing + 1, nothing, nothing
    if len(emitted.instant):
        slides, stream = nothing, tuples.numbers(STREAM)[emitted.instant].astype(np.int64)
        arrival = arrivals[emitted.instant]
        if not rows:
            return emitted.time, slides, stream, arrival
    return emitted.time, slides, stream, arrival, *(key[side] for side in emitted.rows for key in (times, arrivals))


def result_order(view: View, batches: Sequence[BlockResults]) -> Ints:
    """The order of a view's results: by the moment at which they come; of one moment those of windowed blocks first, by
    instant and then block; then those of stateless blocks, by arrival."""
    stateless = [view.running.query.blocks[batch.block].stateless for batch in batches]
    come = [moments_of(view, batch) for batch in batches] if view.mixed else []
    return merged_order(stateless, batches, come)


def merged_order(stateless: Sequence[bool], batches: Sequence[BlockResults], come: Sequence[Ints] = ()) -> Ints:
    """As `result_order`: `stateless` says which batches are of stateless blocks, `come` when results come, if some have
    windows and some have none."""
    widest = max(len(batch.order) for batch in batches)
    columns: list[list[Ints]] = [[] for _ in range(widest + 3)]
    for number, (batch, passes) in enumerate(zip(batches, stateless, strict=True)):
        at, block = repeated(int(passes), len(batch)), repeated(batch.block, len(batch))
        instant, rows = batch.order[: 1 if passes else 4], batch.order[1 if passes else 4 :]
        keys = (come[number] if come else at, at, *instant, block, *rows)
        for place, column in enumerate(columns):
            column.append(keys[place] if place < len(keys) else repeated(0, len(batch)))
    sizes = [len(batch) for batch in batches]
    telling = [place for place, column in enumerate(columns) if _tells(column)]
    if not telling:
        return np.arange(sum(sizes))
    whole = np.empty((len(telling), sum(sizes)), np.int64)
    for key, place in zip(whole, telling, strict=True):
        np.concatenate(columns[place], out=key)
    order = _by_instants(whole[: sum(place < _INSTANT for place in telling)], sizes)
    return np.lexsort(whole[::-1]) if order is None else order


def _tells(column: Sequence[Ints]) -> bool:
    """Whether not all numbers of all parts are the same."""
    there = [part for part in column if len(part)]
    return bool(there) and (len({int(part[0]) for part in there}) > 1 or not all(map(same, there)))


def _by_instants(keys: Ints, sizes: Sequence[int]) -> Ints | None:
    """The order of results by their instants and blocks. Batches are in order themselves, so this is the whole order;
    None if results of several batches have one instant, and the tuples of their rows must decide."""
    if not len(keys):
        return None
    order, other = np.empty((2, keys.shape[1]), np.int64)
    return order if merge(keys, np.cumsum(sizes), order, other) == MERGED else None


def moments_of(view: View, batch: BlockResults) -> Ints:
    """The moment at which each result comes: that of its tuple, or that at which its instant became final."""
    assert view.scratch.timeline is not None  # noqa: S101
    passes = view.running.query.blocks[batch.block].stateless
    return view.scratch.timeline.came(batch.order[0]) if passes else view.scratch.timeline.final(batch.time)


def end_notice(view: View, rules: Rules) -> ResultBatch:
    """The notice for the subscribers of a view that has ended. Subscribers that may see nothing there receive none."""
    looking = tuple(name for name in sorted(view.clearances) if view.clearance(name, rules) is not None)
    return notice(looking, view.running.name, ended=view.ended)
