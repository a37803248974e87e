"""The executor whose partitions run in tasks. The driver keeps no tuple: it knows of each partition the record of its
state, how many tuples that holds, and which visibility rows they have."""

from __future__ import annotations

import pickle
import secrets
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from headgate.columns.sorting import Ints, distinct
from headgate.execution.executors import (
    Executor,
    PartitionedExecutor,
    Partitions,
    are_divided_so,
    as_one,
    divided,
)
from headgate.execution.partition_groups import PartitionGroup
from headgate.execution.partitions import PartitionName, PartitionStates, gathered
from headgate.execution.tasks.step import (
    STATELESS,
    Base,
    DerivedSplit,
    IndexBefore,
    Intake,
    Outcome,
    ResultIntake,
    SplitStep,
    TaskPlan,
    TaskRecord,
    Tasks,
    TaskStep,
    recorded,
)
from headgate.execution.tasks.written import is_results_of
from headgate.expressions.limits import Evaluate
from headgate.ingress.splits import Split
from headgate.model.results import BlockResults
from headgate.model.times import NO_TIME
from headgate.model.visibility import HIDDEN, Visibility, VisibilityRows
from headgate.operators.partition import Partition
from headgate.operators.partition_state import StoredPartition
from headgate.operators.profile import Step as Done
from headgate.operators.profile import added, side_by_side
from headgate.operators.program import TIME, VISIBILITY, Program
from headgate.operators.segments import Numbers, Write
from headgate.storage import Storage
from headgate.visibility.index import VisibilityIndex
from headgate.visibility.role_limits import WindowChanges


