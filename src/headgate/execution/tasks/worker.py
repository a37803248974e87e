"""What a task does with one partition: find or load its state, advance it, write the new state.

A worker process is used again for later tasks, and keeps the partitions that it advanced. A partition in its memory is
used if it is exactly the state that the step names. It is taken out before it is advanced: if the task fails half way,
the next attempt loads what was written.
"""

from __future__ import annotations

import os
import secrets
import socket
import time
from collections import Counter
from dataclasses import dataclass, replace

import pyarrow as pa

from headgate.execution.executors import of_group
from headgate.execution.partitions import PartitionName
from headgate.execution.results import packed
from headgate.execution.tasks import written
from headgate.execution.tasks.step import STATELESS, Outcome, TaskPlan, TaskStep, recorded
from headgate.model.budget import Budget
from headgate.model.visibility import Visibility
from headgate.operators.partition import Partition
from headgate.operators.profile import since
from headgate.operators.stateless import Stateless


@dataclass
class _Kept:
    """A partition in memory.

    key: the key of its state
    tables: its part of the tables, with their number
    step: the batch that it was advanced by last
    """

    key: str
    partition: Partition
    tables: tuple[int, pa.Table | None]
    step: int = 0


_KEPT: dict[tuple[str, PartitionName], _Kept] = {}
"""By run and partition, the last used at the end."""
_MOST_RUNS = 4
"""How many runs (stages of queries, or engines) a worker keeps partitions of."""


def advance(plan: TaskPlan, step: TaskStep, name: PartitionName, arriving: pa.Table, *, files: bool = False) -> Outcome:
    """Advance one partition by one batch. With `files`, many results are written, and do not pass the driver."""
    begin, key = time.perf_counter(), f"{plan.run}-{step.number}-{plan.names.index(name)}-{secrets.token_hex(4)}"
    assert step.visibility is not None  # noqa: S101
    visibility, budgets = _with_own_budgets(step.visibility)
    record, cached = None, False
    views = [view for view, (query, _) in enumerate(visibility.targets) if query]
    if name[0] == STATELESS:
        stateless = Stateless(plan.program, plan.evaluate)
        passed = stateless.results(arriving, visibility)
        results = [packed(x, tuples, stateless=True) for x, tuples in passed]
        counted = stateless.counted()
        done = {view: counted.of(view) for view in views}
    else:
        kept, cached = _partition(plan, step, name)
        before, origins = kept.partition.counted(), dict[int, int]()
        for new, old in visibility.copied:
            origins[new] = origins.get(old, old)
        found = kept.partition.advance(arriving, of_group(plan.group(name[0]), visibility), kept.tables[1])
        blocks = Counter(block.query for block in (*plan.program.blocks, *plan.program.stateless))
        results = [packed(x, tuples, stateless=False, one_block=blocks[x.block.query] == 1) for x, tuples in found]
        counted = kept.partition.counted()
        done = {view: since(before.of(origins.get(view, view)), counted.of(view)) for view in views}
        record = recorded(plan, key, kept.partition, step.identities)
        kept.key, kept.step = key, step.number
        _KEPT[plan.run, name] = kept
    if files:
        results = [
            written.to_file(plan.storage, written.file_name(key, number), x) if len(x) >= written.WORTH_IT else x
            for number, x in enumerate(results)
        ]
    process = f"{socket.gethostname()}:{os.getpid()}"
    seconds, work = time.perf_counter() - begin, {view: x for view, x in done.items() if x}
    return Outcome(name, record, results, (), None, budgets, seconds, process, cached, work)


def _with_own_budgets(visibility: Visibility) -> tuple[Visibility, dict[int, Budget]]:
    """The visibility with budgets that only this partition spends, and these by view. The driver adds up those of all
    partitions."""
    copies: dict[int, Budget] = {}
    own: dict[int, Budget] = {}
    for column, budget in visibility.budgets.items():
        if id(budget) not in copies:
            copies[id(budget)] = own[column] = Budget(budget.limits, budget.spent)
    return replace(visibility, budgets={column: copies[id(x)] for column, x in visibility.budgets.items()}), own


def _partition(plan: TaskPlan, step: TaskStep, name: PartitionName) -> tuple[_Kept, bool]:
    """The partition in the state that the step names, taken out of memory or loaded."""
    base, group = step.base.records.get(name), plan.group(name[0])
    _forget(plan, step)
    kept = _KEPT.pop((plan.run, name), None)
    cached = kept is not None and base is not None and kept.key == base.key
    if kept is None or not cached:
        kept = _Kept("", Partition(group.program, group.schema, plan.evaluate), (0, None))
        step.base.load(kept.partition, name, group, plan.storage)
    elif step.base.changed is not None:
        kept.partition.renumber_visibility(step.base.changed)
    if kept.tables[0] != step.tables[0]:
        assert step.visibility is not None  # noqa: S101
        number, tables = step.tables
        kept.tables = number, None if tables is None else plan.parts(tables, step.visibility.levels)[name]
    return kept, cached


def _forget(plan: TaskPlan, step: TaskStep) -> None:
    """Drop partitions that no step will ask for again: another worker has advanced them, or their run is over. Those
    that this step has advanced here already are what the next one asks for."""
    current = {(plan.run, name): base.key for name, base in step.base.records.items()}
    runs = [plan.run, *dict.fromkeys(run for run, _ in reversed(_KEPT) if run != plan.run)][:_MOST_RUNS]
    for key, kept in list(_KEPT.items()):
        if key[0] not in runs or (key[0] == plan.run and kept.step != step.number and current.get(key) != kept.key):
            del _KEPT[key]
