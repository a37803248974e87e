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
from headgate.plan.sharing import SharingKind, relation
from headgate.plan.steps import Operator, of_block, operators, reading
from headgate.plan.words import describe, operator

_DEFINITIONS = {
    SharingKind.COMPLETE: "complete (Definition 5)",
    SharingKind.STRICT: "strict partial (Definition 7)",
    SharingKind.LOOSE: "loose partial (Definition 8)",
}


MOST_NAMED = 10


@dataclass(frozen=True)
class Line:
    """A line of a tree: its text, with the branches before it and remarks behind it, and the operator on it."""

    text: str
    operator: Operator | None


@dataclass(frozen=True)
class Shared:
    """What one query shares with another."""

    query: str
    kind: str
    operators: tuple[str, ...]


def tree(plan: MergedPlan, name: str, others: Mapping[str, str]) -> list[Line]:
    """The tree of a query in the plan, its result first. `others` maps visible queries to the names that are shown."""
    return _Trees(plan, others).of(name)


def trees(plan: MergedPlan) -> Iterator[tuple[str, list[Line]]]:
    """The trees of all queries in the plan, by their names."""
    made = _Trees(plan, {name: name for name in plan.queries})
    return ((name, made.of(name)) for name in sorted(plan.queries))


class _Trees:
    """The readers of an operator are looked up once for all trees, and only a few of very many are named: otherwise all
    trees together would grow with the square of the number of queries."""

    def __init__(self, plan: MergedPlan, others: Mapping[str, str]) -> None:
        self._plan = plan
        self._others = others
        self._readers: dict[tuple[str, ...], dict[str, str]] = {}
        self._partners: dict[tuple[str, ...], dict[str, str]] = {}

    def of(self, name: str) -> list[Line]:
        root = self._plan.queries[name]
        if not isinstance(root, n.Union):
            return list(self._block(root, name, "", ""))
        found = [Line(operator(root), None)]
        for number, top in enumerate(root.blocks):
            last = number == len(root.blocks) - 1
            branch, gap = ("└─ ", "   ") if last else ("├─ ", "│  ")
            found += self._block(top, name, branch, gap)
        return found

    def _block(self, top: n.Node, name: str, first: str, rest: str) -> Iterator[Line]:
        known = {x.node.key: x for x in of_block(top)}
        return self._lines(known, top, name, first, rest)

    def _lines(self, known: Mapping[str, Operator], node: n.Node, name: str, first: str, rest: str) -> Iterator[Line]:
        remark = "; ".join(self._remarks(known[node.key], name))
        text = f"{first}{operator(node)} {describe(node)}".rstrip() + (f"   -- {remark}" if remark else "")
        yield Line(text, known[node.key])
        for number, below in enumerate(node.inputs):
            last = number == len(node.inputs) - 1
            branch, gap = ("└─ ", "   ") if last else ("├─ ", "│  ")
            yield from self._lines(known, below, name, rest + branch, rest + gap)

    def _remarks(self, own: Operator, name: str) -> Iterator[str]:
        node = own.node
        if isinstance(node, n.Source):
            return
        if readers := self._seen(own, name):
            yield f"shared with {readers}"
        if partners := self._beside(own, name):
            yield f"{_IN_COMMON[type(node)]} with {partners}"
        base = self._plan.base(node)
        if base is not None and (owners := self._seen(Operator(base, (reading(base),)), name)):
            yield f"computed from {operator(base)} {describe(base)} of {owners}"

    def _seen(self, own: Operator, name: str) -> str:
        """The visible readers of an operator, except this query."""
        if own.steps not in self._readers:
            self._readers[own.steps] = self._shown(self._plan.readers(own))
        return _named(self._readers[own.steps], name)

    def _beside(self, own: Operator, name: str) -> str:
        """The visible queries with which it keeps something in common, though not all of it."""
        if len(own.steps) == 1:
            return ""
        if own.steps not in self._partners:
            self._partners[own.steps] = self._shown(self._plan.partners(own))
        return _named(self._partners[own.steps], name)

    def _shown(self, queries: frozenset[str]) -> dict[str, str]:
        visible = queries & self._others.keys()
        return {x: self._others[x] for x in sorted(visible, key=self._others.__getitem__)}


_IN_COMMON = {n.Window: "one sequence", n.Aggregate: "groups in common"}


def _named(known: Mapping[str, str], name: str) -> str:
    shown = [text for reader, text in islice(known.items(), MOST_NAMED + 1) if reader != name][:MOST_NAMED]
    more = len(known) - len(shown) - (name in known)
    return ", ".join(shown) + (f" and {more} more" if more else "")


def shared_with(plan: MergedPlan, name: str, others: Mapping[str, str]) -> list[Shared]:
    """How a query is shared with each visible query that has something in common with it."""
    root = plan.queries[name]
    found: dict[str, dict[tuple[str, str], str]] = {}
    for own in operators(root):
        if isinstance(own.node, n.Source):
            continue
        base = plan.base(own.node)
        serving = [(own.node, "", plan.readers(own))]
        if len(own.steps) > 1:
            kept = "tuples of " if isinstance(own.node, n.Window) else "groups of "
            serving.append((own.node, kept, plan.partners(own)))
        if base is not None:
            serving.append((base, "", plan.readers(Operator(base, (reading(base),)))))
        for node, kept, queries in serving:
            for other in (queries & others.keys()) - {name}:
                text = f"{kept}{operator(node)} {describe(node)}".strip()
                found.setdefault(other, {})[node.key, kept] = text
    kinds = {other: relation(root, plan.queries[other]) for other in found}
    return [
        Shared(others[other], _DEFINITIONS[kinds[other]], tuple(found[other].values()))
        for other in sorted(found, key=others.__getitem__)
        if kinds[other] in _DEFINITIONS
    ]
