"""A plan for people: the tree of a query, what it shares with whom and by which definition, what its results carry.

Only queries that the reader may see are named; for the reader the others do not exist.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from headgate.plan import nodes as n
from headgate.plan.merged import MergedPlan
from headgate.plan.sharing import Kind, relation
from headgate.plan.words import describe, expression, operator

_DEFINITIONS = {
    Kind.COMPLETE: "complete (Definition 5)",
    Kind.STRICT: "strict partial (Definition 7)",
    Kind.LOOSE: "loose partial (Definition 8)",
}


@dataclass(frozen=True)
class Shared:
    """What one query shares with another."""

    query: str
    kind: str
    operators: tuple[str, ...]


def tree(plan: MergedPlan, name: str, others: Mapping[str, str]) -> list[str]:
    """The tree of a query in the plan, its result first; `others` are visible queries, by the names to show."""
    return list(_lines(plan, plan.queries[name], name, others, "", ""))


def _lines(
    plan: MergedPlan, node: n.Node, name: str, others: Mapping[str, str], first: str, rest: str
) -> Iterator[str]:
    remark = "; ".join(_remarks(plan, node, name, others))
    yield f"{first}{operator(node)} {describe(node)}".rstrip() + (f"   -- {remark}" if remark else "")
    for number, below in enumerate(node.inputs):
        last = number == len(node.inputs) - 1
        branch, gap = ("└─ ", "   ") if last else ("├─ ", "│  ")
        yield from _lines(plan, below, name, others, rest + branch, rest + gap)


def _remarks(plan: MergedPlan, node: n.Node, name: str, others: Mapping[str, str]) -> Iterator[str]:
    if isinstance(node, n.Source):
        return
    if readers := _seen(plan, node, name, others):
        yield f"shared with {', '.join(readers)}"
    base = plan.base(node)
    if base is not None and (owners := _seen(plan, base, name, others)):
        yield f"computed from {operator(base)} {describe(base)} of {', '.join(owners)}"
    if isinstance(node, n.Aggregate):
        yield f"keeps {', '.join(sorted(expression(kept, node.input) for kept in node.accumulators))}"


def _seen(plan: MergedPlan, node: n.Node, name: str, others: Mapping[str, str]) -> list[str]:
    return sorted(others[reader] for reader in plan.readers(node) if reader != name and reader in others)


def shares(plan: MergedPlan, name: str, others: Mapping[str, str]) -> list[Shared]:
    """How a query is shared with each visible other that has something in common with it."""
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
