"""Expressions as the oracle evaluates them, row by row: for tests in which expressions are not in question."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa

from headgate.expressions.sql.types import ARROW
from headgate.plan.expressions import AggregateCall, Column, Expr, Value
from headgate.testing.oracle.values import value_of


def evaluate(exprs: Sequence[Expr], values: Mapping[Column | AggregateCall, pa.Array], size: int) -> list[pa.Array]:
    """Expressions as the oracle has them: here they are not what is in question, and there are many small batches."""
    plain: dict[Expr, list[Value]] = {part: column.to_pylist() for part, column in values.items()}

    def column(expr: Expr) -> list[Value]:
        return [value_of(expr, lambda part: plain[part][row]) for row in range(size)]  # noqa: B023

    return [pa.array(column(expr), ARROW[expr.type]) for expr in exprs]
