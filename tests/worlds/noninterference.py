"""Two runs of a pipeline that differ only in what one observer may not see, and everything that it can see of each.

A *world* is what both runs have in common: streams, queries (some over results of others), those who subscribe, when
they come, go and change their rights, and the tuples that the observer may see, split into batches. *Noise* is put in
for each run anew: tuples, bad rows and whole batches that it may not see, and values of columns that it may not read.
The same is put into a table, which queries of the observer's read beside streams.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Sequence
from contextlib import chdir, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import pyarrow as pa

from headgate.egress.mailbox import Mailbox
from headgate.egress.parquet import ParquetSink
from headgate.egress.sinks import Address, FileSink, Sink
from headgate.execution.executors import Executor, LocalExecutor, PartitionedExecutor
from headgate.execution.partition_groups import partition_groups
from headgate.expressions import duck
from headgate.expressions.sql.types import ARROW
from headgate.ingress.validation import RawBatch
from headgate.model.query import ContinuousQuery
from headgate.model.results import delivered_results
from headgate.model.snapshot import CatalogSnapshot
from headgate.model.stream import StreamDescriptor
from headgate.operators.program import Program
from headgate.plan.expressions import Type, Value
from headgate.recovery.pipeline import Pipeline
from headgate.testing import ManualClock
from worlds.harness import Read, malformed_rows
from worlds.noninterference_noise import Noise
from worlds.noninterference_values import (
    AT,
    BEGIN,
    OBSERVER,
    POLICY,
    Batch,
    Fetch,
    Look,
    Restart,
    Row,
    Step,
    Wanted,
    World,
)
from worlds.noninterference_worlds import random_world
from worlds.oracle_expressions import evaluate as plainly


class Snapshots:
    def __init__(self) -> None:
        self.now = CatalogSnapshot()

    def snapshot(self) -> CatalogSnapshot:
        return self.now

    @contextmanager
    def open(self) -> Iterator[CatalogSnapshot]:
        yield self.now

    def verify(self) -> None:
        pass


class Places:
    def __init__(self, world: World) -> None:
        self._columns = {x.name: tuple(name for name, _ in x.query.columns) for x in world.queries}

    def of(self, subscriber: str, query: str) -> Address:
        return Address((subscriber, query), self._columns[query])

    def of_rejected(self, stream: str) -> tuple[str, ...]:
        return ("owner", f"{stream}.rejected")


@dataclass
class Seen:
    """All that reaches the observer, in order, how many results these are, and how many queries ended for it."""

    results: int = 0
    ended: int = 0
    told: list[object] = field(default_factory=list)


class Run:
    """One run of a world, watched."""

    def __init__(self, world: World, home: Path, content: tuple[Row, ...] = ()) -> None:
        self._world = world
        self._content = content
        self._home = home
        self._out = home / "out"
        self._snapshots = Snapshots()
        self._clock = ManualClock(BEGIN.timestamp())
        self._columns = {stream.name: stream.columns for stream in world.streams}
        self._numbers: dict[str, int] = {}
        self._sizes: dict[str, int] = {}
        self.seen = Seen()
        self._begin()

    def _begin(self) -> None:
        self._mailbox = Mailbox(most=12)
        kind = ParquetSink if self._world.parquet else FileSink
        sinks: list[Sink] = [self._mailbox, kind(self._out, Places(self._world))]
        home, read = self._home / "engine", self._read_table
        self._pipeline = Pipeline(home, self._snapshots, self._make, sinks, self._clock, read_table=read)

    def _read_table(self, descriptor: StreamDescriptor) -> RawBatch:
        return _whole(descriptor.name, descriptor.columns, self._content)

    def _make(self, running: Sequence[ContinuousQuery], program: Program, schema: pa.Schema) -> Executor:
        values = plainly if self._world.quick else duck.evaluate
        if self._world.partitions:
            return PartitionedExecutor(program, partition_groups(running), self._world.partitions, values)
        return LocalExecutor(program, schema, values)

    def all(self, noise: Noise) -> Seen:
        """The observer looks at files between the steps of the world, and not when batches end: when files grow is
        told by the disk (SPEC.md, 5.3)."""
        try:
            for step in noise.steps(self._world.steps):
                for part in noise.batches(step) if isinstance(step, Batch) else [step]:
                    self._step(part)
                self._look()
            self._pipeline.end()
            self._fetch()
        except Exception as error:
            raise AssertionError(f"the pipeline broke for everyone: {error!r}") from error
        finally:
            self._pipeline.close()
        self.seen.told.append({str(x): (self._home / x).read_bytes() for x in self._files()})
        self._count()
        return self.seen

    def _step(self, step: Step) -> None:
        match step:
            case Wanted(snapshot):
                self._snapshots.now = snapshot
            case Fetch():
                self._fetch()
            case Restart():
                self._count()
                self._pipeline.close()
                self._begin()
            case Look(settled):
                begin = int(BEGIN.timestamp() * 1000)
                self._pipeline.pass_time({stream: begin + clock for stream, clock in settled.items()})
            case Batch(stream, rows, clock):
                number = self._numbers[stream] = self._numbers.get(stream, -1) + 1
                came = int(BEGIN.timestamp() * 1000) + clock
                self._pipeline.take(stream, number, Read(_whole(stream, self._columns[stream], rows)), came)

    def _look(self) -> None:
        """A file that changes tells something each time."""
        sizes = {str(x): (self._home / x).stat().st_size for x in self._files()}
        if sizes != self._sizes:
            self.seen.told.append(sizes)
            self._sizes = sizes

    def _files(self) -> list[Path]:
        with chdir(self._home):
            return sorted(x for x in (Path("out") / OBSERVER).rglob("*") if x.is_file())

    def _fetch(self) -> None:
        now = self._snapshots.now
        self.seen.told.append({key: n for key, n in self._mailbox.lost.items() if key[0] == OBSERVER})
        for query in sorted(x.query for x in now.subscribers if x.name == OBSERVER):
            result_batches = self._mailbox.fetch(OBSERVER, query, now)
            self.seen.told.append(([x.ended for x in result_batches if x.ended], delivered_results(result_batches)))
            self.seen.ended += sum(bool(result_batch.ended) for result_batch in result_batches)

    def _count(self) -> None:
        counted = {k: n for k, n in self._pipeline.counts.results.items() if k[1] == OBSERVER}
        self.seen.told.append(counted)
        self.seen.results += sum(counted.values())


def _whole(stream: str, columns: tuple[tuple[str, Type], ...], rows: Sequence[Row]) -> RawBatch:
    """A batch as a reader hands it over: malformed rows are rejected already."""
    bad = [row.malformed for row in rows if row.malformed is not None]
    table = _table(columns, [row for row in rows if row.malformed is None])
    return RawBatch(table, [malformed_rows(stream, *bad)] if bad else [])


def _table(columns: tuple[tuple[str, Type], ...], rows: Sequence[Row]) -> pa.Table:
    def partition(row: Row, name: str) -> Value:
        if name == AT:
            return None if row.time is None else BEGIN + dt.timedelta(milliseconds=row.time)
        return row.label if name == POLICY else row.values[name]

    known = {name: pa.array([partition(row, name) for row in rows], ARROW[type_]) for name, type_ in columns}
    return pa.table(known)


def pair(seed: int, home: Path, *, together: bool = False, results: int | None = None) -> tuple[Seen, Seen, int]:
    """Two runs of one world, and how many rows they differ in at least."""
    world = random_world(Random(seed), together=together, results=results)
    noise = [Noise(Random(f"{seed} {number}"), world) for number in range(2)]
    one, two = (Run(world, home / f"{seed}-{n}", x.content(world.content)).all(x) for n, x in enumerate(noise))
    return one, two, sum(x.rows for x in noise)