class TaskExecutor(Executor):
    """`tasks` runs the partitions; `storage` holds their states. `index` is that of the processor."""

    index: VisibilityIndex

    def __init__(
        self,
        program: Program,
        schema: pa.Schema,
        groups: Sequence[PartitionGroup],
        partitions: int,
        evaluate: Evaluate,
        tasks: Tasks,
        storage: Storage,
    ) -> None:
        self._plan = TaskPlan(secrets.token_hex(8), program, schema, tuple(groups), partitions, evaluate, storage)
        self._tasks = tasks
        self._base = Base()
        self._steps = 0
        self._tables: tuple[int, pa.Table | None] = (0, None)
        self.counts: dict[int, dict[str, Done]] = {}
        """What steps did, by view: tasks return what they did in a batch."""
        self.outcomes: list[Outcome] = []
        """Of the last batch."""
        self._written = False
        """Whether tasks have written results of the last batch to files."""

    # State ------------------------------------------------------------------------------------------------------------

    @property
    def partitions(self) -> PartitionStates:
        """The driver reads everything: work moves, or queries change."""
        return {name: self._partition(name).state() for name in self._base.records}

    def _partition(self, name: PartitionName) -> Partition:
        group = self._plan.group(name[0])
        partition = Partition(group.program, group.schema, self._plan.evaluate)
        self._base.load(partition, name, group, self._plan.storage)
        return partition

    def save(self, write: Write, identities: Ints) -> dict[PartitionName, dict[str, Any]]:  # noqa: ARG002
        """Everything is written already."""
        return {name: dict(x.record) for name, x in self._base.records.items()}

    def __len__(self) -> int:
        return sum(x.size for x in self._base.records.values())

    def visibilities(self) -> Ints:
        found = [x.rows for x in self._base.records.values()]
        rows = distinct(np.concatenate([np.empty(0, np.int64), *found]))
        return rows if self._base.changed is None else distinct(self._base.changed[rows])

    def waiting(self, views: Sequence[int], table: VisibilityRows, since: int) -> Ints:
        """Asked for only if a view comes close to a limit of its owner's roles: the driver reads the states."""
        kept = gathered(self.partitions).table
        visibilities, times = (kept.column(x).to_numpy() for x in (VISIBILITY, TIME))
        seen = (table[:, views] != HIDDEN).any(axis=1)[visibilities]
        return np.asarray(times[seen & (times >= since)], np.int64)

    def waits(self, since: int, until: int) -> bool:
        """Whether a tuple may wait: it is certain only that none does."""
        return since < until and self.latest >= since

    @property
    def latest(self) -> int:
        return max((x.latest for x in self._base.records.values()), default=NO_TIME)

    def renumber_visibility(self, changed: Ints) -> None:
        """Tasks do it when they have the partition."""
        self._base = self._base.renumbered(changed)

    def restore(
        self, partitions: Partitions, streams: tuple[str, ...], visibility: Visibility, numbers: Numbers
    ) -> None:
        """Partitions that tasks wrote and that are divided alike are taken as they are, and not read."""
        plan = self._plan
        self._base = Base(visibility=visibility, numbering=self.index.numbering())
        stored = {name: x for name, x in partitions.items() if isinstance(x, StoredPartition)}
        known = {name: x.record for name, x in stored.items() if "task" in x.record}
        if known.keys() == partitions.keys() and are_divided_so(partitions, plan.groups, plan.partitions):
            records = {name: TaskRecord.of(x, numbers) for name, x in known.items()}
            self._base = replace(self._base, records=records)
            return
        state = as_one(partitions, streams, plan.program, plan.schema, plan.evaluate, visibility, numbers)
        records = {}
        for group in plan.groups:
            for name, part in divided(group, state, visibility, plan.partitions):
                partition = Partition(group.program, group.schema, plan.evaluate)
                partition.adopt(part)
                records[name] = recorded(plan, f"{plan.run}-0-{secrets.token_hex(8)}", partition, self.index.identities)
        self._base = replace(self._base, records=records)

    # Batches ----------------------------------------------------------------------------------------------------------

    def run(self, arriving: pa.Table, visibility: Visibility, tables: pa.Table | None) -> list[BlockResults]:
        step = replace(self._step(tables), visibility=visibility, identities=self.index.identities)
        parts = self._plan.parts(arriving, visibility.levels)
        each = -(-arriving.num_rows // self._plan.partitions)
        for name in (x for x in self._plan.names if x[0] == STATELESS):
            parts[name] = arriving.slice(name[1] * each, each)
        return self.take(self._tasks.run(self._plan, step, parts), visibility)

    def run_splits(
        self,
        intake: Intake,
        splits: Sequence[Split],
        tables: pa.Table | None,
        arrived: int,
        floors: Mapping[str, int],
    ) -> list[Outcome]:
        """Process a batch that tasks read, or have it refused; nothing has changed then. The caller moves the index by
        the summaries of the splits, and then takes the outcomes."""
        before = IndexBefore(pickle.dumps(self.index), intake.descriptor.name, floors)
        return self._tasks.run_splits(self._plan, SplitStep(self._step(tables), arrived, before), intake, splits)

    def run_results(
        self, splits: Sequence[DerivedSplit], visibility: Visibility, tables: pa.Table | None, arrived: int
    ) -> list[BlockResults]:
        """As `run`, for results of an earlier stage, which tasks read."""
        if not splits:
            return self.run(self._plan.schema.empty_table(), visibility, tables)
        step = replace(self._step(tables), visibility=visibility, identities=self.index.identities)
        intake = ResultIntake(visibility.levels)
        return self.take(self._tasks.run_splits(self._plan, SplitStep(step, arrived), intake, splits), visibility)

    def label_texts(self, intake: Intake, splits: Sequence[Split]) -> set[tuple[str | None, ...]]:
        return self._tasks.label_texts(intake, splits)

    def _step(self, tables: pa.Table | None) -> TaskStep:
        """The next batch; its visibility is still to come."""
        if tables is not self._tables[1]:
            self._tables = self._tables[0] + 1, tables
        self._steps += 1
        return TaskStep(self._steps, self._base, None, np.empty(0, np.int64), self._tables)

    def take(self, outcomes: list[Outcome], visibility: Visibility) -> list[BlockResults]:
        """Continue from what the tasks have written. Limits are sums over partitions."""
        self.outcomes = outcomes
        for new, old in visibility.copied:
            self.counts[new] = dict(self.counts.get(old, {}))
        records = {x.name: x.record for x in outcomes if x.record is not None}
        self._base = Base(records, self.index.after_batch(), self.index.numbering())
        for view in {view: None for x in outcomes for view in x.work}:
            done = side_by_side(x.work.get(view, {}) for x in outcomes)
            self.counts[view] = added(self.counts.get(view, {}), done)
        found = [self._in_reach(result) for x in outcomes for result in x.results]
        for column in {column: None for x in outcomes for column in x.used}:
            budget = visibility.budgets[column]
            before, used = budget.spent, [x.used[column] for x in outcomes if column in x.used]
            exceeded = dict.fromkeys(limit for other in used for limit in budget.add(other, before))
            found += [_exceeded(visibility, column, budget.limits.exceeded(x)) for x in exceeded]
        return found

    def _in_reach(self, results: BlockResults) -> BlockResults:
        """Results in a file are read by whoever needs them, until the batch is delivered."""
        place = results.written
        if place is None:
            return results
        self._written = True
        return replace(results, written=replace(place, workers=self._tasks))

    def delivered(self) -> None:
        """The results of the last batch are not needed any more, nor those of attempts that did not count."""
        if self._written:
            self._plan.storage.delete(x for x in self._plan.storage.names() if is_results_of(self._plan.run, x))
            self._written = False

    def counted(self) -> Callable[[int], dict[str, Done]]:
        counts = dict(self.counts)
        return lambda view: dict(counts.get(view, {}))

    def state_changes(
        self, arriving: pa.Table, visibility: Visibility, tables: pa.Table | None, views: Collection[int]
    ) -> list[WindowChanges]:
        """Asked for only if a view comes close to a limit of its owner's roles: computed beside the driver."""
        plan = self._plan
        beside = PartitionedExecutor(plan.program, plan.groups, plan.partitions, plan.evaluate)
        before = replace(visibility, until=visibility.since)
        beside.restore(self.partitions, plan.program.streams, before, self.index.numbers_of)
        return beside.state_changes(arriving, visibility, tables, views)


def _exceeded(visibility: Visibility, column: int, why: str) -> BlockResults:
    query, block = visibility.targets[column]
    nothing = np.empty(0, np.int64)
    return BlockResults(query, block, (column,), nothing, (), nothing, (), (), why)
