"""The order in which relations are computed: components of the graph of who depends on whom."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from typing import TypeVar

N = TypeVar("N", bound=Hashable)


def components(nodes: Iterable[N], needs: Mapping[N, Iterable[N]]) -> list[list[N]]:
    """Strongly connected components, each after those it needs (Tarjan, without recursion)."""
    index: dict[N, int] = {}
    low: dict[N, int] = {}
    stack: list[N] = []
    on_stack: set[N] = set()
    found: list[list[N]] = []
    for root in nodes:
        if root in index:
            continue
        work = [(root, iter(needs.get(root, ())))]
        index[root] = low[root] = len(index)
        stack.append(root)
        on_stack.add(root)
        while work:
            node, rest = work[-1]
            following = next(rest, None)
            if following is None:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == index[node]:
                    found.append(_popped(stack, on_stack, node))
            elif following not in index:
                index[following] = low[following] = len(index)
                stack.append(following)
                on_stack.add(following)
                work.append((following, iter(needs.get(following, ()))))
            elif following in on_stack:
                low[node] = min(low[node], index[following])
    return found


def _popped(stack: list[N], on_stack: set[N], node: N) -> list[N]:
    component = []
    while True:
        member = stack.pop()
        on_stack.discard(member)
        component.append(member)
        if member == node:
            return component
