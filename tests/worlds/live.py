"""A pipeline whose queries have deadlines, by a clock that moves only with arrivals and with work: each tuple that an
operator takes costs time."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from headgate.cql.deadlines import Deadline
from headgate.egress.sinks import Sink
from headgate.execution.executors import LocalExecutor
from headgate.expressions.duck import evaluate
from headgate.expressions.sql.types import ARROW
from headgate.labels import LevelOrder, Rules
from headgate.model.query import ContinuousQuery
from headgate.model.results import ResultBatch, delivered_results
from headgate.model.snapshot import CatalogSnapshot, Subscriber
from headgate.plan.queries import Stream
from headgate.realtime.handler import Sample
from headgate.recovery.deadlines import Deadlines, Governing
from headgate.recovery.pipeline import Pipeline
from headgate.storage import Content, Storage
from headgate.testing import ManualClock
from worlds.harness import Bench

CHAIN = Rules(LevelOrder.total("U", "C", "S"))


class ExactClock(ManualClock):
    """It adds without rounding, so that the same moments are the same however they were reached."""

    def __init__(self, start: float) -> None:
        super().__init__(start)
        self._nanoseconds = round(start * 1e9)

    def now(self) -> float:
        return self._nanoseconds / 1e9

    def advance(self, seconds: float) -> None:
        self._nanoseconds += round(seconds * 1e9)

    def reach(self, nanoseconds: int) -> None:
        self._nanoseconds = max(self._nanoseconds, nanoseconds)


class InMemory:
    """A storage that waits for no disk: the clock of the test does not count that anyway."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}

    def write(self, name: str, content: Content, *, durable: bool = True) -> None:  # noqa: ARG002
        self.files[name] = bytes(content)

    def commit(self, name: str, content: Content) -> bool:
        return name not in self.files and self.files.setdefault(name, bytes(content)) is not None

    def read(self, name: str) -> pa.Buffer:
        if name not in self.files:
            raise FileNotFoundError(name)
        return pa.py_buffer(self.files[name])

    def names(self) -> list[str]:
        return sorted(self.files)

    def delete(self, names: Iterable[str]) -> None:
        for name in names:
            self.files.pop(name, None)


class Costed(LocalExecutor):
    """An executor whose work takes a fixed time, and time for each tuple, by the clock of the test."""

    def __init__(self, bench: LiveBench, *given: Any) -> None:
        super().__init__(*given)
        self._bench = bench

    def run(self, table: pa.Table, *rest: Any) -> Any:
        self._bench.clock.advance(self._bench.fixed + self._bench.each * len(table))
        return super().run(table, *rest)


@dataclass(frozen=True)
class Received:
    """A result or a notice, and when it came out."""

    time: float
    who: str
    what: object


class LiveBench(Bench):
    """Subscribers have a level; `came` are the batches to come: when, of which stream, which rows."""

    fixed, each = 0.004, 0.0002

    def __init__(self, home: Path, *streams: Stream, governing: Governing | None = None) -> None:
        super().__init__(home, *streams, skew=None)
        self.clock: ExactClock = ExactClock(self.clock.now())
        self.governing: Governing | None = governing or Governing(seed=7)
        self.coming: list[tuple[float, str, Sequence[Any]]] = []
        self.received: list[Received] = []
        self.storage: Storage | None = InMemory()
        self.taken: dict[str, list[tuple[int, Sequence[Any]]]] = {}
        self.begun = self.clock.now()

    def due(self, name: str, text: str, deadline: Deadline, *, level: str = "U") -> ContinuousQuery:
        self.queries[name] = replace(self.query(name, text, level=level), deadline=deadline)
        return self.queries[name]

    def subscribed_at(self, **who: tuple[str, str, str]) -> None:
        """By name: the query, the roles, and the level."""
        subscribers = [Subscriber(name, x[0], self.clearance(x[1], x[2]), level=x[2]) for name, x in who.items()]
        self.now = CatalogSnapshot(CHAIN, self.descriptors, tuple(self.queries.values()), tuple(subscribers))

    def begin(self, *sinks: Sink) -> Pipeline:
        self.pipeline = Pipeline(
            self.home,
            self,
            lambda queries, program, schema: (
                Costed(self, program, schema, evaluate) if queries else LocalExecutor(program, schema, evaluate)
            ),
            [self.mailbox, *sinks],
            self.clock,
            self.limits,
            self.read_table,
            storage=self.storage,
            governing=self.governing,
        )
        return self.pipeline

    @property
    def deadlines(self) -> Deadlines:
        assert self.pipeline is not None
        return self.pipeline.deadlines

    @property
    def samples(self) -> list[Sample]:
        """The control periods."""
        return list(self.deadlines.governor.samples) if self.deadlines.governor else []

    def arrive(self, seconds: float, name: str, rows: Sequence[Any]) -> None:
        """Rows are (label, values in order); their event time is when they come."""
        self.coming.append((self.begun + seconds, name, rows))

    def run(self, seconds: float) -> None:
        """Lets everything happen until so many seconds after the beginning."""
        pipeline = self.pipeline or self.begin()
        self.coming.sort(key=lambda x: x[:2])
        until = self.begun + seconds
        while self.clock.now() < until:
            while self.coming and self.coming[0][0] <= self.clock.now():
                when, name, rows = self.coming.pop(0)
                self._numbers[name] = self._numbers.get(name, -1) + 1
                if rows:
                    self.taken.setdefault(name, []).append((int(when * 1000), rows))
                pipeline.take(name, self._numbers[name], self._table(name, when, rows), int(when * 1000))
            again = pipeline.work()
            self.fetch()
            if again is None or again > self.clock.now():
                next_ = self.coming[0][0] if self.coming else until
                self.clock.reach(round(min(again or next_, next_, until) * 1e9) + 1000)

    def _table(self, name: str, when: float, rows: Sequence[Any]) -> pa.Table:
        columns = next(x.columns for x in self.streams if x.name == name)
        moment = dt.datetime.fromtimestamp(int(when * 1000) / 1000, dt.UTC)
        full = [(*values, moment, label) for label, *values in rows]
        return pa.table({x: pa.array([row[n] for row in full], ARROW[y]) for n, (x, y) in enumerate(columns)})

    def fetch(self) -> None:
        for x in self.now.subscribers:
            while True:
                found = list(self.mailbox.fetch(x.name, x.query, self.now))
                if not found:
                    break
                self.received += [Received(self.clock.now(), x.name, what) for what in told(found)]

    def by(self, who: str) -> list[Received]:
        return [x for x in self.received if x.who == who]

    def values(self, who: str) -> list[object]:
        return [x.what for x in self.by(who) if isinstance(x.what, tuple)]

    def notices(self, who: str) -> list[object]:
        return [x.what for x in self.by(who) if isinstance(x.what, dict)]


def told(batches: Sequence[ResultBatch]) -> list[object]:
    """Results as their values, notices as their words."""
    found: list[object] = []
    for batch in batches:
        found += [batch.word] if batch.word else [x.values for x in delivered_results([batch])]
    return found
