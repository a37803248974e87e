"""Read the columns of tuples that expressions need, and find the rows that meet conditions."""

from __future__ import annotations

from functools import lru_cache, reduce

import numpy as np

from headgate.columns.sorting import Bools
from headgate.expressions.limits import Evaluate, Values
from headgate.plan import nodes as n
from headgate.plan.expressions import Expr


def meets(evaluate: Evaluate, conditions: frozenset[Expr], values: Values, size: int) -> Bools:
    """Which rows meet all conditions; a condition that is NULL is not met."""
    found = evaluate(sorted(conditions, key=str) if len(conditions) > 1 else [*conditions], values, size)
    plain = [np.asarray((x.fill_null(False) if x.null_count else x).to_numpy(zero_copy_only=False)) for x in found]
    return reduce(np.logical_and, plain) if plain else np.ones(size, np.bool_)


@lru_cache(maxsize=10_000)
def stream_of(node: n.Node) -> str:
    return next(below.stream for below in node.walk() if isinstance(below, n.Source))


@lru_cache(maxsize=10_000)
def streams_of(node: n.Node) -> list[str]:
    while not isinstance(node, n.Join) and node.inputs and not isinstance(node, n.Source):
        node = node.inputs[0]
    return [stream_of(side) for side in node.sides] if isinstance(node, n.Join) else [stream_of(node)]
