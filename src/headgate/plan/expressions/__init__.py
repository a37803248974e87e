"""Expressions, as meant: typed, bound to columns, comparable by value.

Columns know which input of the query they belong to, not what the query calls it, so differently written but equal
expressions are equal. `plan.normal` brings each into one form (`120 < bp` is `bp > 120`).
"""

from headgate.plan.expressions.conditions import And, Compare, In, IsNull, Like, Not, Or
from headgate.plan.expressions.operations import AggregateCall, Arithmetic, Call, Case, Cast
from headgate.plan.expressions.tree import Column, Expr, Literal, written
from headgate.plan.expressions.types import INTEGERS, Type, Value, castable, wider

__all__ = [
    "INTEGERS",
    "AggregateCall",
    "And",
    "Arithmetic",
    "Call",
    "Case",
    "Cast",
    "Column",
    "Compare",
    "Expr",
    "In",
    "IsNull",
    "Like",
    "Literal",
    "Not",
    "Or",
    "Type",
    "Value",
    "castable",
    "wider",
    "written",
]
