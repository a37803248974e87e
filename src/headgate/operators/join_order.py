"""In which order the sides of a join are joined: what comes first, then what it finds, so that tables, all of which are
there at every instant, are never combined with each other but for the few rows that streams make of them.
"""

from __future__ import annotations

from functools import lru_cache

from headgate.plan import nodes as n
from headgate.plan.expressions import Column, Compare, Expr
from headgate.plan.normal import moved


def joining_order(node: n.Join) -> tuple[tuple[int, ...], n.Join]:
    """The numbers of its sides in that order, and the same join with its sides in it."""
    order = _order(node)
    if order == tuple(sorted(order)):
        return order, node
    sides = tuple(node.sides[number] for number in order)
    conditions = frozenset(moved(x, lambda c: Column(order.index(c.input), c.name, c.type)) for x in node.conditions)
    return order, n.Join(sides, conditions)


@lru_cache(maxsize=10_000)
def _order(node: n.Join) -> tuple[int, ...]:
    """Streams stay in the order of their names, before tables; of these, one that has a column in common with what is
    there already comes first. Numbers may be kept by the name of a join; the join itself not, whose columns have types
    that are no part of it."""
    tables = [number for number, side in enumerate(node.sides) if any(isinstance(x, n.Table) for x in side.walk())]
    order = [number for number in range(len(node.sides)) if number not in tables]
    while tables:
        chosen = next((x for x in tables if _connected(node, order, x)), tables[0])
        tables.remove(chosen)
        order.append(chosen)
    return tuple(order)


def _connected(node: n.Join, joined: list[int], number: int) -> bool:
    equal = (x.inputs for x in node.conditions if isinstance(x, Compare) and x.operator == "=")
    return any(number in inputs and not inputs.isdisjoint(joined) for inputs in equal)


def equality(condition: Expr, number: int) -> tuple[Column, Column, Expr] | None:
    """A condition that joins a column of this side with one of a side before it."""
    match condition:
        case Compare("=", Column() as a, Column() as b) if number in (a.input, b.input) and a.input != b.input:
            left, right = (a, b) if b.input == number else (b, a)
            return (left, right, condition) if left.input < number else None
    return None
