"""A running processor: Spark reads every stream in micro-batches, and each batch moves all views on, one after another.

Each stream is a streaming query of its own with its own checkpoint, so streams come and go without touching the others.
A batch is done when its state is written down, with its results in it; then they go out. What Spark repeats after a
crash is known by its number, and the results of the last version are written once more, which changes nothing.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from headgate.clock import Clock
from headgate.engine.processor import Delivery, Processor
from headgate.engine.sinks import Sink, delivery_of, plain_delivery
from headgate.engine.state import Saved, StateFolder
from headgate.engine.streams import Ingress, Refused, StreamSource, read_stream
from headgate.labels import Label, Rules


@dataclass
class Counts:
    """What happened, for the summary: tuples by stream, those refused by reason, results by query and subscriber."""

    tuples: Counter[str] = field(default_factory=Counter)
    refused: Counter[tuple[str, str]] = field(default_factory=Counter)
    results: Counter[tuple[str, str]] = field(default_factory=Counter)
    batches: int = 0


class Runner:
    """`number` gives labels their numbers; `before` is called before each batch, to bring rights up to date."""

    def __init__(
        self,
        spark: SparkSession,
        home: Path,
        processor: Processor,
        sources: Sequence[StreamSource],
        rules: Rules,
        number: Callable[[Label], int],
        clock: Clock,
        sink: Sink,
        before: Callable[[], None] = lambda: None,
    ) -> None:
        self._spark = spark
        self._home = home
        self._processor = processor
        self._sources = {source.name: source for source in sources}
        self._ingress = {source.name: Ingress(source, rules, number) for source in sources}
        self._clock = clock
        self._sink = sink
        self._before = before
        self._lock = threading.Lock()
        self._states = StateFolder(home / "state")
        self._version = 0
        self._done: dict[str, int] = {}
        self.counts = Counts()
        self.refused: list[Refused] = []
        self._go_on()

    def _go_on(self) -> None:
        """From the newest state, if there is one."""
        saved = self._states.newest()
        if saved is not None:
            self._version = saved.version
            self._done = dict(saved.rest["done"])
            self._processor.restore(saved.cell, saved.rest["processor"])
            self._sink.write(saved.version, [delivery_of(x) for x in saved.rest["results"]])

    def replay(self) -> None:
        """Everything that is there, to its end; then what waited for its time is final."""
        for query in [self._start(source, finite=True) for source in self._sources.values()]:
            query.awaitTermination()
        with self._lock:
            self._before()
            self._finish(self._processor.batch([], last=True))

    def follow(self) -> list[StreamingQuery]:
        """What is there and what comes, until the queries returned are stopped."""
        return [self._start(source, finite=False) for source in self._sources.values()]

    def _start(self, source: StreamSource, *, finite: bool) -> StreamingQuery:
        def batch(frame: DataFrame, number: int) -> None:
            self._batch(source.name, frame, number)

        place = self._home / "checkpoints" / source.name.replace("/", "%2F")
        writer = read_stream(self._spark, source).writeStream.foreachBatch(batch)
        writer = writer.option("checkpointLocation", str(place))
        return (writer.trigger(availableNow=True) if finite else writer).start()

    def _batch(self, stream: str, frame: DataFrame, number: int) -> None:
        table = frame.toArrow()
        with self._lock:
            if number <= self._done.get(stream, -1):
                return
            self._before()
            arrivals, refused = self._ingress[stream].take(table, int(self._clock.now() * 1000))
            self._done[stream] = number
            self._finish(self._processor.batch([arrivals]))
            self.refused += refused
            self.counts.batches += 1
            self.counts.tuples[stream] += table.num_rows
            self.counts.refused.update((x.stream, x.reason) for x in refused)

    def _finish(self, deliveries: Sequence[Delivery]) -> None:
        """The batch counts from here on; only then anybody sees its results."""
        self._version += 1
        cell, processor = self._processor.save()
        results = [plain_delivery(x) for x in deliveries]
        self._states.save(Saved(self._version, cell, {"done": self._done, "processor": processor, "results": results}))
        self.counts.results.update((x.query, x.subscriber) for x in deliveries)
        self._sink.write(self._version, deliveries)
