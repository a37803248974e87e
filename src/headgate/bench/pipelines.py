"""Pipelines for benches: the whole path of a batch without Spark, from a table to every subscriber's mailbox.

No part of the engine is replaced: labels are texts that ingress reads, state is written with every batch, rights are
checked at delivery. But the catalog snapshot never changes, and partitions run in this process.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from itertools import count
from pathlib import Path
from typing import TypeVar

import pyarrow as pa

from headgate.clock import SystemClock
from headgate.cql.queries import parse_query
from headgate.egress.mailbox import Mailbox
from headgate.execution.executors import LocalExecutor
from headgate.execution.memory import collect_rarely
from headgate.expressions.duck import evaluate
from headgate.labels import LEAST, Clearance
from headgate.model.limits import Limits
from headgate.model.query import ContinuousQuery
from headgate.model.snapshot import CatalogSnapshot, Subscriber
from headgate.plan.queries import Stream, bind_query
from headgate.recovery.pipeline import Pipeline
from headgate.storage import Storage

Key = TypeVar("Key")


class Unchanging:
    """A source of snapshots that always gives the same one, until a bench sets another."""

    def __init__(self, snapshot: CatalogSnapshot) -> None:
        self.now = snapshot

    def snapshot(self) -> CatalogSnapshot:
        return self.now

    def open(self) -> AbstractContextManager[CatalogSnapshot]:
        return nullcontext(self.now)

    def verify(self) -> None:
        pass


class Measured:
    """A pipeline that measures its batches. Mailboxes are emptied after each, as their owners would."""

    def __init__(
        self, snapshot: CatalogSnapshot, home: Path, storage: Storage | None = None, limits: Limits | None = None
    ) -> None:
        self._mailbox = Mailbox()
        self._snapshot = snapshot
        self._source = Unchanging(snapshot)
        self.pipeline = Pipeline(
            home,
            self._source,
            lambda _, program, schema: LocalExecutor(program, schema, evaluate),
            [self._mailbox],
            SystemClock(),
            limits,
            storage=storage,
        )
        self._batches = count(max(map(self.pipeline.done, snapshot.descriptors), default=-1) + 1)

    def change(self, snapshot: CatalogSnapshot) -> None:
        """From the next batch on, this is the catalog."""
        self._source.now = self._snapshot = snapshot

    def take(self, batch: Mapping[str, pa.Table]) -> float:
        """Seconds of processor time for the next tuples of these streams."""
        number = next(self._batches)
        start = time.process_time()
        for stream, table in batch.items():
            self.pipeline.take(stream, number, table)
        taken = time.process_time() - start
        for subscriber in self._snapshot.subscribers:
            self._mailbox.fetch(subscriber.name, subscriber.query, _NOTHING)
        return taken

    @property
    def results(self) -> int:
        """The number of results that all subscribers have received together."""
        return sum(self.pipeline.counts.results.values())


_NOTHING = CatalogSnapshot()
"""A snapshot without queries: fetching with it drops the results."""


@contextmanager
def measured(snapshots: Mapping[Key, CatalogSnapshot]) -> Iterator[dict[Key, Measured]]:
    """Pipelines side by side, so that they can take turns; garbage is collected as rarely as an engine does it."""
    collect_rarely()
    with ExitStack() as stack:
        found: dict[Key, Measured] = {}
        for name, snapshot in snapshots.items():
            home = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            found[name] = Measured(snapshot, home)
            stack.callback(found[name].pipeline.close)
        yield found


def running(name: str, text: str, streams: Mapping[str, Stream]) -> ContinuousQuery:
    """A query at the least level, from its text."""
    return ContinuousQuery(name, bind_query(parse_query(text), lambda target: streams[target.name]), LEAST)


def reader(name: str, query: ContinuousQuery, roles: Sequence[str]) -> Subscriber:
    """A subscriber with these roles who may read the streams of a query."""
    return Subscriber(name, query.name, Clearance(frozenset(roles), LEAST, query.streams))
