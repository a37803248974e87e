"""The run client: what one session runs from a command, which is its user's subscriptions or, with the right to, those
of everyone.

It also makes the rows and tables shown to people, so that every command shows them alike.
"""

from __future__ import annotations

import datetime as dt
import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from headgate.access.permissions import Kind, Permission
from headgate.egress.filter import permitted
from headgate.egress.kafka_sink import KafkaSink
from headgate.egress.mailbox import Mailbox
from headgate.egress.parquet import ParquetSink
from headgate.egress.sinks import Address, Addresses, FileSink, Sink, Verify, file_path
from headgate.egress.spark_sink import SparkSink
from headgate.errors import AccessDenied, LeaseLost, NotFound, SourceError
from headgate.ingress.kafka_options import KAFKA
from headgate.ingress.spark import LOCAL, spark_session
from headgate.ingress.spark_settings import SparkSettings
from headgate.ingress.validation import plain_value
from headgate.labels import LEAST, source_shown
from headgate.lexing import quote
from headgate.model.limits import Limits
from headgate.model.rejected import RejectedRows
from headgate.model.results import DeliveredResult, Recipient, ResultBatch, delivered_results
from headgate.model.snapshot import CatalogSnapshot, Subscriber
from headgate.plain import counted
from headgate.recovery.counts import RunCounts
from headgate.recovery.deadlines import Governing
from headgate.service.folders import Folders
from headgate.service.headgate import Headgate
from headgate.service.runs import Execution, Processing, published
from headgate.stores import StateLocation

Shown = tuple[str, Sequence[str], Sequence[Sequence[str]]]
KINDS: Mapping[str, Callable[[Path, Addresses], Sink]] = {"jsonl": FileSink, "parquet": ParquetSink}
"""The formats of result files."""


@dataclass(frozen=True)
class SparkTarget:
    """A target that Spark writes to: a format and its options. The options are never shown: one may be a password."""

    format: str
    options: Mapping[str, str] = field(default_factory=dict, repr=False)


