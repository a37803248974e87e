"""Choose the order in which the sides of a join are joined: streams first, then tables. All tuples of tables are there
at every instant, so tables are joined with the few rows that streams make and not with each other."""

from __future__ import annotations

from functools import lru_cache

from headgate.plan import nodes as n
from headgate.plan.expressions import Column, Compare
from headgate.plan.normal import moved


def joining_order(node: n.Join) -> tuple[tuple[int, ...], n.Join]:
    """The numbers of the sides in join order, and the same join with its sides in that order."""
    order = _order(node)
    if order == tuple(sorted(order)):
        return order, node
    sides = tuple(node.sides[number] for number in order)
    conditions = frozenset(moved(x, lambda c: Column(order.index(c.input), c.name, c.type)) for x in node.conditions)
    return order, n.Join(sides, conditions)


@lru_cache(maxsize=10_000)
def _order(node: n.Join) -> tuple[int, ...]:
    """Streams stay in the order of their names, before tables. Of the tables, one that an equality connects with the
    sides joined so far comes next.
    """
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
