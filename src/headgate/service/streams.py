"""Spark runs the pipeline's input: it reads every stream in micro-batches, records its progress, and recovers.

Each stream is a streaming query of its own with its own checkpoint, so streams come and go without affecting others.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property
from logging import WARNING
from pathlib import Path
from threading import Lock

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from headgate.clock import Clock, SystemClock
from headgate.cql.source_options import LISTING
from headgate.errors import ColumnsChanged, HeadgateError, SourceError, StoreError
from headgate.ingress.kafka_messages import fetched, read_messages
from headgate.ingress.parquet_reader import Files, addresses, files_of, in_order_of_time, local_paths
from headgate.ingress.pushdown import Pushdown, RegisterLabels
from headgate.ingress.read_files import ReadFiles, vanished
from headgate.ingress.source_log import is_cleaned, is_due, trim
from headgate.ingress.sources import StreamSource, in_order, kind_of, read_stream, read_texts, takes_all
from headgate.ingress.spark_reader import DecodedBatch, decoded
from headgate.ingress.splits import Split, splits_of
from headgate.ingress.text_files import local_file, read_files
from headgate.ingress.text_formats import Text
from headgate.ingress.time_budget import TimeBudget
from headgate.ingress.validation import RawBatch
from headgate.levels.shepherd import Shepherd
from headgate.logs import event, failure
from headgate.recovery.home import CHECKPOINTS
from headgate.recovery.pipeline import Pipeline

FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0
"""Seconds until a source that could not be read is tried again; the pause doubles each time."""
_AT_ONCE = 8
_CALLBACKS = Lock()
"""The first stream starts Spark's callback server; two that start at the same time would start it twice."""


@dataclass(frozen=True)
class SparkBatch:
    """A micro-batch. Each access reads it anew, with Arrow where it consists of files that Arrow can read. For text
    files it holds only their names."""

    frame: DataFrame
    source: StreamSource
    started: Future[StreamingQuery]
    patience: TimeBudget = field(default_factory=TimeBudget)

    @cached_property
    def files(self) -> Files | None:
        return files_of(self.source, self.started)

    def decoded(self, pushdown: Pushdown, now: int, register: RegisterLabels) -> DecodedBatch | None:
        """None: the batch is read whole. What queries ask of Spark here may fail, which is no fault of the stream."""
        if self.source.text is not None or self.source.topic is not None:
            return None
        with suppress(Exception):
            if self.files is not None:
                return self.files.decoded(pushdown, now, register)
            return decoded(self.frame, self.source.descriptor, pushdown, now, register, self.patience)
        return None

    def size(self) -> int:
        with suppress(Exception):
            return sum(os.stat(path).st_size for path, _ in local_paths(addresses(self.started) or ()) or ())
        return 0

    def splits(self) -> list[Split] | None:
        """None: tasks cannot read its format, or its files cannot be found."""
        source, text = self.source, self.source.text
        if text is None and (source.format != "parquet" or not LISTING.issuperset(map(str.lower, source.options))):
            return None
        with suppress(Exception):
            found = addresses(self.started)
            return None if found is None else splits_of(found, text)
        return None

    def is_small(self) -> bool:
        """Whether it is known to be far below the bound of a batch."""
        with suppress(Exception):
            here = local_paths(addresses(self.started) or ())
            if here:
                return takes_all(self.source, [os.stat(path).st_size for path, _ in here])
        return False

    def all_rows(self) -> RawBatch:
        with self._reporting():
            if (text := self.source.text) is not None:
                return self._texts(text)
            if (topic := self.source.topic) is not None:
                return read_messages(topic, fetched(self.frame))
            return self.files.all_rows() if self.files is not None else RawBatch(in_order(self.frame.toArrow()))

    def _texts(self, text: Text) -> RawBatch:
        """Asks Spark only for what its plan does not say."""
        found = None
        with suppress(Exception):
            found = addresses(self.started)
        here = local_paths(found) if found is not None else None
        if here is None:
            return read_texts(text, self.frame)
        paths, notes = in_order_of_time(here)
        whole = read_files(text, [local_file(path) for path in paths])
        return replace(whole, notes=[*notes, *whole.notes])

    @contextmanager
    def _reporting(self) -> Iterator[None]:
        try:
            yield
        except HeadgateError:
            raise
        except Exception as error:
            failure("ingress", "a batch could not be read", error, level=WARNING, stream=self.source.name)
            raise _stuck(self.source.name, error) from None