class RunClient:
    """It is also the pipeline's source of snapshots: a query that it does not ask for is not computed."""

    def __init__(self, headgate: Headgate, token: str, *, everyone: bool = False) -> None:
        self._headgate = headgate
        self._everyone = everyone
        self._mailbox = Mailbox()
        self._token = token
        self._all = self._own = CatalogSnapshot()
        self._who = headgate.principal(token)
        self._user = self._who.user
        self._roles = headgate.chosen_roles(token)
        if everyone and not headgate.check(token, Permission.CHANGE_SYSTEM, Kind.SYSTEM, "system"):
            raise AccessDenied(
                "cannot run the queries of everyone: this needs CHANGE SYSTEM", hint="run your own, without --everyone"
            )

    # As a source of snapshots -----------------------------------------------------------------------------------------

    def snapshot(self) -> CatalogSnapshot:
        return self._narrowed(self._headgate.snapshot())

    @contextmanager
    def open(self) -> Iterator[CatalogSnapshot]:
        with self._headgate.open() as snapshot:
            yield self._narrowed(snapshot)

    def verify(self) -> None:
        self._headgate.verify()

    def _narrowed(self, snapshot: CatalogSnapshot) -> CatalogSnapshot:
        """Only what this session's user subscribed to; the same object as long as nothing has changed."""
        if self._everyone:
            return snapshot
        if snapshot is not self._all:
            mine = {(x.name, x.query) for x in snapshot.subscribers if x.outgoing and self._is_mine(x.outgoing)}
            unfit = {key: why for key, why in snapshot.unfit.items() if key in mine}
            standings = tuple(replace(x, owner="") for x in snapshot.standings if self._is_mine(x.outgoing))
            self._all, self._own = snapshot, replace(snapshot.only(mine), unfit=unfit, standings=standings)
        return self._own

    def _is_mine(self, out: Recipient) -> bool:
        """Whether a subscription is this user's, at this level, and uses no role that the session lacks: the session
        was opened without that role on purpose."""
        return (out.user, out.level) == (self._user, str(self._who.level)) and out.roles <= self._roles

    def home(self, place: Path) -> Path:
        """Where this run keeps its state: the same for a user at this level, however often it logs in. A session with
        fewer roles than its user has other subscriptions, and so a state of its own."""
        if self._everyone:
            return place / "engine"
        name = f"engine-{quote(self._user)}"
        if self._who.level != LEAST:
            name += f"@{self._who.level}"
        if self._who.roles != self._headgate.assigned_roles(self._user):
            roles = ",".join(map(quote, sorted(self._who.roles)))
            name += f"-{hashlib.sha256(roles.encode()).hexdigest()[:12]}"
        return place / file_path((name,))

    # Running ----------------------------------------------------------------------------------------------------------

    def has_work(self) -> bool:
        """Whether any subscription reads a source, or a subscriber has to be told that its query cannot run."""
        snapshot, inputs = self.snapshot(), self._headgate.snapshots.inputs()
        read = {stream for query in snapshot.queries for stream in query.streams}
        return bool(snapshot.unfit) or not read.isdisjoint(inputs.keys() - published(inputs))

    @contextmanager
    def at_work(
        self,
        home: Path,
        out: Path | None,
        *,
        kind: str = "jsonl",
        to: SparkTarget | None = None,
        master: str | None = LOCAL,
        settings: SparkSettings | None = None,
        execution: Execution | None = None,
        spark: SparkSession | None = None,
        limits: Limits | None = None,
        place: StateLocation | None = None,
        take_over: bool = False,
        governing: Governing | None = None,
    ) -> Iterator[Processing]:
        """Results go to files of one of the `KINDS` below `out`, to a Spark target, or wait until they are
        `received`."""
        addresses = Folders(self._headgate)
        sinks: list[Sink] = []
        if out is not None:
            sinks.append(KINDS[kind](out, addresses))
        if to is not None:
            session = cache(partial(spark_session, home, master=master, settings=settings))
            if to.format == KAFKA:
                sinks.append(KafkaSink(session, to.options, addresses))
            else:
                sinks.append(SparkSink(session, to.format, to.options, addresses))
        sinks = sinks or [self._mailbox]
        if not self._everyone:
            sinks = [_Own(sink, self._owns) for sink in sinks]
        work = Processing(
            self._headgate,
            home,
            sinks,
            snapshots=self,
            master=master,
            settings=settings,
            spark=spark,
            execution=execution,
            limits=limits,
            place=place,
            take_over=take_over,
            governing=governing,
        )
        try:
            yield work
        finally:
            work.close()

    def _owns(self, stream: str) -> bool:
        return self._headgate.snapshots.owner(stream) == self._user

    # For people -------------------------------------------------------------------------------------------------------

    def received(self, most: int, *, news: bool = False) -> Iterator[Shown]:
        """The results that arrived for this session since the last call, one table for each stream; with `news` only
        streams that have some. Asking for results counts as use of the session."""
        for out, result_batches, lost in self._arrived(news=news):
            found = delivered_results(result_batches)
            rows = [[_time(x.time), *map(_cell, x.values)] for x in found[-most:]]
            came = len(found) + lost
            more = f", the last {len(rows):,} are shown" if came > len(rows) else ""
            words = dict.fromkeys(
                f"; it {x}: {text}" for result_batch in result_batches for x, text in result_batch.word.items()
            )
            yield f"{out.stream}: {counted(came, 'result')}{more}{''.join(words)}", ("time", *out.columns), rows

    def rows(self, *, news: bool = False) -> Iterator[tuple[str, Sequence[str], list[list[Any]]]]:
        """As `received`, for programs: each stream with its columns, and the time and values of all its results."""
        for out, result_batches, _ in self._arrived(news=news):
            found = delivered_results(result_batches)
            times = (dt.datetime.fromtimestamp(x.time / 1000, dt.UTC).isoformat() for x in found)
            rows = [[time, *map(plain_value, x.values)] for time, x in zip(times, found, strict=True)]
            yield out.stream, out.columns, rows

    def _arrived(self, *, news: bool) -> Iterator[tuple[Recipient, list[ResultBatch], int]]:
        """By stream: what arrived since the last call, and how many results were too many to keep."""
        self._headgate.use(self._token)
        mine = [x for x in self.snapshot().subscribers if x.outgoing and self._is_mine(x.outgoing)]
        for subscriber in mine:  # one at a time: showing them may be slow, and nobody else waits
            if news and not self._mailbox.has(subscriber.name, subscriber.query):
                continue
            lost = self._mailbox.lost[subscriber.name, subscriber.query]
            result_batches = self._fetched(subscriber)
            if news and not result_batches:
                continue
            out = subscriber.outgoing or self._headgate.snapshots.outgoing(subscriber.name, subscriber.query)
            yield out, result_batches, lost

    def results(self, stream: str) -> tuple[Address, list[DeliveredResult]]:
        """The results of a stream that this session's user has subscribed to, since the last call."""
        self._headgate.use(self._token)
        for subscriber in self.snapshot().subscribers:
            out = subscriber.outgoing
            if out is not None and out.stream == stream and self._is_mine(out):
                return Address.of(out), delivered_results(self._fetched(subscriber))
        raise NotFound(f"you are not subscribed to a stream `{stream}`", hint="run SUBSCRIBE TO first")

    def _fetched(self, subscriber: Subscriber) -> list[ResultBatch]:
        """The results that wait for a subscriber, as far as current rights permit."""
        result_batches: list[ResultBatch] = []
        while True:
            try:
                with self.open() as now:
                    result_batches += self._mailbox.fetch(subscriber.name, subscriber.query, now)
                    allowed = [x for result_batch in result_batches for x in permitted(now, result_batch)]
                    self.verify()
                    return allowed
            except LeaseLost:
                continue

    def unread(self, failed: Mapping[str, SourceError]) -> list[str]:
        """Messages about streams that cannot be read. Their owners and the operator are told which and why; others who
        may read them are told which of their results wait; anybody else is told nothing."""
        snapshot = self.snapshot()
        known = [str(error) for name, error in failed.items() if self._everyone or self._owns(name)]
        keys = {key for name in failed if not (self._everyone or self._owns(name)) for key in snapshot.concerned(name)}
        mine = sorted(self._headgate.snapshots.outgoing(*key).stream for key in keys)
        return known + [f"{stream}: an input stream is unavailable" for stream in mine]

    def left_alone(self) -> list[str]:
        """Messages about subscriptions over published streams, which wait for a server. Their streams are named to
        those who are told of `unread` ones."""
        snapshot = self.snapshot()
        found: dict[str, set[str]] = {}
        for name in published(self._headgate.snapshots.inputs()):
            told = source_shown(name) if self._everyone or self._owns(name) else "a stream that it reads"
            for key in snapshot.concerned(name):
                found.setdefault(self._headgate.snapshots.outgoing(*key).stream, set()).add(told)
        return [
            f"{stream} waits: {' and '.join(sorted(told))} is published to a server"
            for stream, told in sorted(found.items())
        ]

    def news(self, news: Sequence[tuple[str, str]]) -> list[str]:
        """Messages about streams, for their owners and the operator."""
        return [f"stream {name}: {text}" for name, text in news if self._everyone or self._owns(name)]

    def summary(self, counts: RunCounts) -> Iterator[Shown]:
        """What happened: tuples by stream, results by subscriber. The number of tuples that a user may not see is only
        for the owner of their stream and the operator."""
        streams = {name: n for name, n in counts.tuples.items() if self._everyone or self._owns(name)}
        reasons = sorted({reason for name, reason in counts.rejected if name in streams})
        late = ["late"] if any(counts.late[name] for name in streams) else []
        rejections = [f"rejected: {reason}" for reason in reasons]
        columns = ("stream", "tuples", *rejections, *late, "seen by nobody", "routed", "lag")
        rows = []
        for name, n in sorted(streams.items()):
            rejected, lag = [counts.rejected[name, reason] for reason in reasons], counts.lag.get(name)
            unseen = counts.unseen[name]
            numbers = [n, *rejected, *([counts.late[name]] if late else []), unseen, n - sum(rejected) - unseen]
            rows.append([source_shown(name), *(f"{x:,}" for x in numbers), "" if lag is None else f"{lag:.2f} s"])
        if rows:
            yield "streams", columns, rows
        results = [(user, stream, f"{n:,}") for (user, stream), n in sorted(counts.received.items())]
        yield "results", ("subscriber", "stream", "results"), results
        ended = self.ended(counts)
        if ended:
            yield "ended", ("query", "owner", "subscriber", "why"), ended

    def ended(self, counts: RunCounts) -> list[tuple[str, str, str, str]]:
        """The queries that ended before their streams did: query, owner, subscriber, and why."""
        owner = self._headgate.snapshots.owner
        return [(stream, owner(stream), user, reason) for user, stream, reason in sorted(counts.ended)]


