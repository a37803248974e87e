"""A pipeline over streams and queries written as text; tests set and change the subscribers by hand."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa

from headgate.cql.queries import parse_query
from headgate.egress.mailbox import Mailbox
from headgate.egress.sinks import Address, FileSink, Sink
from headgate.errors import SourceError
from headgate.execution.executors import LocalExecutor
from headgate.expressions.duck import evaluate
from headgate.expressions.sql.types import ARROW
from headgate.ingress.pushdown import Pushdown, RegisterLabels
from headgate.ingress.validation import NO_FORM, RawBatch
from headgate.labels import Clearance, Label, Level, LevelOrder, Rules
from headgate.model.limits import Limits
from headgate.model.query import ContinuousQuery
from headgate.model.rejected import MALFORMED, RejectedRows
from headgate.model.results import delivered_results
from headgate.model.snapshot import CatalogSnapshot, Subscriber
from headgate.model.stream import StreamDescriptor
from headgate.plan.expressions import Type
from headgate.plan.queries import Stream, bind_query
from headgate.plan.secure import Mode
from headgate.recovery.pipeline import Pipeline
from headgate.testing import ManualClock
from headgate.testing.queries import finder

NOW = dt.datetime(2024, 3, 1, tzinfo=dt.UTC)
RULES = Rules(LevelOrder.total("U", "C", "S", "TS"))
Row = tuple[object, ...]


def stream(name: str, columns: str, labels: Mapping[str, Label] | None = None) -> Stream:
    """`columns` as in CREATE STREAM; every stream has its event time in `at` and its labels in `policy`."""
    pairs = (column.split() for column in f"{columns}, at TIMESTAMP, policy STRING".split(", "))
    return Stream(name, tuple((x, Type(y)) for x, y in pairs), tuple((labels or {}).items()))


def table(name: str, columns: str, labels: Mapping[str, Label] | None = None) -> Stream:
    """The same without times."""
    pairs = (column.split() for column in f"{columns}, policy STRING".split(", "))
    return Stream(name, tuple((x, Type(y)) for x, y in pairs), tuple((labels or {}).items()), table=True)


class ReadByDriver:
    """A batch that tasks cannot read."""

    def size(self) -> int:
        return 0

    def splits(self) -> None:
        pass


class Read(ReadByDriver):
    """A batch that its reader has read, with the rows that it rejected."""

    def __init__(self, whole: RawBatch) -> None:
        self._whole = whole

    def decoded(self, pushdown: Pushdown, now: int, register: RegisterLabels) -> None:
        pass

    def all_rows(self) -> RawBatch:
        return self._whole


def malformed_rows(name: str, *texts: str) -> RejectedRows:
    """Rows as the readers of files reject them."""
    return RejectedRows(name, NO_FORM, [{MALFORMED: text} for text in texts])


class Bench:
    """It is also the source of snapshots and the place of files. Tuples are (label, values in order), a second apart,
    and arrive a minute later; `content` is the content of tables, None for a table that cannot be read."""

    def __init__(self, home: Path, *streams: Stream, skew: int | None = 3_600_000) -> None:
        self.home = home
        self.streams = list(streams)
        self.queries: dict[str, ContinuousQuery] = {}
        self.mailbox = Mailbox()
        self.clock = ManualClock(NOW.timestamp())
        self.descriptors = {
            x.name: StreamDescriptor(x.name, x.columns, None, {"LABEL": "policy"}, table=True)
            if x.table
            else StreamDescriptor(x.name, x.columns, "at", {"LABEL": "policy"}, skew=skew)
            for x in streams
        }
        self.content: dict[str, list[Row] | None] = {}
        self.now = CatalogSnapshot(RULES, self.descriptors)
        self.pipeline: Pipeline | None = None
        self.limits: Limits | None = None
        self._numbers: dict[str, int] = {}
        self._seconds = 0

    # What runs --------------------------------------------------------------------------------------------------------

    def query(self, name: str, text: str, *, level: str = "U", mode: Mode = Mode.EXACT) -> ContinuousQuery:
        meant = bind_query(parse_query(text), finder(self.streams))
        names = {reading.stream.name for block in meant.blocks for reading in block.readings}
        stage = 1 + max((x.stage for x in self.queries.values() if x.output in names), default=-1)
        self.queries[name] = ContinuousQuery(name, meant, Level(level), {}, mode, f"out.{name}", stage)
        self.streams.append(Stream(f"out.{name}", meant.columns))
        return self.queries[name]

    def subscribed(self, **who: tuple[str, str] | tuple[str, str, str] | None) -> None:
        """By name: the query and the roles, with commas, and the level; afterwards these and no others."""
        subscribers = [Subscriber(name, x[0], self.clearance(x[1], *x[2:])) for name, x in who.items() if x is not None]
        self.now = CatalogSnapshot(RULES, self.descriptors, tuple(self.queries.values()), tuple(subscribers))

    def clearance(self, roles: str, level: str = "TS") -> Clearance:
        return Clearance(
            frozenset(filter(None, roles.split(","))), Level(level), frozenset(x.name for x in self.streams)
        )

    def snapshot(self) -> CatalogSnapshot:
        return self.now

    @contextmanager
    def open(self) -> Iterator[CatalogSnapshot]:
        yield self.now

    def verify(self) -> None:
        pass

    # What happens -----------------------------------------------------------------------------------------------------

    def begin(self, *sinks: Sink) -> Pipeline:
        self.pipeline = Pipeline(
            self.home,
            self,
            lambda _, program, schema: LocalExecutor(program, schema, evaluate),
            [self.mailbox, *sinks],
            self.clock,
            self.limits,
            self.read_table,
        )
        return self.pipeline

    def read_table(self, descriptor: StreamDescriptor) -> RawBatch:
        rows = self.content[descriptor.name]
        if rows is None:
            raise SourceError(f"cannot read table {descriptor.name} as `csv`: PATH_NOT_FOUND")
        full = [(*values, label) for label, *values in rows]
        columns = {x: pa.array([row[n] for row in full], ARROW[y]) for n, (x, y) in enumerate(descriptor.columns)}
        return RawBatch(pa.table(columns))

    def files(self) -> FileSink:
        return FileSink(self.home / "out", self)

    def take(self, name: str, *rows: Row, times: Sequence[dt.datetime | None] | None = None) -> None:
        pipeline = self.pipeline or self.begin()
        self._numbers[name] = self._numbers.get(name, -1) + 1
        pipeline.take(name, self._numbers[name], self.table(name, rows, times))

    def table(self, name: str, rows: Sequence[Row], times: Sequence[dt.datetime | None] | None = None) -> pa.Table:
        columns = next(x.columns for x in self.streams if x.name == name)
        self._seconds += 1
        moments = times or [NOW + dt.timedelta(seconds=self._seconds, milliseconds=n) for n in range(len(rows))]
        if times is None:
            self.clock.advance(max(0, self._seconds + 60 + NOW.timestamp() - self.clock.now()))
        full = [(*values, moment, label) for (label, *values), moment in zip(rows, moments, strict=True)]
        return pa.table({x: pa.array([row[n] for row in full], ARROW[y]) for n, (x, y) in enumerate(columns)})

    def end(self) -> None:
        (self.pipeline or self.begin()).end()

    def fetched(self, who: str, query: str) -> list[Row]:
        return [x.values for x in delivered_results(self.mailbox.fetch(who, query, self.now))]

    # Where files go ---------------------------------------------------------------------------------------------------

    def of(self, subscriber: str, query: str) -> Address:
        return Address((subscriber, query), tuple(name for name, _ in self.queries[query].query.columns))

    def of_rejected(self, name: str) -> tuple[str, ...]:
        return ("owner", f"{name}.rejected")
