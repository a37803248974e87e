"""A pipeline whose batches tasks read: all, or those that a placement sends to them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import pyarrow as pa

from headgate.execution.executors import Executor, LocalExecutor
from headgate.execution.partition_groups import partition_groups
from headgate.execution.tasks.adaptive import AdaptiveExecutor, Placement
from headgate.execution.tasks.executor import TaskExecutor
from headgate.expressions.duck import evaluate
from headgate.model.query import ContinuousQuery
from headgate.operators.program import Program
from headgate.recovery.home import STATE
from headgate.recovery.pipeline import Pipeline
from headgate.storage import LocalStorage
from worlds.harness import Bench
from worlds.task_process import FileBatch, TasksHere


def in_tasks(found: Bench, placement: Placement | None = None, tasks: TasksHere | None = None) -> Callable[[], None]:
    """Begins the pipeline; returns how to take the next four tuples of the stream `s`."""
    tasks = tasks or TasksHere()

    def make(queries: Sequence[ContinuousQuery], program: Program, schema: pa.Schema) -> Executor:
        def there() -> TaskExecutor:
            storage = LocalStorage(found.home / STATE)
            return TaskExecutor(program, schema, partition_groups(queries), 2, evaluate, tasks, storage)

        here = partial(LocalExecutor, program, schema, evaluate)
        return there() if placement is None else AdaptiveExecutor(program, schema, here, there, placement)

    pipeline = found.pipeline = Pipeline(found.home, found, make, [found.mailbox], found.clock)

    def take() -> None:
        number = pipeline.done("s") + 1
        rows = found.table("s", [("TRUE", n, "x") for n in range(4)])
        pipeline.take("s", number, FileBatch(rows, found.home / "in" / f"{number}", 2))

    return take
