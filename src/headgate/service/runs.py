"""A run: reads the sources, processes the queries, and delivers every subscriber's results under current rights.

It needs no session of its own: a user who may start it can read the store and the sources anyway. Delivery is decided
result by result, for each subscriber.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path

from pyspark.sql import SparkSession

from headgate.clock import Clock, SystemClock
from headgate.egress.sinks import Address, Sink
from headgate.errors import SourceError
from headgate.execution.executors import LocalExecutor
from headgate.execution.memory import collect_rarely, keep_freed
from headgate.expressions.duck import evaluate
from headgate.ingress.ingress_log import PUBLISH, folder_name, spark_options
from headgate.ingress.read_files import changed_message
from headgate.ingress.sources import StreamSource, read_table
from headgate.ingress.spark import spark_session
from headgate.ingress.validation import Whole
from headgate.labels import source_shown
from headgate.model.snapshot import SnapshotSource
from headgate.model.stream import StreamDescriptor
from headgate.recovery.counts import Counts
from headgate.recovery.pipeline import Pipeline
from headgate.service.headgate import Headgate
from headgate.service.streams import Runner

OFTEN = 0.5
"""How often, in seconds, to check whether other streams have to be read."""
SELDOM = 5.0
"""How often, in seconds, to check whether files changed that were read already."""


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
        gate: SnapshotSource | None = None,
        master: str = "local[2]",
        clock: Clock | None = None,
        ingress: Path | None = None,
    ) -> None:
        """`ingress` is the folder of the ingress log, if this process serves senders."""
        keep_freed()
        collect_rarely()
        self._headgate = headgate
        self._gate = gate or headgate
        self._home, self._master, self._ingress = home, master, ingress
        self._pipeline = Pipeline(
            home,
            self._gate,
            lambda _, program, schema: LocalExecutor(program, schema, evaluate),
            sinks,
            clock or SystemClock(),
            read_table=self._read_table,
        )
        self._runner = Runner(self._spark, home, self._pipeline, clock)
        self._told: set[str] = set()
        self._looked = 0.0
        self._news: list[tuple[str, str]] = []

    @cached_property
    def _spark(self) -> SparkSession:
        """Started as late as possible: a refused run is refused before Spark takes its seconds."""
        return spark_session(self._home, master=self._master)

    @property
    def counts(self) -> Counts:
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
            self._pipeline.end(_reasons(self.failed))
        if failed:
            raise Unread(failed)

    def follow(self, watch: Callable[[], None] = lambda: None) -> None:
        """Processes existing and new data until interrupted. A stream that cannot be read is retried again and
        again."""
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

    def _tell_who_waits(self) -> None:
        """Sends one notice each time a stream cannot be read any further."""
        failed = self.failed
        new = {name: error for name, error in failed.items() if name not in self._told}
        if new:
            self._pipeline.wait(_reasons(new))
        self._told = set(failed)

    def stop(self) -> None:
        """Stops reading; everything taken so far is delivered and counted."""
        self._runner.stop()

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
            self._pipeline.close()

    def _sources(self) -> dict[str, StreamSource]:
        snapshot, inputs = self._gate.snapshot(), self._headgate.snapshots.inputs()
        read = {name for query in snapshot.queries for name in query.streams - query.tables}
        return {
            name: self._source(snapshot.descriptors[name], found.format, dict(found.options))
            for name, found in inputs.items()
            if name in read and name in snapshot.descriptors
        }

    def _source(self, descriptor: StreamDescriptor, format_: str, options: Mapping[str, str]) -> StreamSource:
        """Published tuples are files of the ingress log."""
        if format_ != PUBLISH or self._ingress is None:
            return StreamSource(descriptor, format_, options)
        folder = self._ingress / folder_name(descriptor.name)
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        return StreamSource(descriptor, "parquet", spark_options(folder))

    def _read_table(self, descriptor: StreamDescriptor) -> Whole:
        found = self._headgate.snapshots.inputs()[descriptor.name]
        return read_table(self._spark, StreamSource(descriptor, found.format, dict(found.options)))


def _reasons(failed: Mapping[str, SourceError]) -> dict[str, str]:
    return {name: str(error) for name, error in failed.items()}


class Folders:
    """Where results go in a folder: one folder for each user, and in it one file for each stream."""

    def __init__(self, headgate: Headgate) -> None:
        self._headgate = headgate

    def of(self, subscriber: str, query: str) -> Address:
        return Address.of(self._headgate.snapshots.outgoing(subscriber, query))

    def of_refused(self, stream: str) -> tuple[str, ...]:
        return (self._headgate.snapshots.owner(stream), f"{source_shown(stream)}.rejected")
