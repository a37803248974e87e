"""The shared plan of many running queries: each operator once, however many queries contain it (paper 002, 4.2).

Nodes are values, so adding or removing a query changes no node of another, and running state, which is kept by `key`,
survives. The plan also tells from which other node a node may be computed. It computes this on demand and stores
nothing for it: everything it says is a function of the running queries, and adding a query costs the same however many
there are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from headgate.errors import Conflict, NotFound
from headgate.plan.expressions import AggregateCall, Column, Expr
from headgate.plan.nodes import Aggregate, Node, Select, Window
from headgate.plan.selections import Selections
from headgate.plan.windows import Windows

Grouping = tuple[str, frozenset[Column]]


@dataclass(frozen=True)
class _Entry:
    """`depth` is 0 for sources, and otherwise greater than that of any input."""

    node: Node
    depth: int
    readers: set[str] = field(default_factory=set)


@dataclass(frozen=True)
class Shown:
    """Everything that a plan says about one node, in a form that can be compared."""

    node: str
    readers: tuple[str, ...]
    base: str | None = None
    residue: tuple[str, ...] = ()
    accumulators: tuple[str, ...] = ()


class MergedPlan:
    """The plan of queries by name, each lowered by `lowering`."""

    def __init__(self) -> None:
        self._queries: dict[str, Node] = {}
        self._entries: dict[str, _Entry] = {}
        self._selections: dict[str, Selections] = {}
        self._windows: dict[str, Windows] = {}
        self._kept: dict[Grouping, Counter[AggregateCall]] = {}

    @property
    def queries(self) -> Mapping[str, Node]:
        return MappingProxyType(self._queries)

    def add(self, name: str, root: Node) -> None:
        if name in self._queries:
            raise Conflict(f"query `{name}` is in the plan already")
        for node in root.walk():
            entry = self._entries.get(node.key)
            if entry is None:
                depth = 1 + max((self._entries[below.key].depth for below in node.inputs), default=-1)
                entry = self._entries[node.key] = _Entry(node, depth)
                self._put(node)
            entry.readers.add(name)
        self._queries[name] = self._entries[root.key].node

    def remove(self, name: str) -> None:
        if name not in self._queries:
            raise NotFound(f"query `{name}` is not in the plan")
        for node in self._queries.pop(name).walk():
            entry = self._entries[node.key]
            entry.readers.discard(name)
            if not entry.readers:
                del self._entries[node.key]
                self._drop(node)

    def nodes(self) -> tuple[Node, ...]:
        """Each node once, inputs first."""
        ordered = sorted(self._entries.values(), key=lambda entry: (entry.depth, entry.node.key))
        return tuple(entry.node for entry in ordered)

    def readers(self, node: Node) -> frozenset[str]:
        """The names of the queries that contain this node."""
        entry = self._entries.get(node.key)
        return frozenset(entry.readers) if entry else frozenset()

    def base(self, node: Node) -> Node | None:
        """The node from which this one is computed instead of its input: a weaker selection, or a larger window, over
        that input."""
        match node:
            case Select(input=below) if below.key in self._selections:
                return self._selections[below.key].base(node)
            case Window(input=below) if below.key in self._windows:
                return self._windows[below.key].base(node)
        return None

    def residue(self, select: Select) -> frozenset[Expr]:
        """The conditions to check on the results of its base; without a base, all of them."""
        base = self.base(select)
        return select.conditions - base.conditions if isinstance(base, Select) else select.conditions

    def accumulators(self, aggregate: Aggregate) -> frozenset[AggregateCall]:
        """The accumulators of all aggregates over the same input and groups, its own included."""
        return aggregate.accumulators | frozenset(self._kept.get(_grouping(aggregate), ()))

    def snapshot(self) -> tuple[Shown, ...]:
        """Everything that the plan says, for comparing plans."""
        return tuple(map(self._shown, self.nodes()))

    def _shown(self, node: Node) -> Shown:
        base = self.base(node)
        return Shown(
            node.key,
            tuple(sorted(self.readers(node))),
            base.key if base else None,
            tuple(sorted(map(str, self.residue(node)))) if isinstance(node, Select) else (),
            tuple(sorted(map(str, self.accumulators(node)))) if isinstance(node, Aggregate) else (),
        )

    def _put(self, node: Node) -> None:
        match node:
            case Select(input=below):
                self._selections.setdefault(below.key, Selections()).put(node)
            case Window(input=below):
                self._windows.setdefault(below.key, Windows()).put(node)
            case Aggregate():
                self._kept.setdefault(_grouping(node), Counter()).update(node.accumulators)

    def _drop(self, node: Node) -> None:
        match node:
            case Select(input=below):
                self._selections[below.key].drop(node)
                if not self._selections[below.key]:
                    del self._selections[below.key]
            case Window(input=below):
                self._windows[below.key].drop(node)
                if not self._windows[below.key]:
                    del self._windows[below.key]
            case Aggregate():
                kept = self._kept[_grouping(node)]
                kept.subtract(node.accumulators)
                for call in [call for call in node.accumulators if not kept[call]]:
                    del kept[call]
                if not kept:
                    del self._kept[_grouping(node)]


def _grouping(aggregate: Aggregate) -> Grouping:
    return aggregate.input.key, aggregate.groups
