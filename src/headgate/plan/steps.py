"""The steps by which a block is executed: what the executor computes, keeps and counts as one, whatever reads it.

A tree says what a block means. The executor runs it in steps: it selects below windows, lets tuples enter a sequence,
keeps the rows of windows and joins, keeps groups, and makes results. Blocks that have a step in common (of one sharing
class, for views that see the same) have it done once. EXPLAIN shows which steps are common, and EXPLAIN ANALYZE what
each of them did: the names below are the only ones that both use.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from headgate.plan import nodes as n
from headgate.plan.expressions import AggregateCall, Expr, typed_text


@dataclass(frozen=True)
class Operator:
    """A node of a block with the names of the steps that it is executed by."""

    node: n.Node
    steps: tuple[str, ...]


def reading(node: n.Node) -> str:
    """Reading a stream or table, or a selection of it."""
    return f"read {node.key}"


def sequence(window: n.Window, rows: n.Node) -> str:
    """Tuples that entered windows over one input, kept once for all of them. A PARTITIONED window has its own, and so
    have UNBOUNDED windows, which keep some of the tuples only."""
    if window.kind == "PARTITIONED":
        return f"sequence {rows.key} {window.key}"
    return f"sequence {window.key if window.kind == 'UNBOUNDED' else window.input.key}"


def within(node: n.Node, rows: n.Node) -> str:
    """A window, a selection after it or the join among the rows of a block."""
    return f"rows {rows.key} {node.key}"


def groups(top: n.Node) -> str:
    """The groups of a block's rows, with the rule by which it emits them."""
    rows, aggregate = rows_of(top), aggregate_of(top)
    slides = any(isinstance(x, n.Window) and x.slide for x in rows.walk())
    operator = top.operator if isinstance(top, n.ToStream) else ""
    if aggregate is not None:
        by: list[Expr] = sorted(aggregate.groups, key=str)
        emits = "every" if operator == "RSTREAM" or slides else "gained"
    else:
        by = [expr for node in top.walk() if isinstance(node, n.Project) for _, expr in node.items]
        emits = {"RSTREAM": "every", "DSTREAM": "gone"}.get(operator, "appeared")
    return f"groups {rows.key} {emits} {', '.join(map(typed_text, by))}"


def accumulator(own: str, call: AggregateCall) -> str:
    """What is kept of each of the groups of this name for one aggregate."""
    return f"{own} {typed_text(call)}"


def results(top: n.Node) -> str:
    """The results of a block."""
    return f"results {top.key}"


def operators(root: n.Node) -> Iterator[Operator]:
    """All operators of a query, inputs first. A union does nothing: the results of its blocks go out as they are."""
    for top in blocks_of(root):
        yield from of_block(top)


def different(roots: Iterable[n.Node]) -> dict[tuple[str, tuple[str, ...]], Operator]:
    """The operators of these queries, each once, with its node and steps."""
    return {(x.node.key, x.steps): x for root in roots for x in operators(root)}


def blocks_of(root: n.Node) -> tuple[n.Node, ...]:
    return root.blocks if isinstance(root, n.Union) else (root,)


def rows_of(top: n.Node) -> n.Node:
    """What the windows of a block hold and its joins combine."""
    for node in _above(top):
        top = node.input
    return top


def aggregate_of(top: n.Node) -> n.Aggregate | None:
    return next((node for node in _above(top) if isinstance(node, n.Aggregate)), None)


def _above(top: n.Node) -> Iterator[n.ToStream | n.Distinct | n.Project | n.Aggregate | n.Select]:
    """The nodes of a block above its rows."""
    node = top
    while isinstance(node, n.ToStream | n.Distinct | n.Project | n.Aggregate) or (
        isinstance(node, n.Select) and isinstance(node.input, n.Aggregate)
    ):
        yield node
        node = node.input


def of_block(top: n.Node) -> Iterator[Operator]:
    """The operators of one block, inputs first. No two have the same node."""
    rows = rows_of(top)
    for node in rows.walk():
        match node:
            case n.Window():
                yield Operator(node, (sequence(node, rows), within(node, rows)))
            case n.Join() | n.Select(input=n.Window()):
                yield Operator(node, (within(node, rows),))
            case _:
                yield Operator(node, (reading(node),))
    for node in reversed(list(_above(top))):
        match node:
            case n.Aggregate():
                calls = sorted(node.calls, key=typed_text)
                yield Operator(node, (groups(top), *(accumulator(groups(top), call) for call in calls)))
            case n.Distinct():
                yield Operator(node, (groups(top),))
            case _:
                yield Operator(node, (results(top),))
