"""Chains of queries computed in tasks: these read the batches from files, and what earlier stages made."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from random import Random

import pyarrow as pa

from headgate.execution.executors import Executor
from headgate.execution.partition_groups import partition_groups
from headgate.execution.tasks.executor import TaskExecutor
from headgate.execution.tasks.step import TaskRefusal
from headgate.labels import Label
from headgate.model.query import ContinuousQuery
from headgate.model.results import ResultBatch
from headgate.model.stream import StreamDescriptor
from headgate.model.tuples import TupleBatch
from headgate.operators.program import Program
from headgate.plan.expressions import Type
from headgate.plan.queries import Stream
from headgate.storage import LocalStorage
from worlds.chain_worlds import Replay, World
from worlds.oracle_expressions import evaluate
from worlds.task_process import FileBatch, TasksHere

_LATER = 1 << 50


class ReplayInTasks(Replay):
    """`refused` counts the batches that the driver had to decide."""

    def __init__(self, world: World, rng: Random, longest: int, home: Path, partitions: int = 3) -> None:
        self.tasks = TasksHere(rng.randrange(1 << 30))
        self.refused = 0
        self._home, self._partitions, self._number = home, partitions, 0
        super().__init__(world, rng, longest)

    def executor(self, queries: Sequence[ContinuousQuery], program: Program, schema: pa.Schema) -> Executor:
        storage = LocalStorage(self._home / "state")
        return TaskExecutor(program, schema, partition_groups(queries), self._partitions, evaluate, self.tasks, storage)

    def descriptor(self, stream: Stream, policy: Label) -> StreamDescriptor:
        columns = (*stream.columns, ("at", Type.TIMESTAMP), ("label", Type.STRING))
        return StreamDescriptor(stream.name, columns, "at", {"LABEL": "label"}, policy)

    def _results(self, batch: TupleBatch) -> list[ResultBatch]:
        graph, stream = self._graph, batch.stream
        if not graph.reads_splits(stream):
            self.refused += 1
            return graph.batch([batch])
        texts = list(map(str, batch.labels.tolist()))
        at = pa.array(batch.times * 1000, pa.timestamp("us", "UTC"))
        table = pa.table({**batch.columns, "at": at, "label": pa.array(texts, pa.string())})
        self._number += 1
        splits = FileBatch(table, self._home / "in" / f"{self._number}.parquet", 2).splits()
        found = graph.split_batch(stream, {(x,): int(x) for x in texts}, splits, _LATER, {})
        if isinstance(found, TaskRefusal):
            self.refused += 1
            return graph.batch([batch])
        for x in found[0]:
            _ = x.times  # they are read while they are there
        graph.delivered()
        return found[0]
