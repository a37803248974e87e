"""Explain a plan to a person: the tree of a query, and what it shares with which queries by which definition of paper
002.

INVARIANT: only queries that the reader may see are named; for the reader the others do not exist.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice

from headgate.plan import nodes as n
from headgate.plan.merged import MergedPlan
from headgate.plan.sharing import Kind, relation
from headgate.plan.words import describe, expression, operator

_DEFINITIONS = {
    Kind.COMPLETE: "complete (Definition 5)",
    Kind.STRICT: "strict partial (Definition 7)",
    Kind.LOOSE: "loose partial (Definition 8)",
}


MOST_NAMED = 10


@dataclass(frozen=True)
class Shared:
    """What one query shares with another."""

    query: str
    kind: str
    operators: tuple[str, ...]


def tree(plan: MergedPlan, name: str, others: Mapping[str, str]) -> list[str]:
    """The tree of a query in the plan, its result first. `others` maps visible queries to the names that are shown."""
    return _Trees(plan, others).of(name)


def trees(plan: MergedPlan) -> Iterator[tuple[str, list[str]]]:
    """The trees of all queries in the plan, by their names."""
    made = _Trees(plan, {name: name for name in plan.queries})
    return ((name, made.of(name)) for name in sorted(plan.queries))


class _Trees:
    """The readers of a node are looked up once for all trees, and only a few of very many are named: otherwise all
    trees together would grow with the square of the number of queries."""

    def __init__(self, plan: MergedPlan, others: Mapping[str, str]) -> None:
        self._plan = plan
        self._others = others
        self._readers: dict[str, dict[str, str]] = {}

    def of(self, name: str) -> list[str]:
        return list(self._lines(self._plan.queries[name], name, "", ""))

    def _lines(self, node: n.Node, name: str, first: str, rest: str) -> Iterator[str]:
        remark = "; ".join(self._remarks(node, name))
        yield f"{first}{operator(node)} {describe(node)}".rstrip() + (f"   -- {remark}" if remark else "")
        for number, below in enumerate(node.inputs):
            last = number == len(node.inputs) - 1
            branch, gap = ("└─ ", "   ") if last else ("├─ ", "│  ")
            yield from self._lines(below, name, rest + branch, rest + gap)

    def _remarks(self, node: n.Node, name: str) -> Iterator[str]:
        if isinstance(node, n.Source):
            return
        if readers := self._seen(node, name):
            yield f"shared with {readers}"
        base = self._plan.base(node)
        if base is not None and (owners := self._seen(base, name)):
            yield f"computed from {operator(base)} {describe(base)} of {owners}"
        if isinstance(node, n.Aggregate):
            yield f"keeps {', '.join(sorted(expression(kept, node.input) for kept in node.accumulators))}"

    def _seen(self, node: n.Node, name: str) -> str:
        """The visible readers of a node, except this query."""
        if node.key not in self._readers:
            visible = self._plan.readers(node) & self._others.keys()
            self._readers[node.key] = {x: self._others[x] for x in sorted(visible, key=self._others.__getitem__)}
        known = self._readers[node.key]
        shown = [text for reader, text in islice(known.items(), MOST_NAMED + 1) if reader != name][:MOST_NAMED]
        more = len(known) - len(shown) - (name in known)
        return ", ".join(shown) + (f" and {more} more" if more else "")


def shared_with(plan: MergedPlan, name: str, others: Mapping[str, str]) -> list[Shared]:
    """How a query is shared with each visible query that has something in common with it."""
    root = plan.queries[name]
    touched: set[str] = set()
    for node in root.walk():
        if not isinstance(node, n.Source):
            touched |= plan.readers(node)
            base = plan.base(node)
            touched |= plan.readers(base) if base is not None else set()
    found = []
    for other in sorted((touched & others.keys()) - {name}, key=others.__getitem__):
        related = relation(root, plan.queries[other])
        if related.kind in _DEFINITIONS:
            operators = tuple(f"{operator(node)} {describe(node)}".strip() for node in related.shared)
            found.append(Shared(others[other], _DEFINITIONS[related.kind], operators))
    return found
