"""A run: reads the sources, processes the queries, and delivers every subscriber's results under current rights.

It needs no session of its own: a user who may start it can read the store and the sources anyway. Delivery is decided
result by result, for each subscriber.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from logging import WARNING
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession

from headgate.access.definitions import SourceDefinition
from headgate.clock import Clock, SystemClock
from headgate.egress.sinks import Sink
from headgate.errors import HeadgateError, SourceError
from headgate.execution.executors import Executor, LocalExecutor
from headgate.execution.memory import GarbageCollector, collect_rarely, keep_freed
from headgate.execution.partition_groups import partition_groups
from headgate.execution.tasks.adaptive import AdaptiveExecutor, Placement
from headgate.execution.tasks.executor import TaskExecutor
from headgate.execution.tasks.spark_tasks import SparkTasks
from headgate.expressions.duck import evaluate
from headgate.ingress.ingress_log import PublishedSource
from headgate.ingress.read_files import changed_message
from headgate.ingress.sources import PACKED_AT_MOST, StreamSource, read_table
from headgate.ingress.spark import LOCAL, session_beside, spark_session
from headgate.ingress.spark_settings import SparkSettings
from headgate.ingress.validation import RawBatch
from headgate.levels.shepherd import LevelsSetting, Shepherd, SinksOf
from headgate.logs import event
from headgate.model.limits import Limits
from headgate.model.query import ContinuousQuery
from headgate.model.snapshot import SnapshotSource
from headgate.model.stream import StreamDescriptor
from headgate.operators.program import Program
from headgate.protocol import PUBLISH
from headgate.recovery.counts import RunCounts
from headgate.recovery.deadline_samples import DEADLINES
from headgate.recovery.deadlines import Governing
from headgate.recovery.home import STATE
from headgate.recovery.pipeline import Pipeline
from headgate.service.cluster import check_workers
from headgate.service.headgate import Headgate
from headgate.service.streams import Runner
from headgate.service.timekeeper import Timekeeper
from headgate.storage import LocalStorage, Storage
from headgate.stores import StateLocation

OFTEN = 0.5
"""How often, in seconds, to check whether other streams have to be read."""
SELDOM = 5.0
"""How often, in seconds, to check whether files changed that were read already."""
PACKED_IN_TASKS = 64 << 20
"""How many bytes of Parquet files a batch has that tasks read: a job costs time before any work, and no process holds
all of its tuples."""


@dataclass(frozen=True)
class Execution:
    """Where operators run: beside the driver, in Spark's tasks in so many partitions, or (`auto`) where the size of
    batches and state suggests, as far as workers can run them."""

    mode: str = "auto"
    partitions: int = 8


@dataclass(frozen=True)
class LevelsApart:
    """A processor for each level, and the sinks for its results."""

    setting: LevelsSetting
    sinks: SinksOf


class Unread(SourceError):
    """Streams that could not be read to their end, and why."""

    def __init__(self, streams: Mapping[str, SourceError]) -> None:
        super().__init__("; ".join(error.message for error in streams.values()))
        self.streams = streams


class Processing:
    def __init__(
        self,
        headgate: Headgate,
        home: Path,
        sinks: Sequence[Sink],
        *,
        snapshots: SnapshotSource | None = None,
        master: str | None = LOCAL,
        settings: SparkSettings | None = None,
        clock: Clock | None = None,
        ingress: PublishedSource | None = None,
        spark: SparkSession | None = None,
        execution: Execution | None = None,
        limits: Limits | None = None,
        place: StateLocation | None = None,
        take_over: bool = False,
        levels: LevelsApart | None = None,
        governing: Governing | None = None,
    ) -> None:
        """`ingress` is where published tuples are, if this process serves senders; `spark` is a session that is
        there already; `execution` says where operators run; `limits` are those of each view (None: the usual ones);
        `place` is where the state is, if it is not in `home`; with `take_over` another process is replaced. With
        `levels`, each level has a processor and sinks of its own, and `sinks` and `execution` are not used. Deadlines
        count only with `governing`, for whoever follows sources: a replay of the past has none."""
        keep_freed()
        collect_rarely()
        self._headgate = headgate
        self._snapshots = snapshots or headgate
        self._home, self._master, self._settings, self._ingress, self._given = home, master, settings, ingress, spark
        self._execution = (execution or Execution()) if levels is None else Execution("driver")
        self._tasks = SparkTasks(lambda: self._spark)
        self._place = place
        self._pipeline: Pipeline | Shepherd
        if levels is not None:
            self._pipeline = Shepherd(
                home, self._snapshots, levels.sinks, clock or SystemClock(), levels.setting, limits, self._read_table
            )
        else:
            self._pipeline = Pipeline(
                home,
                self._snapshots,
                self._executor,
                sinks,
                clock or SystemClock(),
                limits,
                read_table=self._read_table,
                place=place,
                take_over=take_over,
                governing=None if governing is None else replace(governing, make=_beside_the_driver),
            )
        headgate.engine = self._pipeline
        self._runner = Runner(lambda: self._spark, home, self._pipeline, clock)
        self._timekeeper: Timekeeper | None = None  # lanes have their processors do such work
        if isinstance(self._pipeline, Pipeline):
            self._timekeeper = Timekeeper(self._pipeline, home / DEADLINES)
        self._told: set[str] = set()
        self._looked = 0.0
        self._news: list[tuple[str, str]] = []

    @cached_property
    def _spark(self) -> SparkSession:
        """Started as late as possible: a refused run is refused before Spark takes its seconds."""
        if self._given is not None:
            found = session_beside(self._given)
        else:
            found = spark_session(self._home, master=self._master, settings=self._settings)
        if self._execution.mode == "tasks":
            check_workers(found, self._place)
        return found

    @cached_property
    def _workers_fit(self) -> bool:
        """Whether workers can run our code, and reach the state. If they cannot be asked, they do not: it is no query's
        fault."""
        try:
            check_workers(self._spark, self._place)
        except Exception as error:
            why = error.message if isinstance(error, HeadgateError) else type(error).__name__
            event("tasks", "all work stays beside the driver", level=WARNING, why=why)
            return False
        return True

    def _executor(self, queries: Sequence[ContinuousQuery], program: Program, schema: pa.Schema) -> Executor:
        def here() -> LocalExecutor:
            return LocalExecutor(program, schema, evaluate)

        def there() -> TaskExecutor:
            groups, partitions = partition_groups(queries), self._execution.partitions
            storage: Storage = LocalStorage(self._home.resolve() / STATE)
            if self._place is not None:
                storage = self._place.below(STATE).storage()
            return TaskExecutor(program, schema, groups, partitions, evaluate, self._tasks, storage)

        if self._execution.mode == "auto":
            return AdaptiveExecutor(program, schema, here, there, Placement(possible=lambda: self._workers_fit))
        return there() if self._execution.mode == "tasks" else here()

    @property
    def counts(self) -> RunCounts:
        return self._pipeline.counts

    def warnings(self) -> list[str]:
        """Warnings for the operator, since the last call."""
        return self._pipeline.warnings()

    def notices(self) -> list[str]:
        """Changes of subscriptions since the last call."""
        return [str(notice) for notice in self._pipeline.notices()]

    @property
    def failed(self) -> Mapping[str, SourceError]:
        """The streams that cannot be read at the moment, and why."""
        return self._runner.failed

    def replay(self, watch: Callable[[], None] = lambda: None, *, end: bool = True) -> None:
        """Reads everything that the sources hold and that was not read before, to its end, and calls `watch` from time
        to time. With `end`, no more will come, so every open window becomes final. Raises what could not be read only
        after everything else is done."""
        self._runner.read(self._sources(), finite=True)
        while not self._runner.wait(OFTEN):
            watch()
        watch()  # a signal may have ended Spark too: then the sources are not to blame
        self._tell_what_changed()
        self._runner.stop()
        failed = {**self.failed, **self._pipeline.unreadable}
        if end:
            if isinstance(self._pipeline, Shepherd):  # only a server has it, and it reads every stream
                self._pipeline.end(_reasons(self.failed))
            else:
                self._pipeline.end(_reasons(self.failed), self._left_alone())
        if failed:
            raise Unread(failed)

    def follow(self, watch: Callable[[], None] = lambda: None) -> None:
        """Processes existing and new data until interrupted. A stream that cannot be read is retried again and
        again."""
        if self._timekeeper is not None:
            self._timekeeper.start()
        with GarbageCollector() as garbage:
            while True:
                self._runner.read(self._sources())
                self._runner.wait(OFTEN)
                watch()  # a signal may have ended Spark too: then the sources are not to blame
                self._tell_who_waits()
                if time.monotonic() - self._looked > SELDOM:
                    self._tell_what_changed()
                    self._looked = time.monotonic()
                self._pipeline.settle()
                self._pipeline.pass_time(self._runner.idle())
                garbage.collect_if_due()

    def _tell_who_waits(self) -> None:
        """Sends one notice each time a stream cannot be read any further, and one when it can be read again."""
        failed = self.failed
        new = {name: error for name, error in failed.items() if name not in self._told}
        if new:
            self._pipeline.wait(_reasons(new))
            for name, error in new.items():
                what = "a stream cannot be read; it is tried again"
                event("ingress", what, level=WARNING, stream=name, why=error.message)
        if again := self._told - failed.keys():
            self._pipeline.resume(again)
            for name in sorted(again):
                event("ingress", "a stream can be read again", level=WARNING, stream=name)
        self._told = set(failed)

    def stop(self) -> None:
        """Stops reading; everything taken so far is delivered and counted. What waits for its turn is done later."""
        self._runner.stop()
        if self._timekeeper is not None:
            self._timekeeper.stop()

    def _tell_what_changed(self) -> None:
        """Tells owners which files changed after they were read: they would wait for tuples that nobody reads."""
        notes = {name: [changed_message(path) for path in files] for name, files in self._runner.changed().items()}
        if notes:
            self._pipeline.tell(notes)
            self._news += [(name, text) for name, texts in notes.items() for text in texts]

    def news(self) -> list[tuple[str, str]]:
        """Messages about streams since the last call."""
        found, self._news = self._news, []
        return found

    def close(self) -> None:
        try:
            self.stop()
        finally:
            self._headgate.engine = None
            self._pipeline.close()

    def _left_alone(self) -> frozenset[str]:
        """The streams whose tuples only a server processes."""
        inputs = self._headgate.snapshots.inputs()
        return frozenset() if self._ingress is not None else published(inputs)

    def _sources(self) -> dict[str, StreamSource]:
        snapshot, inputs = self._snapshots.snapshot(), self._headgate.snapshots.inputs()
        read = {name for query in snapshot.queries for name in query.streams - query.tables} - self._left_alone()
        return {
            name: self._source(snapshot.descriptors[name], found.format, dict(found.options))
            for name, found in inputs.items()
            if name in read and name in snapshot.descriptors
        }

    @property
    def _packed_at_most(self) -> int:
        """How many bytes of Parquet files a batch has."""
        mode = self._execution.mode
        return PACKED_IN_TASKS if mode == "tasks" or (mode == "auto" and self._workers_fit) else PACKED_AT_MOST

    def _source(self, descriptor: StreamDescriptor, format_: str, options: Mapping[str, str]) -> StreamSource:
        """Published tuples are read from the ingress log."""
        if format_ == PUBLISH and self._ingress is not None:
            format_, options = self._ingress(descriptor.name)
        return StreamSource(descriptor, format_, options, self._packed_at_most)

    def _read_table(self, descriptor: StreamDescriptor) -> RawBatch:
        found = self._headgate.snapshots.inputs()[descriptor.name]
        return read_table(self._spark, StreamSource(descriptor, found.format, dict(found.options)))


def published(inputs: Mapping[str, SourceDefinition]) -> frozenset[str]:
    """The streams of these whose tuples are published to a server."""
    return frozenset(name for name, found in inputs.items() if found.format == PUBLISH)


def _beside_the_driver(_: Sequence[ContinuousQuery], program: Program, schema: pa.Schema) -> Executor:
    """Pieces are small, and a task would cost more than their work."""
    return LocalExecutor(program, schema, evaluate)


def _reasons(failed: Mapping[str, SourceError]) -> dict[str, str]:
    return {name: str(error) for name, error in failed.items()}
