"""Read the tuples of one view group: columns as its views see them, conditions, computed values."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa

from headgate.columns.sorting import Bools, Ints
from headgate.expressions.limits import Evaluate, Values, bounded
from headgate.model.budget import charge
from headgate.operators.profile import Profile
from headgate.operators.reading import meets
from headgate.operators.tuple_store import VisibleTuples
from headgate.plan.expressions import Expr


class Reader:
    """`tuples` are the tuples as the view group sees them in this batch; `profile` counts what operators do."""

    def __init__(self, tuples: VisibleTuples, evaluate: Evaluate, profile: Profile | None = None) -> None:
        self.tuples = tuples
        self.profile = profile or Profile()
        self._free = evaluate
        self._evaluate = bounded(evaluate)

    def values(
        self, streams: Sequence[str], sides: tuple[Ints, ...], exprs: Iterable[Expr], *, many: bool = False
    ) -> Values:
        """The columns that expressions over these rows read; `streams` are the streams of the sides. Where a tuple may
        be in `many` of the rows, the columns are larger than the input, and are charged."""
        read = {column for expr in exprs for column in expr.columns}
        if many or len(sides) > 1:
            charge(sum(self.tuples.size(streams[c.input], c.name, sides[c.input]) for c in read))
        return {c: self.tuples.column(streams[c.input], c.name, sides[c.input]) for c in read}

    def computed(
        self, streams: Sequence[str], sides: tuple[Ints, ...], exprs: Sequence[Expr], *, many: bool = False
    ) -> list[pa.Array]:
        return self._evaluate(exprs, self.values(streams, sides, exprs, many=many), len(sides[0]))

    def meets(self, streams: Sequence[str], sides: tuple[Ints, ...], conditions: frozenset[Expr]) -> Bools:
        """Which rows meet all conditions."""
        if not len(sides[0]):
            return np.zeros(0, np.bool_)
        return meets(self._evaluate, conditions, self.values(streams, sides, conditions), len(sides[0]))

    def derived(self, stream: str, tuples: Ints, conditions: frozenset[Expr]) -> Bools:
        """Which tuples meet all conditions; the caller has charged for it."""
        if not len(tuples):
            return np.zeros(0, np.bool_)
        return meets(self._free, conditions, self.values([stream], (tuples,), conditions), len(tuples))

    def evaluate(self, exprs: Sequence[Expr], values: Values, size: int) -> list[pa.Array]:
        return self._evaluate(exprs, values, size)

    def met(self, conditions: frozenset[Expr], values: Values, size: int) -> Bools:
        return meets(self._evaluate, conditions, values, size)
