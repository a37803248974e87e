"""Lower a query to its tree of operators, in a form that does not depend on how the query was written.

Conditions become sets of conjuncts and are pushed down to their source: below the window if they stood before FROM,
above it if they stood after (paper 002, 4.1). The sides of a join are in the order of their streams' names, so that
`FROM a, b` and `FROM b, a` are one plan.
"""

from __future__ import annotations

from dataclasses import replace

from headgate.plan import nodes as n
from headgate.plan.expressions import AggregateCall, Column, Expr, Or
from headgate.plan.implication import minimal
from headgate.plan.normal import conjuncts, moved
from headgate.plan.queries import Query, QueryBlock, Reading

MOST_COMPARED = 32


def lower(query: Query) -> n.Node:
    blocks = tuple(_lower_block(block) for block in query.blocks)
    return blocks[0] if len(blocks) == 1 else n.Union(blocks)


def _lower_block(block: QueryBlock) -> n.Node:
    block = _in_order(block)
    before, after = conjuncts(block.before), conjuncts(block.after)
    sides = tuple(_side(reading, number, before, after) for number, reading in enumerate(block.readings))
    node = sides[0]
    if len(sides) > 1:
        node = n.Join(sides, _needed(frozenset(c for c in before | after if len(c.inputs) > 1)))
    if block.aggregated:
        calls = frozenset(
            part
            for expr in (block.having, *(expr for _, expr in block.items))
            for part in expr.walk()
            if isinstance(part, AggregateCall)
        )
        node = _select(n.Aggregate(node, frozenset(block.groups), calls), conjuncts(block.having))
    node = n.Project(node, block.items)
    if block.distinct:
        node = n.Distinct(node)
    return node if block.stateless else n.ToStream(node, block.operator)


def _side(reading: Reading, number: int, before: frozenset[Expr], after: frozenset[Expr]) -> n.Node:
    """One source with the conditions on it alone. Conditions on no source at all go with the first."""

    def own(conditions: frozenset[Expr]) -> frozenset[Expr]:
        mine = {c for c in conditions if c.inputs == {number} or (not c.inputs and number == 0)}
        return frozenset(moved(c, _local) for c in mine)

    if reading.stream.table or reading.window is None:
        node = n.Table(reading.stream.name) if reading.stream.table else n.Arrivals(reading.stream.name)
        return _select(node, own(before) | own(after))
    w = reading.window
    partition = tuple(_local(column) for column in w.partition)
    below = _select(n.Source(reading.stream.name), own(before))
    window = n.Window(below, w.kind, w.rows, w.range, w.slide, partition)
    return _select(window, own(after))


def _local(column: Column) -> Column:
    """Below a join there is one input only, number 0."""
    return Column(0, column.name, column.type)


def _select(node: n.Node, conditions: frozenset[Expr]) -> n.Node:
    return n.Select(node, _needed(conditions)) if conditions else node


def _needed(conditions: frozenset[Expr]) -> frozenset[Expr]:
    """Drop conditions that follow from others. If there are very many, all stay, because each is compared with each."""
    alternatives = sum(len(c.operands) if isinstance(c, Or) else 1 for c in conditions)
    return minimal(conditions) if alternatives <= MOST_COMPARED else conditions


def _in_order(block: QueryBlock) -> QueryBlock:
    """Sort the readings by their streams' names; readings of one stream stay in the order of FROM."""
    order = sorted(range(len(block.readings)), key=lambda number: block.readings[number].stream.name)
    if order == list(range(len(order))):
        return block
    place = {old: new for new, old in enumerate(order)}

    def move(column: Column) -> Column:
        return Column(place[column.input], column.name, column.type)

    def move_reading(reading: Reading) -> Reading:
        w = reading.window
        return replace(reading, window=replace(w, partition=tuple(map(move, w.partition)))) if w else reading

    return replace(
        block,
        readings=tuple(move_reading(block.readings[old]) for old in order),
        before=moved(block.before, move),
        after=moved(block.after, move),
        items=tuple((name, moved(expr, move)) for name, expr in block.items),
        groups=tuple(map(move, block.groups)),
        having=moved(block.having, move),
    )
