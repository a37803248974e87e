"""The processor: a program that runs the queries of one level (paper 002, section 3.2: untrusted, replicated).

It is the engine of `recovery/pipeline.py` with other surroundings: tuples come from files that the shepherd wrote,
rights come from the server, and results go to the server, which decides about them again. It has a state of its own in
its own folder, so a processor that was killed goes on where it was. It opens nothing else.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from traceback import extract_tb
from typing import Any

import pyarrow as pa
from numba.core import caching

from headgate.clock import SystemClock
from headgate.egress.log_records import encode
from headgate.egress.sinks import Sink, Verify
from headgate.errors import SourceError
from headgate.execution.executors import LocalExecutor
from headgate.execution.memory import collect_rarely, keep_freed
from headgate.execution.warm import warm
from headgate.expressions.duck import evaluate
from headgate.ingress.validation import RawBatch
from headgate.levels.live import DeadlineReporter
from headgate.levels.records import Part, read_record
from headgate.levels.wire import Channel, ChannelClosed, Message
from headgate.model.rejected import RejectedRows
from headgate.model.results import ResultBatch
from headgate.model.snapshot import CatalogSnapshot
from headgate.model.stream import StreamDescriptor
from headgate.model.tuples import TupleBatch
from headgate.plan.analysis import ViewCounts
from headgate.realtime.governor import warm as warm_governor
from headgate.recovery.deadlines import Governing
from headgate.recovery.pipeline import Pipeline

QUEUE, LOGS = Path("../queue"), Path("../../logs")
"""As the processor finds them from its own folder, which it works in."""


class LastSnapshot:
    """The catalog as the server told it last."""

    def __init__(self, snapshot: CatalogSnapshot) -> None:
        self.now = snapshot

    def snapshot(self) -> CatalogSnapshot:
        return self.now

    @contextmanager
    def open(self) -> Iterator[CatalogSnapshot]:
        yield self.now

    def verify(self) -> None:
        """The server holds rights while it decides; here nothing is decided for good."""


class ToServer(Sink):
    """Hands the results of a version to the server, and waits until they are delivered."""

    name = "server"
    keeps = False

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._identity, self._version = "", 0
        self._ready: Sequence[ResultBatch] = ()
        self._late: Sequence[RejectedRows] = ()

    def claim(self, owner: str, epoch: int = 0) -> None:  # noqa: ARG002
        self._identity = owner

    def state(self, results: Sequence[ResultBatch] = (), refused: Sequence[RejectedRows] = ()) -> dict[str, Any]:  # noqa: ARG002
        return {self.name: self._version}

    def restore(self, states: Mapping[str, Any], *, out: bool) -> None:  # noqa: ARG002
        self._version = states.get(self.name, 0)

    def stage(self, version: int, results: Sequence[ResultBatch], refused: Sequence[RejectedRows] = ()) -> None:  # noqa: ARG002
        self._version = version

    def staged(self, version: int) -> list[ResultBatch]:  # noqa: ARG002
        return []

    def prepare(self, results: Sequence[ResultBatch], refused: Sequence[RejectedRows], *, as_staged: bool) -> None:  # noqa: ARG002
        self._ready, self._late = results, refused

    def publish(self, verify: Verify) -> None:
        verify()

    def complete(self) -> None:
        """Rows are rejected by the shepherd; what a processor finds about tuples is that they came late."""
        late = [[x.stream, x.reason] for x in self._late]
        if self._ready or late:
            frames = (encode(self._version, x, None, 0.0) for x in self._ready)
            self._channel.send("results", *frames, identity=self._identity, version=self._version, late=late)
            _expect(self._channel, "delivered")

    def retain(self, now: CatalogSnapshot) -> None:
        """Nothing is held here."""


class LevelProcessor:
    """`read` reads a file of the queue or of a log."""

    def __init__(self, channel: Channel, folder: Path, read: Callable[[Path], bytes]) -> None:
        self._channel, self._read = channel, read
        self._queue, self._logs = folder / QUEUE, folder / LOGS
        begin = _expect(channel, "begin")
        self._gate = LastSnapshot(pickle.loads(begin.parts[0]))  # noqa: S301
        self._pipeline = Pipeline(
            folder / "engine",
            self._gate,
            lambda _, program, schema: LocalExecutor(program, schema, evaluate),
            [ToServer(channel)],
            SystemClock(),
            pickle.loads(begin.parts[1]),  # noqa: S301
            self._table,
            governing=Governing(),
        )
        self._reporter = DeadlineReporter(self._pipeline.deadlines)
        self._acts: Mapping[str, Callable[[Message], Any]] = {
            "take": self._take,
            "time": self._pass_time,
            "wait": lambda x: self._pipeline.wait(x.facts["unread"]),
            "resume": lambda x: self._pipeline.resume(x.facts["streams"]),
            "settle": lambda _: self._settle(),
            "end": lambda x: self._pipeline.end(x.facts["unread"]),
            "work": lambda _: self._pipeline.work(),
            "profile": lambda x: list(map(_plain, self._pipeline.profile(x.facts["query"], x.facts["subscriber"]))),
        }

    def run(self) -> None:
        self._channel.send("ready", done=self._pipeline.last_done, **self._reporter.facts(self._again))
        try:
            while (asked := self._channel.receive()).kind != "stop":
                if asked.kind == "snapshot":
                    self._gate.now = pickle.loads(asked.parts[0])  # noqa: S301
                    continue
                answer = self._acts[asked.kind](asked)
                notices = [str(x) for x in self._pipeline.notices()]
                again = answer if asked.kind == "work" else self._again
                self._channel.send("done", answer=answer, notices=notices, **self._reporter.facts(again))
        finally:
            self._pipeline.close()

    @property
    def _again(self) -> float | None:
        """After something else than work: there may be some now."""
        return 0.0 if self._pipeline.deadlines.queries else None

    def _settle(self) -> None:
        """Follows a change of rights. It may come long before the next tuples of this level: it is committed, and what
        has become final is evaluated."""
        self._pipeline.settle()
        self._pipeline.commit()
        self._pipeline.pass_time({})

    def _pass_time(self, asked: Message) -> None:
        """With `commit`, a batch said how late it is that had no tuples for this level."""
        self._pipeline.settle()  # those who have just come follow this clock too
        self._pipeline.pass_time(asked.facts["settled"])
        if asked.facts["commit"]:
            self._pipeline.commit()

    def _take(self, asked: Message) -> None:
        heading, tuples = read_record(self._read(self._queue / asked.facts["file"]), self._part)
        batch = TupleBatch(heading.stream, tuples.times, tuples.codes, tuples.columns)
        self._pipeline.take_labelled(batch, tuples.kinds, asked.facts["number"], heading.came, heading.settled)

    def _part(self, part: Part) -> bytes:
        return self._read(self._logs / str(part.log) / part.file)

    def _table(self, descriptor: StreamDescriptor) -> RawBatch:
        """The rows of a table that the level dominates; the server reads it."""
        self._channel.send("table", name=descriptor.name)
        answer = _expect(self._channel, "table")
        if not answer.parts:
            raise SourceError(answer.facts["why"])
        return RawBatch(pa.ipc.open_stream(pa.BufferReader(answer.parts[0])).read_all())


def _expect(channel: Channel, kind: str) -> Message:
    found = channel.receive()
    if found.kind != kind:
        raise ChannelClosed
    return found


def _plain(counts: ViewCounts) -> list[Any]:
    return [list(counts.subscribers), {x: [y.taken, y.given, y.held, y.nanoseconds] for x, y in counts.steps.items()}]


def serve(channel: Channel, folder: Path) -> None:
    """Runs until the server says stop or ends; tells it why if it fails. The folder is the processor's own."""
    try:
        LevelProcessor(channel, folder, Path.read_bytes).run()
    except ChannelClosed:
        return
    except Exception as error:
        stack = [f"{Path(x.filename).name}:{x.lineno} {x.name}" for x in extract_tb(error.__traceback__)]
        channel.send("failed", error=type(error).__name__, stack=stack)


def prepare() -> None:
    """Loads everything that is loaded when it is first needed, while the files can be read."""
    warm()
    warm_governor()


def main(channel: Channel) -> None:
    _read_machine_code_only()
    keep_freed()
    collect_rarely()
    serve(channel, Path())


def _read_machine_code_only() -> None:
    """Numba would fail because it cannot write what it compiles, or cannot read what is there."""
    cache: Any = caching.Cache
    load = cache.load_overload

    def loaded(*given: Any) -> Any:
        try:
            return load(*given)
        except OSError:
            return None

    cache.load_overload, cache.save_overload = loaded, lambda *_: None
