"""Spark carries a pipeline: it reads every stream in micro-batches, remembers how far it came, and recovers.

Each stream is a streaming query of its own with its own checkpoint, so streams come and go without touching the others.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from urllib.parse import quote

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from headgate.engine.compact import Compact, compacted
from headgate.engine.files import Files, files_of
from headgate.engine.pipeline import Pipeline
from headgate.engine.sources import SourceError, StreamSource, in_order, read_stream
from headgate.engine.wanted import Learn, Wanted
from headgate.errors import StoreError


@dataclass(frozen=True)
class SparkBatch:
    """A micro-batch; it is read anew each time, by Arrow where it is made of files that Arrow can read."""

    frame: DataFrame
    source: StreamSource
    started: Future[StreamingQuery]

    @cached_property
    def files(self) -> Files | None:
        return files_of(self.source, self.started)

    def compact(self, wanted: Wanted, now: int, learn: Learn) -> Compact | None:
        if self.files is not None:
            return self.files.compact(wanted, now, learn)
        return compacted(self.frame, self.source.entrance, wanted, now, learn)

    def whole(self) -> pa.Table:
        return self.files.whole() if self.files is not None else in_order(self.frame.toArrow())


class Runner:
    def __init__(self, spark: SparkSession, home: Path, pipeline: Pipeline) -> None:
        self._spark = spark
        self._home = home
        self._pipeline = pipeline
        self._queries: dict[str, StreamingQuery] = {}
        self._faults: dict[str, Exception] = {}

    def read(self, sources: Mapping[str, StreamSource], *, finite: bool = False) -> None:
        """From now on these streams are read, and no others."""
        for name in self._queries.keys() - sources.keys():
            self._queries.pop(name).stop()
        for name in sorted(sources.keys() - self._queries.keys()):
            self._queries[name] = self._start(sources[name], finite=finite)

    def wait(self, seconds: float | None = None) -> bool:
        """Until all that is read ends, or so many seconds; whether it ended. What failed is raised."""
        ended = True
        for name, query in self._queries.items():
            try:
                if seconds is None or not query.isActive or (ended and query.awaitTermination(seconds)):  # type: ignore[arg-type]
                    query.awaitTermination()
                else:
                    ended = False  # whether another one has failed is looked at nevertheless
            except Exception as error:
                raise self._fault(name, error) from None
        return ended

    def stop(self) -> None:
        for query in self._queries.values():
            query.stop()
        self._queries.clear()

    def _fault(self, name: str, error: Exception) -> Exception:
        """What our own code raised inside of a batch, or else what Spark says, in one line: its full text may hold
        values of tuples."""
        if name in self._faults:
            return self._faults[name]
        kind = getattr(error, "getCondition", lambda: None)() or type(error).__name__
        return SourceError(f"stream {name} could not be read on ({kind})")

    def _start(self, source: StreamSource, *, finite: bool) -> StreamingQuery:
        started: Future[StreamingQuery] = Future()

        def batch(frame: DataFrame, number: int) -> None:
            try:
                self._pipeline.take(source.name, number, SparkBatch(frame, source, started))
            except Exception as error:
                self._faults[source.name] = error
                raise

        place = self._home / "checkpoints" / quote(source.name, safe="")
        check_history(source.name, place, self._pipeline.done(source.name))
        forget_unbegun(place)
        writer = read_stream(self._spark, source).writeStream.foreachBatch(batch)
        writer = writer.option("checkpointLocation", str(place))
        started.set_result((writer.trigger(availableNow=True) if finite else writer).start())
        return started.result()


def check_history(stream: str, checkpoint: Path, done: int) -> None:
    """Batches have the numbers of Spark's checkpoint: if that and the state are not of one history, batches would be
    taken for others, and lost. Spark notes that a batch begins, then it is `done`, then Spark notes that it ended."""
    hint = "put both back as they were together, or read everything again with --fresh"
    if done > _last(checkpoint / "offsets"):
        raise StoreError(
            f"`{checkpoint}` is gone or older than the state: what was read of stream {stream} is not known any more",
            hint=hint,
        )
    if done < _last(checkpoint / "commits"):
        raise StoreError(f"the state is gone or older than `{checkpoint}`: tuples of {stream} would be lost", hint=hint)


def forget_unbegun(checkpoint: Path) -> None:
    """What a crash left of the first batch before it began: Spark would not start beside it, and nothing is in it that
    is not found again."""
    if _last(checkpoint / "offsets") < 0:
        shutil.rmtree(checkpoint, ignore_errors=True)


def _last(log: Path) -> int:
    """The number of the last batch in one of Spark's logs."""
    return max((int(path.name) for path in log.glob("*") if path.name.isdigit()), default=-1)
