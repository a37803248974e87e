"""What is wanted of a processor at one moment: which queries run over which streams, for whom, with which rights.

The catalog says it, not the engine: a `Gate` is asked before every batch, and once more, with all changes of rights
held up, while results go out.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Protocol

from headgate.engine.ingress import Entrance
from headgate.engine.sights import Running
from headgate.labels import Clearance, Label, Rules


@dataclass(frozen=True)
class Subscriber:
    """Somebody who wants the results of a query, as `name`; without a clearance it may have none of them."""

    name: str
    query: str
    clearance: Clearance | None


@dataclass(frozen=True)
class Demand:
    rules: Rules = field(default_factory=Rules)
    entrances: Mapping[str, Entrance] = field(default_factory=dict)
    queries: tuple[Running, ...] = ()
    subscribers: tuple[Subscriber, ...] = ()

    @cached_property
    def running(self) -> Mapping[str, Running]:
        return {query.name: query for query in self.queries}

    @cached_property
    def clearances(self) -> Mapping[tuple[str, str], Clearance | None]:
        """By subscriber and query."""
        return {(x.name, x.query): x.clearance for x in self.subscribers}

    def permits(self, subscriber: str, query: str, block: int, label: Label) -> bool:
        """Whether the rights of this moment permit somebody a result, whenever it was computed."""
        clearance, running = self.clearances.get((subscriber, query)), self.running.get(query)
        if clearance is None or running is None or not self.rules.order.dominates(clearance.level, running.level):
            return False
        aggregated = running.query.blocks[block].aggregated
        return self.rules.permits(label, replace(clearance, level=running.level), aggregated=aggregated)


class Gate(Protocol):
    def demand(self) -> Demand:
        """What is wanted now; the very same object as before if nothing has changed."""
        ...

    def open(self) -> AbstractContextManager[Demand]:
        """The same, and nothing changes until the context ends."""
        ...
