"""Queries that read the results of others run after them, and see of them what their own subscribers would receive.

So whoever looks at a query looks, through it, at every query whose results it reads, with the same rights: as one more
subscriber there, a *feeder*, whose results become tuples that this one view sees.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from headgate.engine.demand import Demand, Subscriber
from headgate.engine.sights import Running

_THROUGH = "\x1f"


@dataclass(frozen=True)
class Stages:
    """Queries by stage, each after all it reads; `makers` are the queries whose results are streams for others, by
    these streams; `subscribers` include the feeders."""

    stages: tuple[tuple[Running, ...], ...]
    makers: Mapping[str, str]
    subscribers: tuple[Subscriber, ...]

    @classmethod
    def of(cls, demand: Demand) -> Stages:
        read = {stream for query in demand.queries for stream in query.streams}
        makers = {query.output: query.name for query in demand.queries if query.output in read}
        stages = tuple(
            tuple(query for query in demand.queries if query.stage == stage)
            for stage in range(1 + max((query.stage for query in demand.queries), default=0))
        )
        subscribers, waiting = [], list(demand.subscribers)
        while waiting:
            subscriber = waiting.pop(0)
            subscribers.append(subscriber)
            streams = demand.running[subscriber.query].streams
            waiting += [feeder(subscriber, makers[stream]) for stream in sorted(streams) if stream in makers]
        return cls(stages, makers, tuple(dict.fromkeys(subscribers)))


def feeder(subscriber: Subscriber, maker: str) -> Subscriber:
    return Subscriber(f"{subscriber.name}{_THROUGH}{subscriber.query}", maker, subscriber.clearance)


def fed(feeder: str) -> tuple[str, str] | None:
    """The subscriber and the query that a feeder feeds; None for a subscriber of its own."""
    name, through, query = feeder.rpartition(_THROUGH)
    return (name, query) if through else None
