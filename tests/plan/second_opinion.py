"""A second opinion on conditions and windows: SPEC 4.1 and 4.2 word by word, as far as plans of one stream need it."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np

from headgate.plan import expressions as e
from headgate.plan.expressions import Type

ROWS = [
    {"sid": sid, "bp": bp, "pr": pr, "f": f, "d": d, "name": name, "flag": flag}
    for sid, bp, (pr, d), f, (name, flag) in product(
        [None, 0, 1, 2],
        [None, -1, 1, 2, 3, 16777217],
        [(None, None), (1 << 53, float(1 << 53)), ((1 << 53) + 1, 1.5), (-3, -3.0)],
        [None, np.float32(2.5), np.float32(1 << 24), np.float32((1 << 24) + 2)],
        [(None, None), ("a", True), ("b", False), ("c", True)],
    )
]


def met(condition: e.Expr, row: dict[str, Any]) -> bool:
    return evaluated(condition, row) is True


def evaluated(expr: e.Expr, row: dict[str, Any]) -> Any:
    """An expression's value by SPEC 4.1, as far as the queries here need it."""
    match expr:
        case e.Column(name=name):
            return row[name]
        case e.Literal(value):
            return value
        case e.Compare(operator, left, right):
            return compared(operator, left, right, row)
        case e.In(operand, items):
            return either([compared("=", operand, item, row) for item in items])
        case e.Or(operands):
            return either([evaluated(operand, row) for operand in operands])
        case e.And(operands):
            return inverted(either([inverted(evaluated(operand, row)) for operand in operands]))
        case e.Not(operand):
            return inverted(evaluated(operand, row))
        case e.IsNull(operand):
            return evaluated(operand, row) is None
    raise NotImplementedError(expr)


def inverted(value: bool | None) -> bool | None:
    return None if value is None else not value


def either(values: list[bool | None]) -> bool | None:
    return True if True in values else None if None in values else False


def compared(operator: str, left: e.Expr, right: e.Expr, row: dict[str, Any]) -> bool | None:
    a, b = evaluated(left, row), evaluated(right, row)
    if a is None or b is None:
        return None
    wider = e.wider(left.type, right.type)
    if wider in (Type.FLOAT, Type.DOUBLE):
        make = np.float32 if wider == Type.FLOAT else np.float64
        a, b = make(a), make(b)
    results = {"<": a < b, "<=": a <= b, ">": a > b, ">=": a >= b, "=": a == b, "<>": a != b}
    return bool(results[operator])
