"""A catalog snapshot: which queries run over which streams at one moment, for which subscribers, with which rights."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Protocol

from headgate.labels import Clearance, Label, Rules
from headgate.model.query import ContinuousQuery
from headgate.model.results import Recipient
from headgate.model.stream import StreamDescriptor


@dataclass(frozen=True)
class Subscriber:
    """A subscriber of one query; without a clearance it receives no results. `level` is that of the subscription, which
    never changes; empty: not known."""

    name: str
    query: str
    clearance: Clearance | None
    outgoing: Recipient | None = None
    level: str = ""


@dataclass(frozen=True)
class SubscriptionStatus:
    """The status of a subscription, whether its query runs or not. `stream` is the number of the subscribed stream."""

    name: str
    query: str
    stream: int
    outgoing: Recipient
    owner: str = ""
    """The owner of the stream, who is notified too; empty if the subscription has a higher level than the stream."""
    word: str = ""
    """`ended`, `waits` or `suspended`; empty while results are delivered."""
    why: str = ""
    revision: int | None = None
    """Changes when the query is replaced, or when the stream gets a column; None: not known."""


@dataclass(frozen=True)
class CatalogSnapshot:
    rules: Rules = field(default_factory=Rules)
    descriptors: Mapping[str, StreamDescriptor] = field(default_factory=dict)
    queries: tuple[ContinuousQuery, ...] = ()
    subscribers: tuple[Subscriber, ...] = ()
    unfit: Mapping[tuple[str, str], str] = field(default_factory=dict)
    """By subscriber and query, why the query cannot run; such a query is not among `queries`."""

    standings: tuple[SubscriptionStatus, ...] = ()
    streams: frozenset[int] = frozenset()
    """The numbers of all existing streams."""
    roles: frozenset[str] | None = None
    """The names of all existing roles; None: not known."""

    def only(self, keys: Collection[tuple[str, str]]) -> CatalogSnapshot:
        """The part for these subscriptions (subscriber and query): their queries, and the producers of these."""
        subscribers = tuple(x for x in self.subscribers if (x.name, x.query) in keys)
        names = {x.query for x in subscribers}
        while True:
            read = {stream for query in self.queries if query.name in names for stream in query.streams}
            more = {query.name for query in self.queries if query.output in read} - names
            if not more:
                queries = tuple(query for query in self.queries if query.name in names)
                return replace(self, queries=queries, subscribers=subscribers)
            names |= more

    @cached_property
    def naming(self) -> Mapping[tuple[str, str], frozenset[str] | None]:
        """The sources that labels may name, by subscriber and query."""
        return {(x.name, x.query): x.outgoing.named for x in self.subscribers if x.outgoing}

    @cached_property
    def recipients(self) -> Mapping[tuple[str, str], Recipient]:
        """By subscriber and query, with the sources that labels may name."""
        return {(x.name, x.query): x.outgoing for x in self.subscribers if x.outgoing}

    @cached_property
    def running(self) -> Mapping[str, ContinuousQuery]:
        return {query.name: query for query in self.queries}

    @cached_property
    def clearances(self) -> Mapping[tuple[str, str], Clearance | None]:
        """By subscriber and query."""
        return {(x.name, x.query): x.clearance for x in self.subscribers}

    @cached_property
    def _accounts(self) -> Mapping[tuple[str, str], tuple[str, str]]:
        return {(x.name, x.query): (x.outgoing.user, x.outgoing.stream) for x in self.subscribers if x.outgoing}

    def account(self, subscriber: str, query: str) -> tuple[str, str]:
        """The key under which results are counted: user and stream, so that all levels of a user count together."""
        return self._accounts.get((subscriber, query), (subscriber, query))

    def protected(self, label: Label) -> Label:
        """A label combined with the current policies of its sources. The policies at the time of arrival are already
        part of the label and remain. A policy protects only aggregates where the label does."""
        policies = [
            policy.as_aggregate() if source in label.aggregated else policy
            for source in label.sources & self.descriptors.keys()
            for policy in [self.descriptors[source].policy]
        ]
        return self.rules.combine_all((label, *policies)) if policies else label

    def concerned(self, stream: str) -> list[tuple[str, str]]:
        """The subscriptions (subscriber and query) that are notified if a stream cannot be read: those whose query
        depends on it and whose clearance may read it. The stream is hidden from all others: without it they receive
        the same results, so they must not learn of it."""
        found = ((key, self.clearances[key]) for key in self.reading(stream))
        return [key for key, x in found if x and stream in x.sources | x.aggregate_sources]

    def reading(self, stream: str) -> list[tuple[str, str]]:
        """The subscriptions (subscriber and query) whose query depends on a stream, directly or through others."""
        streams, queries = {stream}, set[str]()
        while more := {x.name for x in self.queries if not x.streams.isdisjoint(streams)} - queries:
            queries |= more
            streams |= {self.running[name].output for name in more} - {""}
        return [(x.name, x.query) for x in self.subscribers if x.query in queries]


class SnapshotSource(Protocol):
    def snapshot(self) -> CatalogSnapshot:
        """The current snapshot; the identical object as before if nothing has changed."""
        ...

    def open(self) -> AbstractContextManager[CatalogSnapshot]:
        """The current snapshot under a lease: the catalog does not change until the context ends or `verify` fails."""
        ...

    def verify(self) -> None:
        """Raises LeaseLost unless the lease that `open` took still holds."""
        ...
