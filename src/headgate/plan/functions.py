"""The closed list of functions and aggregates, with the types of their arguments and results. No other function
exists."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from headgate.plan.expressions import INTEGERS, AggregateCall, Type, wider

Typing = Callable[[Sequence[Type]], Type | None]


@dataclass(frozen=True)
class Function:
    """A function's signature.

    least, most: how many arguments it takes; `most` is None for any number
    yields: the type of the result for these types of arguments, None if they do not fit
    wants: the arguments in words, for errors
    """

    least: int
    most: int | None
    yields: Typing
    wants: str


def _all(kind: Callable[[Type], bool], result: Type) -> Typing:
    """Accept arguments that are all of one kind."""
    return lambda types: result if all(kind(t) or t == Type.NULL for t in types) else None


def _common(types: Sequence[Type]) -> Type | None:
    found: Type | None = types[0]
    for type_ in types[1:]:
        found = wider(found, type_) if found else None
    return found


def _numeric(type_: Type) -> bool:
    return type_.numeric


def _text(type_: Type) -> bool:
    return type_ == Type.STRING


def _time(type_: Type) -> bool:
    return type_ == Type.TIMESTAMP


def _day(type_: Type) -> bool:
    return type_ in (Type.TIMESTAMP, Type.DATE)


def _substring(types: Sequence[Type]) -> Type | None:
    fits = types[0] in (Type.STRING, Type.NULL) and all(t in INTEGERS or t == Type.NULL for t in types[1:])
    return Type.STRING if fits else None


def _number(types: Sequence[Type]) -> Type | None:
    """Whole numbers become BIGINT, which has room for the result; other numbers become DOUBLE."""
    return Type.BIGINT if types[0] in INTEGERS else _all(_numeric, Type.DOUBLE)(types)


FUNCTIONS: dict[str, Function] = {
    "ABS": Function(1, 1, _number, "a number"),
    "CEIL": Function(1, 1, _all(_numeric, Type.BIGINT), "a number"),
    "FLOOR": Function(1, 1, _all(_numeric, Type.BIGINT), "a number"),
    "SQRT": Function(1, 1, _all(_numeric, Type.DOUBLE), "a number"),
    "COALESCE": Function(1, None, _common, "values of one type"),
    "GREATEST": Function(2, None, _common, "two or more values of one type"),
    "LEAST": Function(2, None, _common, "two or more values of one type"),
    "NULLIF": Function(2, 2, lambda types: types[0] if _common(types) else None, "two values of one type"),
    "CONCAT": Function(1, None, _all(_text, Type.STRING), "strings"),
    "LENGTH": Function(1, 1, _all(_text, Type.INT), "a string"),
    "LOWER": Function(1, 1, _all(_text, Type.STRING), "a string"),
    "SUBSTRING": Function(2, 3, _substring, "a string, a start and possibly a length"),
    "TRIM": Function(1, 1, _all(_text, Type.STRING), "a string"),
    "UPPER": Function(1, 1, _all(_text, Type.STRING), "a string"),
    "YEAR": Function(1, 1, _all(_day, Type.INT), "a timestamp or date"),
    "MONTH": Function(1, 1, _all(_day, Type.INT), "a timestamp or date"),
    "DAY": Function(1, 1, _all(_day, Type.INT), "a timestamp or date"),
    "HOUR": Function(1, 1, _all(_time, Type.INT), "a timestamp"),
    "MINUTE": Function(1, 1, _all(_time, Type.INT), "a timestamp"),
    "SECOND": Function(1, 1, _all(_time, Type.INT), "a timestamp"),
}

AGGREGATES: dict[str, Function] = {
    "COUNT": Function(1, 1, lambda _: Type.BIGINT, "a value"),
    "SUM": Function(1, 1, _number, "a number"),
    "AVG": Function(1, 1, _all(_numeric, Type.DOUBLE), "a number"),
    "STDDEV": Function(1, 1, _all(_numeric, Type.DOUBLE), "a number"),
    "MIN": Function(1, 1, lambda types: types[0], "a value"),
    "MAX": Function(1, 1, lambda types: types[0], "a value"),
}


def accumulators(call: AggregateCall) -> tuple[AggregateCall, ...]:
    """The accumulators of an aggregate: an average needs a sum and a count, a standard deviation also the sum of
    squares."""
    if call.distinct or call.function not in ("AVG", "STDDEV"):
        return (call,)
    count = AggregateCall("COUNT", call.argument, False, Type.BIGINT)
    total = AggregateCall("SUM", call.argument, False, Type.DOUBLE)
    if call.argument is not None and call.argument.type in INTEGERS:
        total = AggregateCall("SUM", call.argument, False, Type.BIGINT)
    squares = AggregateCall("SQUARES", call.argument, False, Type.DOUBLE)
    return (count, total) if call.function == "AVG" else (count, total, squares)
