"""A lane: the trusted side of one processor, in a thread of the server. It starts the processor, and starts it again
when it dies; it tells it what the level may know, hands it records one by one, and delivers its results under the
rights of that moment.

Lanes know nothing of each other: each has its own queue, its own state, its own sinks, and waits for nobody else's
processor.
"""

from __future__ import annotations

import pickle
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from logging import WARNING
from pathlib import Path
from typing import Any

import pyarrow as pa

from headgate.egress.sinks import Sink
from headgate.errors import SourceError
from headgate.labels import Level
from headgate.levels.checked import NotAsAgreed, late_in, results_in, whole_number
from headgate.levels.child import Child, Resources, Start
from headgate.levels.folders import Identity
from headgate.levels.live import DeadlineReport, checked_report
from headgate.levels.outlet import Outlet
from headgate.levels.queues import Queue, file_of
from headgate.levels.records import summary_of
from headgate.levels.restricted import OfLevel
from headgate.levels.shedding import LevelShedding
from headgate.levels.wire import Message
from headgate.logs import event, failure
from headgate.model.limits import Limits
from headgate.model.rejected import RejectedRows
from headgate.model.results import notice
from headgate.model.snapshot import CatalogSnapshot
from headgate.recovery.counts import RunCounts
from headgate.recovery.messages import note

FIRST_PAUSE, LONGEST_PAUSE = 0.05, 30.0
"""Seconds before a processor that died is started again; each time longer, until it has done something."""
MOST_NOTICES = 1000
WORK = "work"
"""Asks for the work of queries with deadlines whose time has come."""


class ProcessorFailed(Exception):
    """A processor says that it cannot go on."""


@dataclass(frozen=True)
class Surroundings:
    """What all lanes need of the server.

    start: starts a processor
    limits: those of each view
    table: the rows of a table that a level dominates
    stream_levels: the levels of streams, by their names as sources
    tell: tells owners of streams about their tuples
    keep: keeps what the control periods of queries with deadlines were like
    """

    start: Start
    limits: Limits
    table: Callable[[Level, str], pa.Table]
    stream_levels: Callable[[], Mapping[str, Level]] = dict
    tell: Callable[[Sequence[RejectedRows]], None] = lambda _: None
    keep: Callable[[Sequence[Mapping[str, Any]]], None] = lambda _: None


@dataclass
class LaneRequest:
    """Something that the processor is to do: a message. A record has a number and the logs that it is in."""

    kind: str
    facts: Mapping[str, Any]
    answer: Future[Any] = field(default_factory=Future)
    number: int | None = None
    logs: frozenset[int] = frozenset()
    since: float = field(default_factory=time.monotonic)