@dataclass
class _SourceFailure:
    """A source that could not be read.

    pause: seconds to wait after its next failure
    until: before this time nothing is decided about it: whether to try it again or, while it is tried, whether it is
        sound
    """

    error: SourceError
    pause: float
    until: float


class Runner:
    """A source that cannot be read stops no other. It is tried again, unless sources are read to their end only
    (`finite`)."""

    def __init__(
        self, spark: Callable[[], SparkSession], home: Path, pipeline: Pipeline | Shepherd, clock: Clock | None = None
    ) -> None:
        """`spark` is called when the first stream is read."""
        self._session = spark
        self._home = home
        self._pipeline = pipeline
        self._clock = clock or SystemClock()
        self._queries: dict[str, StreamingQuery] = {}
        self._threads = ThreadPoolExecutor(1)
        self._faults: dict[str, Exception] = {}
        self._failures: dict[str, _SourceFailure] = {}
        self._read_files: dict[str, ReadFiles] = {}
        self._small: dict[str, bool] = {}
        self._columns: dict[str, object] = {}
        """The columns that each streaming query reads."""
        self._delayed: frozenset[str] = frozenset()
        self._finite = False

    @cached_property
    def _spark(self) -> SparkSession:
        return self._session()

    @property
    def failed(self) -> dict[str, SourceError]:
        """The streams that cannot be read at the moment, and why."""
        return {name: failed.error for name, failed in sorted(self._failures.copy().items())}

    def read(self, sources: Mapping[str, StreamSource], *, finite: bool = False) -> None:
        """Reads exactly these streams from now on."""
        self._finite = finite
        self._delayed = frozenset(name for name, x in sources.items() if x.descriptor.delay is not None)
        for name in self._queries.keys() - sources.keys():
            self._queries.pop(name).stop()
        for name in self._failures.keys() - sources.keys():
            del self._failures[name]
        for name in [x for x in self._queries if self._is_to_begin_anew(sources[x])]:
            self._queries.pop(name).stop()  # it goes on below, where it was
        if not finite:  # Spark treats a folder that is gone as an empty one
            for name in list(self._queries):
                if (error := vanished(name, sources[name].path)) is not None:
                    self._queries.pop(name).stop()
                    self._note(name, error)
        now = self._clock.now()
        due = []
        for name in sorted(sources):
            failed = self._failures.get(name)
            if failed is None or (now >= failed.until and not finite):
                due.append(name)
        for name in (name for name in due if name in self._queries and self._has_looked(name)):
            self._failures.pop(name, None)
        self._try([sources[name] for name in due if name not in self._queries], finite=finite)

    def _has_looked(self, name: str) -> bool:
        """Whether a source that was started again was looked at: a start alone may take long, and proves nothing."""
        with suppress(Exception):
            return self._queries[name].lastProgress is not None
        return False

    def _is_to_begin_anew(self, source: StreamSource) -> bool:
        """With new columns, or to trim Spark's log of its files."""
        if self._columns[source.name] != source.descriptor.columns:
            return True
        place = self._home / CHECKPOINTS / checkpoint_name(source.name)
        return is_cleaned(source.options) and is_due(place)

    def changed(self) -> dict[str, list[str]]:
        """The files that changed after they were read, by stream; each change is reported once."""
        found: dict[str, list[str]] = {}
        for name in sorted(self._queries):
            place = self._home / CHECKPOINTS / checkpoint_name(name)
            found[name] = self._read_files.setdefault(name, ReadFiles(place)).changed()
        return {name: files for name, files in found.items() if files}

    def _try(self, sources: Sequence[StreamSource], *, finite: bool) -> None:
        """Starts sources in parallel: each waits for Spark, which starts several as fast as one."""
        if not sources:
            return
        _ = self._spark  # before the threads: it is started once, and if that fails no source is to blame
        with ThreadPoolExecutor(min(len(sources), _AT_ONCE)) as self._threads:
            begun = {source.name: self._threads.submit(self._begin, source, finite=finite) for source in sources}
        failed = {name: error for name, future in begun.items() if (error := future.exception()) is not None}
        for name, error in failed.items():
            if isinstance(error, HeadgateError) and not isinstance(error, SourceError):
                raise error  # the state and the checkpoint are not of one history
            if not isinstance(error, Exception):
                raise error
            self._note(name, error if isinstance(error, SourceError) else _stuck(name, error))

    def _begin(self, source: StreamSource, *, finite: bool) -> None:
        """Registers the streaming query as soon as it exists, whatever happens to others, even if the waiting caller is
        interrupted."""
        self._columns[source.name] = source.descriptor.columns
        self._queries[source.name] = self._start(source, finite=finite)
        if (failed := self._failures.get(source.name)) is not None:
            failed.until = self._clock.now() + failed.pause

    def _note(self, name: str, error: SourceError) -> None:
        known = self._failures.get(name)
        pause = known.pause if known else FIRST_PAUSE
        self._failures[name] = _SourceFailure(error, min(2 * pause, LONGEST_PAUSE), self._clock.now() + pause)

    def wait(self, seconds: float | None = None) -> bool:
        """Waits until all streams end, or so many seconds; returns whether they ended. Raises any fault that is not of
        a source."""
        ended = True
        for name, query in list(self._queries.items()):
            try:
                if seconds is None or not query.isActive or (ended and query.awaitTermination(seconds)):  # type: ignore[arg-type]
                    query.awaitTermination()
                else:
                    ended = False  # still check whether another one has failed
            except Exception as error:
                del self._queries[name]
                fault = self._faults.pop(name, None) or _stuck(name, error)
                if isinstance(fault, ColumnsChanged) and not self._finite:
                    continue  # it is started again
                if not isinstance(fault, SourceError):
                    raise fault from None
                self._note(name, fault)
        return ended

    def stop(self) -> None:
        """Stops all: also those that were starting when the start was interrupted, and those beside one that cannot be
        stopped."""
        self._threads.shutdown(cancel_futures=True)
        with ExitStack() as all_:
            for query in self._queries.values():
                all_.callback(self._stop, query)
            self._queries.clear()

    def _stop(self, query: StreamingQuery) -> None:
        """A signal to the whole process group ends Spark too, perhaps before its streams are stopped here; then nothing
        is left to stop."""
        try:
            query.stop()
        except (Py4JError, PySparkException, OSError):
            if self._spark_works():
                raise
            event("ingress", "Spark ended before a stream was stopped")

    def _spark_works(self) -> bool:
        with suppress(Exception):
            return not self._spark.sparkContext._jsc.sc().isStopped()
        return False

    def _start(self, source: StreamSource, *, finite: bool) -> StreamingQuery:
        started: Future[StreamingQuery] = Future()
        patience = TimeBudget()
        self._faults.pop(source.name, None)  # of an earlier query, stopped before anybody asked

        place = self._home / CHECKPOINTS / checkpoint_name(source.name)

        def batch(frame: DataFrame, number: int) -> None:
            try:
                given = SparkBatch(frame, source, started, patience)
                settled = self._settled(given, place, number)
                self._pipeline.take(source.name, number, given, clock_of(place, number), settled)
                self._failures.pop(source.name, None)
            except ColumnsChanged as error:
                event("ingress", "the columns of a stream have changed", stream=source.name, batch=number)
                self._faults[source.name] = error
                raise
            except Exception as error:
                failure("ingress", "a batch failed", error, level=WARNING, stream=source.name, batch=number)
                self._faults[source.name] = error
                raise

        if finite and source.endless:
            raise SourceError(
                f"cannot read stream {source.name} to its end: `{source.format}` has none", hint="run it with --follow"
            )
        check_history(source.name, place, self._pipeline.done(source.name))
        forget_unbegun(place)
        if is_cleaned(source.options):
            trim(place)
        event("ingress", "stream started", stream=source.name, format=source.format)
        with _CALLBACKS:
            ensure_callback_server_started(self._spark.sparkContext._gateway)  # type: ignore[no-untyped-call]
        writer = read_stream(self._spark, source).writeStream.foreachBatch(batch)
        writer = writer.option("checkpointLocation", str(place))
        try:
            started.set_result((writer.trigger(availableNow=True) if finite else writer).start())
        except Exception as error:
            raise _stuck(source.name, error) from None
        return started.result()

    def _settled(self, batch: SparkBatch, checkpoint: Path, number: int) -> int | None:
        """The clock such that this batch and those before it have all tuples that came before it; None: not known. The
        files of the batch before this one were listed after the clock of the batch before that one was read."""
        if batch.source.descriptor.delay is None:
            return None
        before, self._small[batch.source.name] = self._small.get(batch.source.name, False), batch.is_small()
        return clock_of(checkpoint, number - 2) if before and self._small[batch.source.name] else None

    def idle(self) -> dict[str, int]:
        """By stream with a declared delay: the clock, in milliseconds, when Spark last began to look for tuples and
        found none. All that came before it has been taken."""
        found: dict[str, int] = {}
        for name, query in list(self._queries.items()):
            with suppress(Exception):  # one that has not looked yet, or is ending
                progress = query.lastProgress if name in self._delayed else None
                if progress is not None and "addBatch" not in progress["durationMs"]:
                    found[name] = int(datetime.fromisoformat(progress["timestamp"]).timestamp() * 1000)
        return found


