"""The shared plan of the queries of one sharing class: each step of execution once, however many queries have it (paper
002, 4.2).

The executor compiles it: it asks from which weaker selection a selection is computed, and does steps with the same name
once. Nodes are values, so adding or removing a query changes no node of another, and running state, which is kept by
`key`, survives. Which selection another one is computed from is found on demand and not stored: everything the plan
says is a function of the running queries, and adding a query costs the same however many there are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from headgate.errors import Conflict, NotFound
from headgate.plan.expressions import Call, Expr
from headgate.plan.nodes import Node, Select, Source, Table
from headgate.plan.selections import Selections
from headgate.plan.steps import Operator, operators


class MergedPlan:
    """The plan of queries by name, each lowered by `lowering`."""

    def __init__(self) -> None:
        self._queries: dict[str, Node] = {}
        self._readers: dict[str, set[str]] = {}
        self._selections: dict[str, Selections] = {}
        self._uses: dict[str, int] = {}

    @property
    def queries(self) -> Mapping[str, Node]:
        return MappingProxyType(self._queries)

    def add(self, name: str, root: Node) -> None:
        if name in self._queries:
            raise Conflict(f"query `{name}` is in the plan already")
        self._queries[name] = root
        for operator in operators(root):
            for step in operator.steps:
                self._readers.setdefault(step, set()).add(name)
        for select in _selections(root):
            self._uses[select.key] = self._uses.get(select.key, 0) + 1
            if self._uses[select.key] == 1:
                self._selections.setdefault(select.input.key, Selections()).put(select)

    def remove(self, name: str) -> None:
        if name not in self._queries:
            raise NotFound(f"query `{name}` is not in the plan")
        root = self._queries.pop(name)
        for step in {step for operator in operators(root) for step in operator.steps}:
            self._readers[step].discard(name)
            if not self._readers[step]:
                del self._readers[step]
        for select in _selections(root):
            self._uses[select.key] -= 1
            if not self._uses[select.key]:
                del self._uses[select.key]
                self._selections[select.input.key].drop(select)
                if not self._selections[select.input.key]:
                    del self._selections[select.input.key]

    def steps(self) -> frozenset[str]:
        return frozenset(self._readers)

    def readers(self, operator: Operator) -> frozenset[str]:
        """The queries that have this operator: all its steps."""
        return frozenset.intersection(*(frozenset(self._readers.get(step, ())) for step in operator.steps))

    def partners(self, operator: Operator) -> frozenset[str]:
        """The queries that have some of its steps, but not all."""
        some = frozenset[str]().union(*(self._readers.get(step, ()) for step in operator.steps))
        return some - self.readers(operator)

    def base(self, select: Node) -> Select | None:
        """The weaker selection of the same input from whose results a selection is computed."""
        if not isinstance(select, Select) or not is_derivable(select):
            return None
        known = self._selections.get(select.input.key)
        return known.base(select) if known is not None else None


def residue(select: Select, base: Select | None) -> frozenset[Expr]:
    """The conditions to check on the results of its base; without a base, all of them (Definition 9)."""
    return select.conditions if base is None else select.conditions - base.conditions


def is_derivable(select: Select) -> bool:
    """Whether a selection may be computed from a weaker one, or a stronger one from it: it reads a stream as it is, and
    its conditions make no texts.

    What is evaluated is charged to the budgets of those who read it (SPEC.md, 4.3, Limits). Conditions without texts
    cost the same for each tuple, so a view can be charged as if it were alone. Selections after windows and of groups
    see few tuples, those that enter and the groups that are emitted; each is evaluated by itself.
    """
    plain = isinstance(select.input, Source) and not isinstance(select.input, Table)
    return plain and not any(_makes_text(condition) for condition in select.conditions)


def _makes_text(condition: Expr) -> bool:
    return any(isinstance(part, Call) and part.function == "CONCAT" for part in condition.walk())


def _selections(root: Node) -> Iterable[Select]:
    return (node for node in root.walk() if isinstance(node, Select) and is_derivable(node))
