"""Decide whether one condition follows from another (`bp > 120` follows from `bp > 130`). This allows more sharing than
paper 002, which compares sets of conditions.

INVARIANT: `implies` may miss an implication, but every one that it claims holds for every tuple, NULLs included.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from headgate.plan.expressions import INTEGERS, And, Compare, Expr, In, IsNull, Like, Literal, Not, Or, Type


@lru_cache(maxsize=1 << 16)
def implies(a: Expr, b: Expr) -> bool:
    """Whether b is true wherever a is true."""
    if a == b:
        return True
    if isinstance(a, Or):
        return all(implies(x, b) for x in a.operands)
    if isinstance(b, And):
        return all(implies(a, x) for x in b.operands)
    if isinstance(b, Or):
        return any(implies(a, x) for x in b.operands)
    if isinstance(a, And):
        return any(implies(x, b) for x in a.operands)
    if isinstance(b, Not) and isinstance(b.operand, IsNull):
        return _never_null(a, b.operand.operand)
    return _values_fit(a, b)


def _never_null(a: Expr, operand: Expr) -> bool:
    """A comparison is true only for operands that are not NULL."""
    return isinstance(a, Compare | In | Like) and operand in a.parts


def _values_fit(a: Expr, b: Expr) -> bool:
    """Both conditions are on one expression: every value that a allows must be one that b allows."""
    if isinstance(a, In) and isinstance(b, In | Compare):
        return a.operand == b.parts[0] and all(item.value is None or _allows(b, item) for item in a.items)
    match a, b:
        case Compare(before, left, Literal() as bound), Compare(after, right, Literal() as limit) if left == right:
            exact = orderly(left.type, bound) and orderly(left.type, limit)
            return exact and _range_fits(before, bound, after, limit)
    return False


def _allows(b: Expr, item: Literal) -> bool:
    if isinstance(b, In):
        return item in b.items
    if not isinstance(b, Compare) or not isinstance(b.right, Literal):
        return False
    exact = orderly(b.left.type, item) and orderly(b.left.type, b.right)
    return exact and _holds(item, b.operator, b.right)


def _range_fits(a: str, x: Literal, b: str, y: Literal) -> bool:
    """Whether v `a` x implies v `b` y, for every v."""
    if a == "<>":
        return b == "<>" and x == y
    if b == "<>":
        return _holds(y, {"<": ">=", "<=": ">", ">": "<=", ">=": "<"}[a], x)
    if a[0] != b[0]:
        return False
    strict = a == b or b.endswith("=")  # x itself is allowed only where b allows its own bound
    return _holds(x, f"{b[0]}=" if strict else b[0], y)


def _holds(x: Literal, operator: str, y: Literal) -> bool:
    """Compare two known, orderly values."""
    left, right = x.value, y.value
    match operator:
        case "<":
            return left < right  # type: ignore[operator]
        case "<=":
            return left <= right  # type: ignore[operator]
        case ">":
            return left > right  # type: ignore[operator]
        case ">=":
            return left >= right  # type: ignore[operator]
        case "<>":
            return left != right
        case _:
            return left == right


def orderly(operand: Type, literal: Literal) -> bool:
    """Whether values of this type are compared with the literal without rounding. The orderly bounds of one expression
    have a total order."""
    match literal.value:
        case bool() | None:
            return False
        case int(value):
            digits = 24 if operand == Type.FLOAT and literal.type == Type.INT else 53
            return operand in INTEGERS or (operand.numeric and abs(value) <= 1 << digits)
        case float(value):
            return operand.numeric and (operand not in INTEGERS or abs(value) < 1 << 53)
        case _:
            return operand == literal.type


def all_imply(conditions: Iterable[Expr], wanted: Iterable[Expr]) -> bool:
    """Whether all of the wanted conditions follow from the given ones."""
    given = tuple(conditions)
    return all(any(implies(a, b) for a in given) for b in wanted)


def minimal(conditions: frozenset[Expr]) -> frozenset[Expr]:
    """Drop conditions that follow from others; of two that imply each other one stays, always the same."""
    ordered = sorted(conditions, key=str)
    kept: list[Expr] = []
    for number, condition in enumerate(ordered):
        others = kept + ordered[number + 1 :]
        if not any(implies(other, condition) for other in others):
            kept.append(condition)
    return frozenset(kept)
