"""A catalog snapshot: which queries run over which streams at one moment, for whom, with which rights."""

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
    """Somebody who wants the results of a query, as `name`; without a clearance it may have none of them."""

    name: str
    query: str
    clearance: Clearance | None
    outgoing: Recipient | None = None


@dataclass(frozen=True)
class SubscriptionStatus:
    """How a subscription stands, whether its query runs or not. `stream` is the number of what is subscribed to."""

    name: str
    query: str
    stream: int
    outgoing: Recipient
    owner: str = ""
    """Who is told as well: the owner of the stream; nobody if the subscription is of a higher level."""
    word: str = ""
    """`ended`, `waits` or `suspended`, or nothing: results come."""
    why: str = ""


@dataclass(frozen=True)
class CatalogSnapshot:
    rules: Rules = field(default_factory=Rules)
    descriptors: Mapping[str, StreamDescriptor] = field(default_factory=dict)
    queries: tuple[ContinuousQuery, ...] = ()
    subscribers: tuple[Subscriber, ...] = ()
    unfit: Mapping[tuple[str, str], str] = field(default_factory=dict)
    """By subscriber and query, what cannot be run, and why; that query is not among those above."""

    standings: tuple[SubscriptionStatus, ...] = ()
    streams: frozenset[int] = frozenset()
    """The numbers of all streams there are."""

    def only(self, keys: Collection[tuple[str, str]]) -> CatalogSnapshot:
        """The same for these alone, by subscriber and query: their queries, and those whose results they read."""
        subscribers = tuple(x for x in self.subscribers if (x.name, x.query) in keys)
        pushdown = {x.query for x in subscribers}
        while True:
            read = {stream for query in self.queries if query.name in pushdown for stream in query.streams}
            more = {query.name for query in self.queries if query.output in read} - pushdown
            if not more:
                queries = tuple(query for query in self.queries if query.name in pushdown)
                return replace(self, queries=queries, subscribers=subscribers)
            pushdown |= more

    @cached_property
    def naming(self) -> Mapping[tuple[str, str], frozenset[str] | None]:
        """Which sources labels may name, by subscriber and query."""
        return {(x.name, x.query): x.outgoing.named for x in self.subscribers if x.outgoing}

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
        """What results count under: a user's of a stream count together, at however many levels."""
        return self._accounts.get((subscriber, query), (subscriber, query))

    def protected(self, label: Label) -> Label:
        """A label with what the owners of its sources demand now: what they demanded when its tuples came is in it,
        and stays."""
        policies = [self.descriptors[source].policy for source in label.sources & self.descriptors.keys()]
        return self.rules.combine_all((label, *policies)) if policies else label

    def concerned(self, stream: str) -> list[tuple[str, str]]:
        """Who is told if a stream cannot be read, by subscriber and query: those who look at what is made of it and may
        read it. To all others it is hidden: what they receive is the same without it."""
        found = ((key, self.clearances[key]) for key in self.reading(stream))
        return [key for key, x in found if x and stream in x.sources | x.aggregate_sources]

    def reading(self, stream: str) -> list[tuple[str, str]]:
        """Who looks at what is made of a stream."""
        streams, queries = {stream}, set[str]()
        while more := {x.name for x in self.queries if not x.streams.isdisjoint(streams)} - queries:
            queries |= more
            streams |= {self.running[name].output for name in more} - {""}
        return [(x.name, x.query) for x in self.subscribers if x.query in queries]


class SnapshotSource(Protocol):
    def snapshot(self) -> CatalogSnapshot:
        """What is wanted now; the very same object as before if nothing has changed."""
        ...

    def open(self) -> AbstractContextManager[CatalogSnapshot]:
        """The same, and nothing changes until the context ends, or `verify` fails."""
        ...

    def verify(self) -> None:
        """Raises LeaseLost unless what `open` gave still holds."""
        ...
