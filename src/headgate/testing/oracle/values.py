"""The value of an expression (SPEC.md, 4.1), as plainly as possible.

There are no errors here: an expression without a value is NULL, which is Python's None.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any

from headgate.plan import expressions as e
from headgate.plan.expressions import Expr, Type, Value, wider
from headgate.testing.oracle.casts import cast, fitted

Read = Callable[[e.Column | e.AggregateCall], Value]

_COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def value_of(expr: Expr, read: Read) -> Value:
    """`read` gives the value of a column and, where there are any, of an aggregate."""
    match expr:
        case e.Column() | e.AggregateCall():
            return read(expr)
        case e.Literal():
            return expr.value
        case e.Arithmetic():
            return _calculated(expr.operator, [value_of(operand, read) for operand in expr.operands], expr.result)
        case e.Cast():
            return cast(value_of(expr.operand, read), expr.result)
        case e.Case():
            met = (value for condition, value in expr.branches if value_of(condition, read) is True)
            return widened(value_of(next(met, expr.otherwise), read), expr.result)
        case e.Call():
            return _called(expr, [value_of(argument, read) for argument in expr.arguments])
        case _:
            return _truth(expr, read)


# Conditions, of three truth values -----------------------------------------------------------------------------------


def _truth(expr: Expr, read: Read) -> bool | None:
    match expr:
        case e.Compare():
            left, right = value_of(expr.left, read), value_of(expr.right, read)
            return _compared(expr.operator, left, right, wider(expr.left.type, expr.right.type))
        case e.In():
            value = value_of(expr.operand, read)
            return _or(_compared("=", value, x.value, wider(expr.operand.type, x.type)) for x in expr.items)
        case e.And():
            return _and(value_of(operand, read) for operand in expr.operands)
        case e.Or():
            return _or(value_of(operand, read) for operand in expr.operands)
        case e.Not():
            negated = value_of(expr.operand, read)
            return None if negated is None else not negated
        case e.IsNull():
            return value_of(expr.operand, read) is None
        case e.Like():
            text = value_of(expr.operand, read)
            return None if text is None else _pattern(expr.pattern).fullmatch(str(text)) is not None
    raise TypeError(f"no expression: {expr!r}")


def _and(values: Iterable[Value]) -> bool | None:
    found = set(values)
    return False if False in found else None if None in found else True


def _or(values: Iterable[Value]) -> bool | None:
    found = set(values)
    return True if True in found else None if None in found else False


# Operators -----------------------------------------------------------------------------------------------------------


def widened(value: Value, type_: Type | None) -> Value:
    """A value as one of a type that is at least as wide: a whole number may become a FLOAT or DOUBLE."""
    if isinstance(value, int) and type_ in (Type.FLOAT, Type.DOUBLE):
        return fitted(value, type_)
    return value


def _compared(comparison: str, left: Value, right: Value, type_: Type | None) -> bool | None:
    """Compares both as the wider of their types."""
    if left is None or right is None:
        return None
    return _COMPARISONS[comparison](widened(left, type_), widened(right, type_))


def _calculated(sign: str, operands: list[Any], result: Type) -> Value:
    """Exact on whole numbers, otherwise on DOUBLEs."""
    if None in operands:
        return None
    numbers = operands if result == Type.BIGINT else [float(x) for x in operands]
    if len(numbers) == 1:
        return fitted(-numbers[0], result)
    x, y = numbers
    if sign in "/%" and y == 0:
        return None
    match sign:
        case "+":
            return fitted(x + y, result)
        case "-":
            return fitted(x - y, result)
        case "*":
            return fitted(x * y, result)
        case "/":
            return fitted(x / y, result)
        case _ if result == Type.BIGINT:
            return fitted(abs(x) % abs(y) * (-1 if x < 0 else 1), result)
        case _:
            return math.fmod(x, y)


@lru_cache(maxsize=1000)
def _pattern(pattern: str) -> re.Pattern[str]:
    def piece(found: re.Match[str]) -> str:
        wild = {"%": ".*", "_": "."}
        return wild.get(found[0]) or re.escape(found[0][-1])

    return re.compile(re.sub(r"\\.|.", piece, pattern, flags=re.DOTALL), re.DOTALL)


# Functions -----------------------------------------------------------------------------------------------------------

_LOWER = {capital: capital + 32 for capital in range(ord("A"), ord("Z") + 1)}
_UPPER = {small: capital for capital, small in _LOWER.items()}


def _called(call: e.Call, arguments: list[Any]) -> Value:
    known = [widened(x, call.result) for x in arguments if x is not None]
    match call.function:
        case "COALESCE":
            return next(iter(known), None)
        case "GREATEST":
            return max(known, default=None)  # type: ignore[type-var]
        case "LEAST":
            return min(known, default=None)  # type: ignore[type-var]
        case "NULLIF":
            x, y = arguments
            common = wider(call.arguments[0].type, call.arguments[1].type)
            return None if _compared("=", x, y, common) is True else x
    if None in arguments:
        return None
    found = _FUNCTIONS[call.function](*arguments)
    return fitted(found, call.result) if call.result.numeric and found is not None else found


def _substring(text: str, start: int, length: int | None = None) -> str | None:
    if length is None:
        return text[max(start, 1) - 1 :]
    if length < 0:
        return None
    return text[max(start, 1) - 1 : max(start + length - 1, 0)]


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "ABS": abs,
    "CEIL": math.ceil,
    "FLOOR": math.floor,
    "SQRT": lambda x: math.sqrt(x) if x >= 0 else None,
    "CONCAT": lambda *texts: "".join(texts),
    "LENGTH": len,
    "LOWER": lambda text: text.translate(_LOWER),
    "UPPER": lambda text: text.translate(_UPPER),
    "TRIM": lambda text: text.strip(" "),
    "SUBSTRING": _substring,
    "YEAR": lambda moment: moment.year,
    "MONTH": lambda moment: moment.month,
    "DAY": lambda moment: moment.day,
    "HOUR": lambda time: time.hour,
    "MINUTE": lambda time: time.minute,
    "SECOND": lambda time: time.second,
}
