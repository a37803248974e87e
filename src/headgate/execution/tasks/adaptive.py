"""An executor that runs beside the driver while batches and state are small, and in tasks when they are large.

A job in tasks costs a tenth of a second and more before any work, and a batch beside the driver has one core: so both
are kept, and the executor moves at batch boundaries. What a batch costs follows the tuples that come, whatever is held,
so small batches stay beside the driver as long as it has room for the state. Only sizes decide, and results are the
same wherever they are computed."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from headgate.columns.sorting import Ints
from headgate.execution.executors import Executor, LocalExecutor, Partitions
from headgate.execution.partitions import PartitionName, PartitionStates
from headgate.execution.tasks.executor import TaskExecutor
from headgate.labels import Rules
from headgate.logs import event
from headgate.model.results import BlockResults
from headgate.model.visibility import Visibility, VisibilityRows
from headgate.operators.partition_state import StoredPartition
from headgate.operators.profile import Step, continued
from headgate.operators.program import Program
from headgate.operators.segments import Numbers, Write
from headgate.visibility.index import VisibilityIndex
from headgate.visibility.role_limits import WindowChanges


@dataclass
class Placement:
    """Decides where the next batch runs.

    bytes: a batch of so many bytes goes to tasks
    tuples: a state of so many tuples goes to tasks
    calm: after so many batches far below both (a quarter), work returns to the driver
    possible: whether tasks can run at all; asked when they are wanted
    """

    bytes: int = 32 << 20
    tuples: int = 10_000_000
    calm: int = 8
    possible: Callable[[], bool] = lambda: True
    _calm: int = 0

    def in_tasks(self, size: int, held: int, *, now: bool) -> bool:
        """Whether a batch of this size runs in tasks; `now` says whether the one before did."""
        if size >= self.bytes or held >= self.tuples:
            self._calm = 0
            return self.possible()
        small = size < self.bytes // 4 and held < self.tuples // 4
        self._calm = self._calm + 1 if small else 0
        return now and self._calm < self.calm


class AdaptiveExecutor(Executor):
    """`here` and `there` make the executors beside the driver and in tasks."""

    def __init__(
        self,
        program: Program,
        schema: pa.Schema,
        here: Callable[[], LocalExecutor],
        there: Callable[[], TaskExecutor],
        placement: Placement,
    ) -> None:
        self._program, self._schema = program, schema
        self._here, self._there = here, there
        self._placement = placement
        self._now: LocalExecutor | TaskExecutor = here()
        self._earlier: dict[int, dict[str, Step]] = {}
        """What was counted, by view, before work moved to the driver."""
        self.index = VisibilityIndex(Rules())

    @property
    def in_tasks(self) -> TaskExecutor | None:
        """The executor in tasks, if that is where the next batch runs."""
        return self._now if isinstance(self._now, TaskExecutor) else None

    def choose_executor(self, size: int) -> None:
        """Move to where a batch of so many bytes should run. Called before the batch."""
        was = self.in_tasks is not None
        wanted = self._placement.in_tasks(size, len(self), now=was)
        if wanted != was:
            event("tasks", "work moves", to="tasks" if wanted else "driver", held=len(self), bytes=size)
            states, counted = self.partitions, self.counted()
            counts = {column: counted(column) for view in self.index.views for column in view.columns}
            self._now = self._new(in_tasks=wanted)
            self._earlier = {} if wanted else counts
            if self.in_tasks is not None:
                self.in_tasks.counts = counts
            self._now.restore(states, self._program.streams, self.index.after_batch(), self.index.numbers_of)

    def _new(self, *, in_tasks: bool) -> LocalExecutor | TaskExecutor:
        if not in_tasks:
            return self._here()
        tasks = self._there()
        tasks.index = self.index
        return tasks

    @property
    def partitions(self) -> PartitionStates:
        return self._now.partitions

    def __len__(self) -> int:
        return len(self._now)

    def visibilities(self) -> Ints:
        return self._now.visibilities()

    def waiting(self, views: Sequence[int], table: VisibilityRows, since: int) -> Ints:
        return self._now.waiting(views, table, since)

    def save(self, write: Write, identities: Ints) -> dict[PartitionName, dict[str, Any]]:
        return self._now.save(write, identities)

    def waits(self, since: int, until: int) -> bool:
        return self._now.waits(since, until)

    @property
    def latest(self) -> int:
        return self._now.latest

    def renumber_visibility(self, changed: Ints) -> None:
        self._now.renumber_visibility(changed)

    def restore(
        self, partitions: Partitions, streams: tuple[str, ...], visibility: Visibility, numbers: Numbers
    ) -> None:
        """States that tasks wrote stay with tasks, if these can run; the driver can read them too."""
        written = (x.record for x in partitions.values() if isinstance(x, StoredPartition))
        by_tasks = any("task" in record for record in written)
        self._now = self._new(in_tasks=by_tasks and self._placement.possible())
        self._now.restore(partitions, streams, visibility, numbers)

    def run(self, arriving: pa.Table, visibility: Visibility, tables: pa.Table | None) -> list[BlockResults]:
        for new, old in visibility.copied:
            self._earlier[new] = self._earlier.get(old, {})
        return self._now.run(arriving, visibility, tables)

    def counted(self) -> Callable[[int], dict[str, Step]]:
        earlier, now = dict(self._earlier), self._now.counted()
        return lambda view: continued(earlier.get(view, {}), now(view))

    def state_changes(
        self, arriving: pa.Table, visibility: Visibility, tables: pa.Table | None, views: Collection[int]
    ) -> list[WindowChanges]:
        return self._now.state_changes(arriving, visibility, tables, views)