def _stuck(stream: str, error: Exception) -> SourceError:
    return SourceError(f"cannot read stream {stream} any further: {kind_of(error)}")


def checkpoint_name(stream: str) -> str:
    """The folder of a stream's checkpoint: its name for people, as far as every file system accepts it, and a digest
    that tells apart names that look the same."""
    readable = re.sub(r"[^A-Za-z0-9_.-]", "_", stream)[:60].lstrip("._")
    return f"{readable}-{hashlib.sha256(stream.encode()).hexdigest()}"


def check_history(stream: str, checkpoint: Path, done: int) -> None:
    """Batches have the numbers of Spark's checkpoint: if checkpoint and state are not of one history, batches would be
    confused, and lost. INVARIANT: Spark records that a batch begins, then it is `done`, then Spark records that it
    ended."""
    hint = "restore both from one backup, or read everything again with --fresh"
    if done > _last(checkpoint / "offsets"):
        raise StoreError(
            f"cannot continue stream {stream}: its checkpoint `{checkpoint}` is missing or older than the state",
            hint=hint,
        )
    if done < _last(checkpoint / "commits"):
        raise StoreError(
            f"cannot continue stream {stream}: the state is missing or older than `{checkpoint}`", hint=hint
        )


def forget_unbegun(checkpoint: Path) -> None:
    """Removes what a crash left of the first batch before it began: Spark would not start beside it, and it contains
    nothing that is not found again."""
    if _last(checkpoint / "offsets") < 0:
        shutil.rmtree(checkpoint, ignore_errors=True)


def clock_of(checkpoint: Path, number: int) -> int | None:
    """The clock when a batch was made, in milliseconds. Spark stores it with the batch before the batch begins, so a
    recomputation after a crash uses the same clock. None: it is not there."""
    with suppress(OSError, ValueError, TypeError, LookupError):
        _, metadata, *_ = (checkpoint / "offsets" / str(number)).read_text().splitlines()
        return int(json.loads(metadata)["batchTimestampMs"])
    return None


def _last(log: Path) -> int:
    """The number of the last batch in one of Spark's logs."""
    return max((int(path.name) for path in log.glob("*") if path.name.isdigit()), default=-1)
