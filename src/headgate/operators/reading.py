"""Read the columns of tuples that expressions need, and find the rows that meet conditions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache, reduce
from typing import Protocol

import numpy as np
import pyarrow as pa

from headgate.columns.sorting import Bools, Ints
from headgate.expressions.limits import Evaluate, Values
from headgate.model.budget import charge
from headgate.operators.label_sets import LabelSets
from headgate.plan import nodes as n
from headgate.plan.expressions import Expr


class Tuples(Protocol):
    """The tuples of a view, in the order of SPEC.md, 4.2; positions are numbers in this order."""

    @property
    def times(self) -> Ints: ...

    @property
    def labels(self) -> LabelSets:
        """Each tuple's own label."""
        ...

    def of_stream(self, stream: str) -> Bools:
        """Which tuples belong to a stream."""
        ...

    def column(self, stream: str, name: str, places: Ints) -> pa.Array:
        """A column for some tuples of the stream; NULL where the tuple has no value, or the view may not see it."""
        ...

    def size(self, stream: str, name: str, places: Ints) -> int:
        """The size of that column in bytes."""
        ...


def values_of(
    tuples: Tuples, streams: Sequence[str], sides: tuple[Ints, ...], exprs: Iterable[Expr], *, many: bool = False
) -> Values:
    """The columns that expressions over these rows read; `streams` are the streams of the sides. Where a tuple may be
    in `many` of the rows, the columns are larger than the input, and are charged."""
    pushdown = {column for expr in exprs for column in expr.columns}
    if many:
        charge(sum(tuples.size(streams[c.input], c.name, sides[c.input]) for c in pushdown))
    return {c: tuples.column(streams[c.input], c.name, sides[c.input]) for c in pushdown}


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
