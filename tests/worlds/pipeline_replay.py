"""The steps of a random world through a whole pipeline, compared with the oracle."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from random import Random

import pyarrow as pa
from plan.test_meaning import agree

from headgate.egress.mailbox import Mailbox
from headgate.egress.sinks import Verify
from headgate.execution.executors import Executor, LocalExecutor, PartitionedExecutor
from headgate.execution.partition_groups import partition_groups
from headgate.execution.tasks.adaptive import AdaptiveExecutor, Placement
from headgate.execution.tasks.executor import TaskExecutor
from headgate.execution.tasks.step import Tasks
from headgate.expressions import duck
from headgate.expressions.sql.types import ARROW
from headgate.ingress.validation import RawBatch
from headgate.model.query import ContinuousQuery
from headgate.model.rejected import RejectedRows
from headgate.model.results import ResultBatch, delivered_results
from headgate.model.snapshot import CatalogSnapshot
from headgate.model.stream import StreamDescriptor
from headgate.operators.program import Program
from headgate.plan.expressions import Type, Value
from headgate.recovery.messages import LATE
from headgate.recovery.pipeline import Pipeline
from headgate.storage import LocalStorage
from headgate.testing.clock import ManualClock
from headgate.testing.oracle import OracleResult
from worlds.oracle_expressions import evaluate
from worlds.pipeline_model import Model, Wanted
from worlds.pipeline_worlds import Author, Step, World
from worlds.processor_replay import in_order
from worlds.task_process import FileBatch, as_json


class OwnSnapshots:
    """What is wanted at the moment, and while results go out."""

    def __init__(self, snapshot: CatalogSnapshot) -> None:
        self.now = self.during = snapshot

    def snapshot(self) -> CatalogSnapshot:
        return self.now

    @contextmanager
    def open(self) -> Iterator[CatalogSnapshot]:
        yield self.during

    def verify(self) -> None:
        pass


class Lost(Exception):
    """The process ends here."""


class Records(Mailbox):
    """A mailbox that writes down what it is given; what was not yet out when the process ended comes again."""

    name = "records"
    keeps = False

    def __init__(self) -> None:
        super().__init__()
        self.results: Wanted = {}
        self.rejected: Counter[str] = Counter()
        self.ended = set[tuple[str, str]]()
        self.fails = False
        self._coming: Sequence[RejectedRows] = ()

    def prepare(self, results: Sequence[ResultBatch], rejected: Sequence[RejectedRows], *, as_staged: bool) -> None:
        super().prepare(results, rejected, as_staged=as_staged)
        self._coming = rejected

    def publish(self, verify: Verify) -> None:  # noqa: ARG002
        if self.fails:
            raise Lost
        results, rejected = self._ready, self._coming
        for x in delivered_results(results):
            found = self.results.setdefault((x.subscriber, x.query), [])
            found.append(OracleResult(x.time, x.values, x.label, x.block))  # type: ignore[arg-type]
        self.ended |= {(name, x.query) for x in results if x.ended for name in x.subscribers}
        for part in rejected:
            self.rejected[part.reason] += len(part.rows)


class Dice(Placement):
    """Work moves at random."""

    def __init__(self, rng: Random) -> None:
        super().__init__()
        self._rng = rng

    def in_tasks(self, size: int, held: int, *, now: bool) -> bool:  # noqa: ARG002
        return self._rng.random() < 0.7


class Replay:
    """The steps of a world through a pipeline."""

    def __init__(self, world: World, home: Path, tasks: Tasks | None = None) -> None:
        self.world = world
        self.tasks = tasks
        self.rng = Random(world.seed)
        self.clock = ManualClock(0.0)
        self.snapshots = OwnSnapshots(world.steps[0].snapshot)
        self.sink = Records()
        self.home = home
        self.evaluate = evaluate if self.rng.random() < 0.85 else duck.evaluate
        self.numbers: Counter[str] = Counter()
        self.content = world.steps[0].content
        self.pipeline = self.fresh()

    def fresh(self) -> Pipeline:
        partitions = self.rng.choice((0, 0, 1, 2, 3, 5))

        def make(queries: Sequence[ContinuousQuery], program: Program, schema: pa.Schema) -> Executor:
            if self.tasks is not None:
                return self.in_tasks(queries, program, schema)
            if not partitions:
                return LocalExecutor(program, schema, self.evaluate)
            return PartitionedExecutor(program, partition_groups(queries), partitions, self.evaluate)

        return Pipeline(self.home, self.snapshots, make, [self.sink], self.clock, read_table=self.read_table)

    def in_tasks(self, queries: Sequence[ContinuousQuery], program: Program, schema: pa.Schema) -> Executor:
        """In 1, 3 or 8 partitions; or each batch where a die says."""
        count, tasks = self.rng.choice((1, 3, 8)), self.tasks
        storage = LocalStorage(self.home.resolve() / "state")
        assert tasks is not None

        def there() -> TaskExecutor:
            return TaskExecutor(program, schema, partition_groups(queries), count, self.evaluate, tasks, storage)

        def here() -> LocalExecutor:
            return LocalExecutor(program, schema, self.evaluate)

        if self.rng.random() < 0.5:
            return AdaptiveExecutor(program, schema, here, there, Dice(self.rng))
        return there()

    def read_table(self, descriptor: StreamDescriptor) -> RawBatch:
        return RawBatch(_arrow(descriptor.columns, [row for row, _ in self.content[descriptor.name]]))

    def step(self, step: Step) -> Records:
        """What went out with it."""
        self.sink = Records()
        self.content = step.content
        if step.kind == "restart":
            self.pipeline.close()
            self.snapshots.now = self.snapshots.during = step.snapshot
            self.pipeline = self.fresh()
            return self.sink
        self.pipeline._committer.destinations._sinks = [self.sink]
        self.sink.fails = step.lost
        self.snapshots.now, self.snapshots.during = step.snapshot, step.during
        try:
            if step.kind == "end":
                self.pipeline.end()
            elif step.kind == "look" and step.settled is not None:
                self.pipeline.pass_time({step.stream: step.settled})
            else:
                self.clock.advance(step.now - self.clock.now())
                self.pipeline.take(step.stream, self.numbers[step.stream], self.batch(step), settled=step.settled)
                self.numbers[step.stream] += 1
        except Lost:
            self.numbers[step.stream] += 1
        return self.sink

    def batch(self, step: Step) -> pa.Table | FileBatch:
        table = self.table(step)
        if self.tasks is None or self.rng.random() < 0.2:
            return table
        text, path = None, self.home / "input" / f"{step.stream} {self.numbers[step.stream]}"
        if step.stream in step.snapshot.descriptors and self.rng.random() < 0.4:
            text = as_json(table, step.snapshot.descriptors[step.stream])
        return FileBatch(table, path, self.rng.randint(1, 3), text)

    def table(self, step: Step) -> pa.Table:
        columns = next(x.columns for x in self.world.streams if x.name == step.stream)
        return _arrow(columns, step.rows)


def _arrow(columns: Sequence[tuple[str, Type]], rows: Sequence[Mapping[str, Value]]) -> pa.Table:
    arrays = [pa.array([row.get(name) for row in rows], ARROW[type_]) for name, type_ in columns]
    return pa.table(arrays, names=[name for name, _ in columns])


def one_case(
    seed: int,
    home: Path,
    counts: Counter[str],
    *,
    unrest: bool = False,
    tables: bool = False,
    tasks: Tasks | None = None,
) -> None:
    """`tasks` runs the partitions, where there are several; None: they run in this process."""
    world = Author(seed, unrest=unrest, tables=tables).world()
    replay = Replay(world, home, tasks)
    model = Model(world)
    expected = model.delivered()
    ends = [
        {
            (path[0], q)
            for (path, q), at in model.ends.items()
            if n in at and len(path) == 1 and may_see(step, path[0], q)
        }
        for n, step in enumerate(world.steps)
    ]
    try:
        for number, step in enumerate(world.steps):
            compare(f"seed {seed}, step {number}, {step.kind}", step, replay.step(step), expected[number])
            if step.kind != "restart" and step.during is step.snapshot and not step.lost:
                assert replay.sink.ended == ends[number], f"seed {seed}, step {number}"
            count(step, expected[number], counts)
            counts["ended"] += len(ends[number])
    finally:
        replay.pipeline.close()


def may_see(step: Step, subscriber: str, query: str) -> bool:
    """Whoever may see nothing of a query is not told that it ended."""
    clearance, during = step.during.clearances.get((subscriber, query)), step.during
    return clearance is not None and during.rules.order.dominates(clearance.level, during.running[query].level)


def compare(where: str, step: Step, found: Records, expected: Wanted) -> None:
    for key in sorted(found.results.keys() | expected.keys()):
        query = step.during.running[key[1]].query if key[1] in step.during.running else None
        assert query is not None, f"{where}: {key} does not run"
        ours, theirs = (in_order(query, x.get(key, [])) for x in (found.results, expected))
        assert agree(ours, theirs), f"{where}: {key}"
    if step.kind != "restart" and not step.lost:
        late = sum(n for reason, n in found.rejected.items() if reason.startswith(LATE))
        assert late <= len(step.tuples) and found.rejected.total() - late == sum(step.refused.values()), where
        assert found.rejected.items() >= step.refused.items(), where


def count(step: Step, expected: Wanted, counts: Counter[str]) -> None:
    counts[step.kind] += 1
    counts["lost"] += step.lost
    for (_, query), results in expected.items():
        counts["results"] += len(results)
        counts[f"results of stage {step.during.running[query].stage}"] += len(results)
        counts[f"{step.during.running[query].mode} results"] += len(results)
        counts["results with tables"] += len(results) * bool(step.during.running[query].tables)
