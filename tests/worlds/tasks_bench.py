"""A join and an aggregate for three readers, computed in tasks; results go to Parquet files."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from headgate.egress.parquet import ParquetSink
from headgate.execution.executors import Executor, LocalExecutor
from headgate.execution.partition_groups import partition_groups
from headgate.execution.tasks.executor import TaskExecutor
from headgate.execution.tasks.step import Tasks
from headgate.expressions.duck import evaluate
from headgate.expressions.limits import Evaluate
from headgate.model.query import ContinuousQuery
from headgate.model.snapshot import CatalogSnapshot
from headgate.operators.program import Program
from headgate.recovery.pipeline import Pipeline
from headgate.storage import LocalStorage
from worlds.harness import NOW, Bench, stream
from worlds.task_process import FileBatch, TasksHere

Row = tuple[object, ...]
READERS = {"ann": "nurse", "bob": "doctor", "cy": "nurse,doctor"}
JOIN = "SELECT a.k, a.v, b.v AS w FROM a [RANGE 2 SECONDS], b [RANGE 2 SECONDS] WHERE a.k = b.k"
MEAN = "SELECT k, COUNT(*) AS n, AVG(v) AS mean FROM a [PARTITIONED BY k ROWS 3] GROUP BY k"
CHAIN = {
    "steady": "SELECT k, v, w WHERE v > 3 FROM out.joined",
    "pairs": "SELECT k, COUNT(*) AS n FROM out.steady [RANGE 3 SECONDS SLIDE 1 SECOND] GROUP BY k",
    "means": "SELECT MAX(mean) AS most, SUM(n) AS n FROM out.mean [ROWS 5]",
    "both": "SELECT k, n FROM out.pairs WHERE n > 1 UNION ALL SELECT k, n FROM out.pairs WHERE n > 2",
}
"""Queries over the results of `InTasks`, up to three stages after them."""


class InTasks(Bench):
    """A join and an aggregate for three readers, whose results go to Parquet; batches are files that tasks read."""

    def __init__(self, home: Path, partitions: int = 3) -> None:
        super().__init__(home, stream("a", "k INT, v INT"), stream("b", "k INT, v INT"))
        self.partitions = partitions
        self.tasks: Tasks = TasksHere(1)
        self.evaluate: Evaluate = evaluate
        self.during: CatalogSnapshot | None = None
        """What rights are when results are published, if they are others than when they were computed."""
        for name, text in (("joined", JOIN), ("mean", MEAN)):
            self.query(name, text)
        self.everyone()

    def everyone(self, **other: str | None) -> None:
        roles = {**READERS, **other}
        who = {f"{name}.{query}": (query, x) for name, x in roles.items() if x is not None for query in self.queries}
        self.subscribed(**who)

    def read_on(self) -> None:
        """Everyone also subscribes to queries over these results."""
        for name, text in CHAIN.items():
            self.query(name, text)
        self.everyone()

    @contextmanager
    def open(self) -> Iterator[CatalogSnapshot]:
        yield self.during or self.now

    def make(self, queries: Sequence[ContinuousQuery], program: Program, schema: pa.Schema) -> Executor:
        if not self.partitions:
            return LocalExecutor(program, schema, evaluate)
        storage, groups = LocalStorage(self.home.resolve() / "state"), partition_groups(queries)
        return TaskExecutor(program, schema, groups, self.partitions, self.evaluate, self.tasks, storage)

    def start(self) -> Pipeline:
        sink = ParquetSink(self.home / "out", self)
        self.pipeline = Pipeline(self.home, self, self.make, [sink], self.clock, self.limits, self.read_table)
        return self.pipeline

    def give(self, number: int, rows: int = 30, *, back: int = 0) -> None:
        """Both streams, one batch each; `back`: so many seconds earlier than they should be."""
        pipeline = self.pipeline or self.start()
        for name in ("a", "b"):
            labels = ("nurse", "doctor", "nurse | doctor", "nurse & doctor", "porter")
            given: list[Row] = [(labels[x % 5], (number + x) % 4, x) for x in range(rows)]
            first = NOW + dt.timedelta(seconds=4 * number - back)
            times = [first + dt.timedelta(milliseconds=100 * x) for x in range(rows)]
            self.clock.advance(max(0, (times[-1].timestamp() + 60) - self.clock.now()))
            table = self.table(name, given, times)
            pipeline.take(name, number, FileBatch(table, self.home / "input" / f"{name}{number}", 3))

    def received(self) -> dict[str, list[Row]]:
        """What each reader finds in its folders, in the order of times."""
        found: dict[str, list[Row]] = {}
        for path in sorted((self.home / "out").glob("*/*/*.parquet")):
            rows = pq.read_table(path).to_pylist()
            found.setdefault("/".join(path.parts[-3:-1]), []).extend(tuple(row.values()) for row in rows)
        return {key: sorted(rows, key=str) for key, rows in found.items()}
