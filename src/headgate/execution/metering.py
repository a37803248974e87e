"""Measure each view against the state and result limits of its query's owner (MAX STATE, MAX RESULTS), and end views
that exceed them at one exact tuple or result of a batch.

This costs nothing for views without limits, and little for views far below theirs. `visibility.role_limits` decides
whether a limit is exceeded; this module collects the numbers it decides by.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from headgate.columns.sorting import Bools
from headgate.execution.executors import Executor
from headgate.execution.results import moments_of, result_order
from headgate.model.budget import Budget
from headgate.model.limits import NEAR
from headgate.model.results import BlockResults
from headgate.model.view import View
from headgate.model.visibility import Visibility
from headgate.visibility.index import VisibilityIndex
from headgate.visibility.role_limits import HOLDS, NEARLY, NEVER, YIELDS, too_many_results, too_much_held

_STATE, _RESULTS = "MAX STATE", "MAX RESULTS"


def begin(visibility_index: VisibilityIndex, coming: int, executor: Executor) -> None:
    """Before `coming` tuples enter: reset the per-batch fields of limited views, and list the waiting tuples of each
    view that could exceed its limit with them."""
    for view in _limited(visibility_index.views):
        view.scratch.waiting, view.scratch.cutoff = None, None
        if coming and _kept_at_most(view, coming, executor) > _most_state(view) and view.windowed:
            view.scratch.waiting = executor.waiting(view.windowed, visibility_index.table, view.passed)


def with_cutoffs(
    views: Iterable[View], visibility: Visibility, arriving: pa.Table, tables: pa.Table | None, executor: Executor
) -> Visibility:
    """Compute a cutoff for each view whose windows would hold too much: from that position on the view sees nothing.
    This happens before anything is joined, so an excess costs nothing."""
    near = [x for x in _limited(views) if _holds_at_most(x, arriving.num_rows, executor) > _first_state(x)]
    if not near:
        return visibility
    columns = frozenset(column for view in near for column in view.windowed)
    changes = executor.state_changes(arriving, visibility, tables, columns)
    for view in near:
        mine = [x for x in changes if not set(x.views).isdisjoint(view.columns)]
        view.scratch.cutoff = too_much_held(mine, _most_state(view)) if mine else None
        if view.scratch.cutoff is not None:
            view.scratch.ending = HOLDS
            if view.scratch.timeline is not None:
                view.scratch.ended_at = int(view.scratch.timeline.final(np.array([view.scratch.cutoff.time]))[0])
        elif mine and too_much_held(mine, _first_state(view)) is not None:
            view.scratch.near[_STATE] = NEARLY[_STATE]
    return replace(
        visibility,
        cutoff={column: view.scratch.cutoff for view in near if view.scratch.cutoff for column in view.columns},
    )


def _limited(views: Iterable[View]) -> list[View]:
    return [view for view in views if view.running.limited and not view.ended]


def _most_state(view: View) -> int:
    return NEVER if view.running.most_state is None else view.running.most_state


def _first_state(view: View) -> int:
    """How many tuples concern somebody: the limit, or what is near to it as long as nobody was warned."""
    most = _most_state(view)
    return most if _STATE in view.warned or most == NEVER else int(NEAR * most)


def _kept_at_most(view: View, coming: int, executor: Executor) -> int:
    """How many tuples are kept for a view when these have come, at most."""
    return coming + (len(executor) if view.held is None else min(view.held, len(executor)))


def _holds_at_most(view: View, coming: int, executor: Executor) -> int:
    readings = sum(len(block.readings) for block in view.running.query.blocks if not block.stateless)
    return readings * _kept_at_most(view, coming, executor)


def note_use(view: View, budget: Budget | None) -> None:
    """After a batch: keep what it used that the next batches go by, and the limits that it came near to."""
    if budget is not None:
        view.scratch.spent = budget.spent
        view.scratch.near |= budget.near()
        _, waiting, held = zip((0, 0, 0), *budget.held.values(), strict=True)
        view.held = sum(held) + sum(waiting)  # blocks may wait for different streams


def warnings(view: View) -> list[str]:
    """The warnings that nobody was given yet. They count as given from now on."""
    new = [text for limit, text in view.scratch.near.items() if limit not in view.warned]
    view.warned |= view.scratch.near.keys()
    return new


def within_limits(views: Iterable[View], found: Sequence[BlockResults]) -> list[BlockResults]:
    """Drop the results that exceed a limit, and mark the views that reached their limit as ending."""
    batches = list(found)
    for view in _limited(views):
        counted = view.running.most_results is not None
        if counted or (view.scratch.cutoff is not None and view.mixed):
            mine = [number for number, batch in enumerate(batches) if not set(batch.views).isdisjoint(view.columns)]
            for number, kept in zip(mine, _kept(view, [batches[x] for x in mine]), strict=True):
                if not kept.all():
                    batch = batches[number]
                    own = tuple(column for column in batch.views if column in view.columns)
                    others = tuple(column for column in batch.views if column not in own)
                    batches[number] = replace(batch, views=others)
                    batches.append(batch.where(kept, own))
    return batches


def _kept(view: View, batches: Sequence[BlockResults]) -> list[Bools]:
    """For each batch of a view: which of its results the view emits before it ends."""
    sizes = [len(batch) for batch in batches]
    if not sum(sizes):
        return [np.ones(size, np.bool_) for size in sizes]
    order = np.arange(sizes[0]) if len(batches) == 1 else result_order(view, batches)
    times = np.concatenate([batch.time for batch in batches])
    if view.scratch.cutoff is not None and view.mixed:
        passes = [view.running.query.blocks[batch.block].stateless for batch in batches]
        comes = np.concatenate([moments_of(view, batch) for batch in batches])
        order = order[~np.repeat(passes, sizes)[order] | (comes[order] < view.scratch.ended_at)]
    most = view.running.most_results
    if most is not None:
        if too_many_results(times[order], int(NEAR * most), view.second, view.yielded)[0] is not None:
            view.scratch.near[_RESULTS] = NEARLY[_RESULTS]
        beyond, view.second, view.yielded = too_many_results(times[order], most, view.second, view.yielded)
        if beyond is not None:
            if view.scratch.timeline is not None:
                comes = np.concatenate([moments_of(view, batch) for batch in batches])
                view.scratch.ended_at = int(comes[order[beyond]])
            order, view.scratch.ending = order[:beyond], YIELDS
    kept = np.zeros(len(times), np.bool_)
    kept[order] = True
    return np.split(kept, np.cumsum(sizes)[:-1])
