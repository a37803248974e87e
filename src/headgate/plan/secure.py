"""Decide which queries may share: queries whose sharing could tell one person about another are in different plans
(SPEC.md, 4.4).

INVARIANT: there is one plan for each sharing class, and the name of a node's running state includes its class. So equal
nodes of different classes are never one.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType

from headgate.errors import Conflict, NotFound
from headgate.labels import Level
from headgate.plan.merged import MergedPlan, Shown
from headgate.plan.nodes import Node, Source


class Mode(StrEnum):
    """What a subscriber receives (SPEC.md, 4.3)."""

    EXACT = "exact"
    CUMULATIVE = "cumulative"


@dataclass(frozen=True)
class SharingClass:
    """Queries that may share with each other; `level` is None for all levels, `streams` is None for any streams."""

    mode: Mode
    level: Level | None
    streams: frozenset[str] | None = None

    @classmethod
    def of(cls, root: Node, mode: Mode, level: Level, *, trusted: bool) -> SharingClass:
        """The streams are taken from the query itself, so nobody can claim other streams than it reads."""
        match mode:
            case Mode.EXACT:
                return cls(mode, None if trusted else level)
            case Mode.CUMULATIVE:
                return cls(mode, level, frozenset(node.stream for node in root.walk() if isinstance(node, Source)))

    def state_key(self, node: Node) -> str:
        """The name of a node's running state: the same in every process, different in every class."""
        level = None if self.level is None else self.level.sort_key()
        streams = None if self.streams is None else sorted(self.streams)
        text = json.dumps([self.mode, level, streams, node.key])
        return hashlib.sha256(text.encode()).hexdigest()[:32]


class SecurePlan:
    """The plans of all running queries. `trusted` means one processor for all levels, which may share exact queries
    between levels; otherwise a query's plan depends only on queries of its own level.

    The catalog gives the names, one for each query over all levels: a person cannot choose them, and so cannot probe
    for them.
    """

    def __init__(self, *, trusted: bool) -> None:
        self._trusted = trusted
        self._plans: dict[SharingClass, MergedPlan] = {}
        self._classes: dict[str, SharingClass] = {}

    @property
    def plans(self) -> Mapping[SharingClass, MergedPlan]:
        return MappingProxyType(self._plans)

    def add(self, name: str, root: Node, *, mode: Mode, level: Level) -> SharingClass:
        if name in self._classes:
            raise Conflict(f"query `{name}` is in the plan already")
        sharing = SharingClass.of(root, mode, level, trusted=self._trusted)
        self._plans.setdefault(sharing, MergedPlan()).add(name, root)
        self._classes[name] = sharing
        return sharing

    def remove(self, name: str) -> None:
        sharing = self.class_of(name)
        self._plans[sharing].remove(name)
        if not self._plans[sharing].queries:
            del self._plans[sharing]
        del self._classes[name]

    def class_of(self, name: str) -> SharingClass:
        if name not in self._classes:
            raise NotFound(f"query `{name}` is not in the plan")
        return self._classes[name]

    def plan_of(self, name: str) -> MergedPlan:
        return self._plans[self.class_of(name)]

    def seen_from(self, level: Level) -> Mapping[SharingClass, tuple[Shown, ...]]:
        """Everything that the processor of one level works with. A trusted processor shows its plan to nobody: what it
        shares between levels appears at no level."""
        return {sharing: plan.snapshot() for sharing, plan in self._plans.items() if sharing.level == level}