class _Own(Sink):
    """A sink that withholds rejected rows, except those of the user's own streams."""

    def __init__(self, sink: Sink, owns: Callable[[str], bool]) -> None:
        self.keeps, self.place = sink.keeps, sink.place
        self._sink = sink
        self._owns = owns

    @property
    def name(self) -> str:
        return self._sink.name

    def claim(self, owner: str, epoch: int = 0) -> None:
        self._sink.claim(owner, epoch)

    def let_go(self) -> None:
        self._sink.let_go()

    def warnings(self) -> list[str]:
        return self._sink.warnings()

    def state(self, results: Sequence[ResultBatch] = (), rejected: Sequence[RejectedRows] = ()) -> Mapping[str, Any]:
        return self._sink.state(results, self._own(rejected))

    def restore(self, states: Mapping[str, Any], *, out: bool) -> None:
        self._sink.restore(states, out=out)

    def stage(self, version: int, results: Sequence[ResultBatch], rejected: Sequence[RejectedRows] = ()) -> None:
        self._sink.stage(version, results, self._own(rejected))

    def staged(self, version: int) -> list[ResultBatch]:
        return self._sink.staged(version)

    def prepare(self, results: Sequence[ResultBatch], rejected: Sequence[RejectedRows], *, as_staged: bool) -> None:
        self._sink.prepare(results, self._own(rejected), as_staged=as_staged)

    def publish(self, verify: Verify) -> None:
        self._sink.publish(verify)

    def complete(self) -> None:
        self._sink.complete()

    def retain(self, now: CatalogSnapshot) -> None:
        self._sink.retain(now)

    def _own(self, rejected: Sequence[RejectedRows]) -> list[RejectedRows]:
        return [x for x in rejected if self._owns(x.stream)]


def _time(milliseconds: int) -> str:
    moment = dt.datetime.fromtimestamp(milliseconds / 1000, dt.UTC)
    return moment.strftime("%Y-%m-%d %H:%M:%S") + (f".{milliseconds % 1000:03}" if milliseconds % 1000 else "")


def _cell(value: object) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, bytes):
        return f"X'{value.hex().upper()}'"
    if isinstance(value, dt.datetime):
        fraction = f".{value.microsecond:06}".rstrip("0") if value.microsecond else ""
        return value.strftime("%Y-%m-%d %H:%M:%S") + fraction
    return str(value)
