"""Decide which queries may share: queries whose sharing could tell one person about another are in different plans
(SPEC.md, 4.4).

INVARIANT: there is one plan for each sharing class, and the executor keeps the views of different classes apart. So
equal operators of different classes are never one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType

from headgate.errors import Conflict
from headgate.labels import Level
from headgate.plan.merged import MergedPlan
from headgate.plan.nodes import Node, Source


class Mode(StrEnum):
    """What a subscriber receives (SPEC.md, 4.3)."""

    EXACT = "exact"
    CUMULATIVE = "cumulative"


@dataclass(frozen=True)
class SharingClass:
    """Queries that may share with each other: of one mode and level, over the same streams.

    Streams belong to it because the time up to which the tuples of a query are final is the least over its streams:
    windows of queries over different streams do not move together.
    """

    mode: Mode
    level: Level
    streams: frozenset[str]

    @classmethod
    def of(cls, root: Node, mode: Mode, level: Level) -> SharingClass:
        """The streams are taken from the query itself, so nobody can claim other streams than it reads."""
        return cls(mode, level, frozenset(node.stream for node in root.walk() if isinstance(node, Source)))


class SecurePlan:
    """The plans of running queries, by the names that the engine gives them: a person cannot choose these, and so
    cannot probe for them."""

    def __init__(self) -> None:
        self._plans: dict[SharingClass, MergedPlan] = {}
        self._classes: dict[str, SharingClass] = {}

    @property
    def plans(self) -> Mapping[SharingClass, MergedPlan]:
        return MappingProxyType(self._plans)

    def add(self, name: str, root: Node, *, mode: Mode, level: Level) -> None:
        if name in self._classes:
            raise Conflict(f"query `{name}` is in the plan already")
        sharing = SharingClass.of(root, mode, level)
        self._plans.setdefault(sharing, MergedPlan()).add(name, root)
        self._classes[name] = sharing

    def plan_of(self, name: str) -> MergedPlan:
        return self._plans[self._classes[name]]
