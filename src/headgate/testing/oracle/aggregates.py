"""The value of an aggregate over the rows of a group (SPEC.md, 4.1), calculated exactly and rounded once."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from fractions import Fraction
from typing import Any

from headgate.plan.expressions import INTEGERS, AggregateCall, Value
from headgate.testing.oracle.casts import fitted


def aggregate(call: AggregateCall, values: Iterable[Value]) -> Value:
    """`values` are those of the argument, one for each row; for COUNT(*), anything."""
    given = list(values)
    if call.argument is None:
        return len(given)
    known: list[Any] = [value for value in given if value is not None]
    if call.distinct:
        known = list(dict.fromkeys(known))
    if call.function == "COUNT":
        return len(known)
    if len(known) < (2 if call.function == "STDDEV" else 1):
        return None
    match call.function:
        case "MIN":
            return min(known)  # type: ignore[no-any-return]
        case "MAX":
            return max(known)  # type: ignore[no-any-return]
        case "SUM" if call.result in INTEGERS:
            return fitted(sum(known), call.result)
    try:
        return _DOUBLES[call.function](known)
    except OverflowError:
        return None


_DOUBLES = {
    "SUM": lambda numbers: float(sum(map(Fraction, numbers))),
    "AVG": lambda numbers: float(statistics.mean(numbers)),
    "STDDEV": lambda numbers: float(statistics.stdev(numbers)),
}