class Lane:
    """`identity` gives the user of the processor, and the logs that it may read then."""

    def __init__(
        self,
        level: Level,
        folder: Path,
        queue: Queue,
        gate: OfLevel,
        sinks: Callable[[], Sequence[Sink]],
        identity: Callable[[], tuple[Identity, frozenset[int]]],
        share: Resources,
        around: Surroundings,
    ) -> None:
        self.level, self.queue, self.gate, self.share = level, queue, gate, share
        self._folder, self._sinks, self._identity, self._around = folder, sinks, identity, around
        self._asked: deque[LaneRequest] = deque()
        self._changed = threading.Condition()
        self._stopping = False
        self._told = CatalogSnapshot()
        self._done = -1
        self._logs: frozenset[int] = frozenset()
        self._outlet: Outlet | None = None
        self.child: Child | None = None
        self.counts = RunCounts()
        self.notices: deque[str] = deque(maxlen=MOST_NOTICES)
        self.lag: dict[str, float] = {}
        self.starts = 0
        self.missing: Sequence[str] = ()
        self.fault: BaseException | None = None
        """Why its processor was last started again; kept until it has done something."""
        self.due = DeadlineReport()
        """What the processor says of its queries with deadlines."""
        self._worked = False
        """Whether it did work of queries with deadlines last."""
        self.shedding = LevelShedding(level, self._tell)
        self.copied = 0
        """Bytes that went through the channels of earlier processors."""
        self._thread = threading.Thread(target=self._work, name=f"lane {level}", daemon=True)

    # For the shepherd -------------------------------------------------------------------------------------------------

    def have(self, share: Resources) -> None:
        """What the level may use from now on: levels that are created divide the shares anew. The processor is started
        again for that, before it does anything else: nobody may raise its own priority."""
        with self._changed:
            self.share = share
            self._changed.notify_all()

    def start(self, logs_of: Callable[[bytes], frozenset[int]]) -> None:
        """`logs_of` says which logs a record is in. When it returns, readers can go on from the positions that they had
        before the server was started."""
        try:
            self._open()
        except Exception as error:  # the thread tries again
            failure(
                "levels", "the results of a level cannot be read yet", error, level=WARNING, processor=str(self.level)
            )
        for number in self.queue.numbers():
            content = self.queue.read(number)
            self.hand(number, logs_of(content), summary_of(content)[0])
        self._thread.start()

    @property
    def used(self) -> float:
        """The share of this level's own backlog that waits."""
        return self.queue.size / self.share.backlog if self.share.backlog else 0.0

    def shed_oldest(self, stream: str) -> int:
        """Drops the oldest records of a stream that wait, until the others fit; not the one that the processor works
        on. Returns how many tuples they had."""
        found = 0
        while self.used > 1:
            with self._changed:
                waiting = [x for x in list(self._asked)[1:] if x.number is not None and x.facts["stream"] == stream]
                if not waiting:
                    break
                self._asked.remove(waiting[0])
            number = waiting[0].facts["number"]
            found += summary_of(self.queue.read(number))[1]
            self.queue.remove(number)
        return found

    def _tell(self, stream: str, kind: str, readers: str, owner: str) -> None:
        self._post(LaneRequest("tell", {"stream": stream, "word": {kind: readers}}))
        if self._around.stream_levels().get(stream) == self.level:
            self._around.tell([note(stream, owner)])

    def hand(self, number: int, logs: frozenset[int], stream: str) -> None:
        """Hands over a record of the queue."""
        facts = {"number": number, "file": file_of(number), "stream": stream}
        self._post(LaneRequest("take", facts, number=number, logs=logs))

    def ask(self, kind: str, **facts: Any) -> Future[Any]:
        return self._post(LaneRequest(kind, facts)).answer

    def pass_time(self, settled: Mapping[str, int], *, commit: bool = False) -> None:
        """Of several looks at the clock that wait, only the last matters. With `commit`, a restart does not forget
        it."""
        with self._changed:
            last = self._asked[-1] if len(self._asked) > 1 else None
            if last is not None and last.kind == "time" and not commit:
                last.facts = {**last.facts, "settled": {**last.facts["settled"], **settled}}
                return
        self.ask("time", settled=dict(settled), commit=commit)

    def follow(self) -> None:
        """Has the processor follow a change of rights even if no tuples come."""
        if self.gate.snapshot() is not self._told:
            self.ask("settle")

    def _post(self, asked: LaneRequest) -> LaneRequest:
        with self._changed:
            self._asked.append(asked)
            self._changed.notify_all()
        return asked

    @property
    def bytes_copied(self) -> int:
        """Bytes that went through the channels of its processors."""
        child = self.child
        return self.copied + (child.channel.sent + child.channel.received if child is not None else 0)

    def wait(self, seconds: float | None, *, fails: bool = False) -> bool:
        """Waits until the processor has done everything it was given, or `fails` at it; returns whether it did in this
        time."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._asked or (fails and self.fault is not None), seconds)

    def stop(self) -> None:
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        if self._thread.is_alive():
            self._thread.join()
        self._close()

    # The thread -------------------------------------------------------------------------------------------------------

    def _work(self) -> None:
        pause = FIRST_PAUSE
        while not self._stopping:
            before = self._done
            try:
                self._session()
            except Exception as error:
                self.fault = error
                kind = str(error) if isinstance(error, ProcessorFailed | NotAsAgreed) else ""
                failure(
                    "levels", "a processor is started again", error, level=WARNING, processor=str(self.level), of=kind
                )
            finally:
                self._close()
            pause = FIRST_PAUSE if self._done > before else min(2 * pause, LONGEST_PAUSE)
            with self._changed:
                self._changed.notify_all()
                self._changed.wait_for(lambda: self._stopping, pause)

    def _open(self) -> None:
        self._outlet = Outlet(self._folder / "outlet", self.gate, self._sinks())
        self._outlet.counts = self.counts

    def _session(self) -> None:
        """The life of one processor."""
        if self._outlet is None:
            self._open()
        identity, self._logs = self._identity()
        self.starts += 1
        share = self.share
        self.child = self._around.start(self._folder / "own", identity, share)
        if self.child.missing != self.missing:
            self.missing = self.child.missing
            event("levels", "; ".join(self.missing), level=WARNING, processor=str(self.level))
        self._told = self.gate.snapshot()
        limits = pickle.dumps(self._around.limits)
        self.child.channel.send("begin", pickle.dumps(self._told), limits)
        ready = self._until("ready")
        self._done = whole_number(ready.facts.get("done"))
        self._hear(ready)
        event("levels", "processor started", processor=str(self.level), done=self._done)
        while (asked := self._next()) is not None:
            if not asked.logs <= self._logs or share != self.share:
                return  # a log that came since, or another share: the next processor has it
            if asked.number is None or asked.number > self._done:
                self._do(asked)
            self._finish(asked)
        self.child.channel.send("stop")

    def _next(self) -> LaneRequest | None:
        """What waits longest, or the work of queries with deadlines if its time has come; by turns if both wait."""
        with self._changed:
            while not self._stopping:
                again = self.due.again
                pause = None if again is None else max(0.0, again - time.time())
                if pause == 0 and not (self._worked and self._asked):
                    self._worked = True
                    return LaneRequest(WORK, {})
                if self._asked:
                    self._worked = False
                    return self._asked[0]
                self._changed.wait(pause)
            return None

    def _do(self, asked: LaneRequest) -> None:
        assert self.child is not None  # noqa: S101
        now = self.gate.snapshot()
        if asked.kind == "tell":
            self._notify(now, asked)
            return
        if now is not self._told:
            self.child.channel.send("snapshot", pickle.dumps(now))
            self._told = now
        self.child.channel.send(asked.kind, **asked.facts)
        done = self._until("done")
        self.notices += [str(x) for x in done.facts.get("notices", ())]
        self._hear(done)
        if asked.kind == "profile":
            asked.facts = {"found": done.facts.get("answer")}

    def _notify(self, now: CatalogSnapshot, asked: LaneRequest) -> None:
        assert self._outlet is not None  # noqa: S101
        told = [notice((name,), query, **asked.facts["word"]) for name, query in now.concerned(asked.facts["stream"])]
        if told:
            self._outlet.commit(self._outlet.known, told)

    def _finish(self, asked: LaneRequest) -> None:
        if asked.number is not None:
            self._done = max(self._done, asked.number)
            self.queue.remove(asked.number)
            self.lag[asked.facts["stream"]] = time.monotonic() - asked.since
        self.fault = None
        if asked.kind == WORK:
            return
        with self._changed:
            self._asked.popleft()
            self._changed.notify_all()
        asked.answer.set_result(asked.facts.get("found"))

    def _hear(self, message: Message) -> None:
        self.due, periods = checked_report(message, self.due, self.level, self._told)
        self._around.keep(periods)

    def _until(self, kind: str) -> Message:
        assert self.child is not None  # noqa: S101
        while (found := self.child.channel.receive()).kind != kind:
            if found.kind == "results":
                self._deliver(found)
                self.child.channel.send("delivered")
            elif found.kind == "table":
                self._answer_table(found)
            elif found.kind == "failed":
                raise ProcessorFailed(_harmless(found))
            else:
                raise NotAsAgreed("a message that was not asked for")
        return found

    def _deliver(self, message: Message) -> None:
        """A version that was delivered before its processor died is not delivered again."""
        assert self._outlet is not None  # noqa: S101
        identity, version = str(message.facts.get("identity")), whole_number(message.facts.get("version"))
        known = self._outlet.known
        if known.get("identity") == identity and version <= known["version"]:
            return
        results = results_in(message, self.level, self._told)
        late = late_in(message, self.level, self._around.stream_levels())
        if results:
            self._outlet.commit({"identity": identity, "version": version}, results)
        if late:
            self._around.tell(late)

    def _answer_table(self, message: Message) -> None:
        assert self.child is not None  # noqa: S101
        name = str(message.facts.get("name"))
        if name not in {table for query in self._told.queries for table in query.tables}:
            raise NotAsAgreed("a table that no query reads")
        try:
            table = self._around.table(self.level, name)
        except SourceError as error:
            self.child.channel.send("table", why=error.message)
            return
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        self.child.channel.send("table", bytes(sink.getvalue()))

    def _close(self) -> None:
        if self.child is not None:
            self.copied += self.child.channel.sent + self.child.channel.received
            self.child.kill()
            self.child = None
        if self._outlet is not None:
            self._outlet.close()
            self._outlet = None

    def warnings(self) -> list[str]:
        return self._outlet.warnings() if self._outlet is not None else []


def _harmless(message: Message) -> str:
    """The kind of an error and the places it passed, as far as they look like that: a processor must not write values
    into the log."""
    kind, stack = message.facts.get("error"), message.facts.get("stack")
    places = (
        [x for x in stack if re.fullmatch(r"\w{1,40}\.py:\d{1,5} [\w<>]{1,60}", str(x))]
        if isinstance(stack, list)
        else []
    )
    return f"{kind} at {', '.join(places[-5:])}" if re.fullmatch(r"[A-Za-z]{1,60}", str(kind)) else "an error"
