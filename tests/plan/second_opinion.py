"""A second opinion on conditions and windows: SPEC 4.1 and 4.2 word by word, as far as plans of one stream need it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np

from headgate.plan import expressions as e
from headgate.plan import nodes as n
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


TUPLES = [(1, 0), (2, 1), (2, 0), (4, 0), (5, 2), (5, 1), (5, 0), (9, 0), (10, 1), (15, 1), (16, 0)]
"""Times and values of `sid`, in their order; `bp` is half of `sid`."""


def instants(window: n.Window) -> Iterator[tuple[int, int]]:
    """Time, and the number of tuples that have come, at each instant of a window."""
    if window.slide:
        return ((t, arrived(t)) for t in range(0, 30, window.slide))
    return ((t, number) for number, (t, _) in enumerate(TUPLES, 1))


def arrived(time: int) -> int:
    return sum(t <= time for t, _ in TUPLES)


def content(window: n.Window, time: int, number: int) -> set[int]:
    """The positions that a window holds, by SPEC 4.2."""
    came = range(number)
    match window.kind:
        case "ROWS":
            return set(came[-window.rows :])
        case "PARTITIONED":
            groups = {sid: [i for i in came if TUPLES[i][1] == sid] for _, sid in TUPLES}
            return {i for group in groups.values() for i in group[-window.rows :]}
        case "RANGE" if window.slide:
            return {i for i in came if time - window.range < TUPLES[i][0] <= time}
        case "RANGE":
            return {i for i in came if TUPLES[i][0] >= time - window.range}
        case "NOW":
            return {i for i in came if TUPLES[i][0] == time}
        case _:
            return set(came)


def check_window(window: n.Window, base: n.Window) -> None:
    for time, number in instants(window):
        assert not base.slide or (time, number) in set(instants(base))
        assert content(window, time, number) <= content(base, time, number)
