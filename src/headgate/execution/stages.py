"""Stages: a query that reads the results of other queries runs after them, and sees what its own subscribers would
receive from them.

Each subscriber of a query is also, with the same rights, a subscriber of every query whose results it reads. This extra
subscriber is a *consumer*: its results become tuples that only the subscriber's view sees. The subscribers of a
cumulative query share one view: each query that it reads runs once more for it, cumulative as well, and emits once what
any of them may see. A cumulative query that is read has a copy for the subscribers of each level: windows that are
shared by subscribers never cross levels.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from headgate.model.query import ContinuousQuery
from headgate.model.snapshot import CatalogSnapshot, Subscriber
from headgate.plan.secure import Mode

_THROUGH, _FOR = "\x1f", "\x1e"


@dataclass(frozen=True)
class Stages:
    """The queries of a catalog snapshot in the order in which they run.

    stages: the queries by stage; each query comes after all queries that it reads
    producers: the queries whose results other queries read, by the streams of these results
    subscribers: all subscribers, consumers included
    """

    stages: tuple[tuple[ContinuousQuery, ...], ...]
    producers: Mapping[str, str]
    subscribers: tuple[Subscriber, ...]

    @cached_property
    def running(self) -> Mapping[str, ContinuousQuery]:
        return {query.name: query for stage in self.stages for query in stage}

    @classmethod
    def of(cls, snapshot: CatalogSnapshot) -> Stages:
        read = {stream for query in snapshot.queries for stream in query.streams}
        producers = {query.output: query.base or query.name for query in snapshot.queries if query.output in read}
        running = dict(snapshot.running)
        subscribers, waiting = [], list(snapshot.subscribers)
        while waiting:
            subscriber = waiting.pop(0)
            subscribers.append(subscriber)
            query = running[subscriber.query]
            for producer in (running[producers[stream]] for stream in sorted(query.streams) if stream in producers):
                if query.mode == Mode.CUMULATIVE:
                    producer = _shadow(producer, query)
                elif producer.mode == Mode.CUMULATIVE and subscriber.level:
                    producer = producer.at(subscriber.level)
                running.setdefault(producer.name, producer)
                waiting.append(consumer(subscriber, producer.name))
        copied = {query.base for query in running.values() if query.base}
        running = {name: query for name, query in running.items() if name not in copied}
        deepest = max((query.stage for query in running.values()), default=0)
        stages = tuple(
            tuple(running[name] for name in sorted(running) if running[name].stage == stage)
            for stage in range(1 + deepest)
        )
        return cls(stages, producers, tuple(dict.fromkeys(subscribers)))


def _shadow(producer: ContinuousQuery, query: ContinuousQuery) -> ContinuousQuery:
    """The copy of a producer that runs for all subscribers of a cumulative query together."""
    return replace(producer, name=f"{producer.name}{_FOR}{query.name}", mode=Mode.CUMULATIVE, together=True)


def consumer(subscriber: Subscriber, producer: str) -> Subscriber:
    """The subscriber of a producer that reads it for a query of this subscriber."""
    return Subscriber(
        f"{subscriber.name}{_THROUGH}{subscriber.query}", producer, subscriber.clearance, level=subscriber.level
    )


def consumer_of(name: str) -> tuple[str, str] | None:
    """The subscriber and the query for which the consumer of this name reads a producer; None for a subscriber of its
    own."""
    subscriber, through, query = name.rpartition(_THROUGH)
    return (subscriber, query) if through else None


def first_subscriber(name: str) -> str:
    """The subscriber for whom, in the end, a consumer reads; a subscriber's own name."""
    return name.partition(_THROUGH)[0]
