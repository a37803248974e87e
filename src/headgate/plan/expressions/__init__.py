"""Bound expressions: typed, over resolved columns, comparable by value.

A column knows the number of its input in the query, not the input's name in the text, so equal expressions that are
written differently are equal. `plan.normal` brings each into one form (`120 < bp` is `bp > 120`).
"""

from headgate.plan.expressions.conditions import And, Compare, In, IsNull, Like, Not, Or, typed_text
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
    "typed_text",
    "wider",
    "written",
]
