"""The values of SeNDlog: texts, numbers and lists, with one canonical form each.

Equal values have equal bytes, whatever computed them: signatures are made over these bytes. A number without a
fraction is an integer (`1.0` is `1`), a list is a tuple, and there are no booleans: functions answer 1 or 0.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any

from headgate.errors import HeadgateError

Value = str | int | float | tuple[Any, ...]
Row = tuple[Value, ...]

MAX_BITS = 4096
MAX_TEXT = 1_000_000
MAX_DEPTH = 32
_EXACT = 2**53
_PLAIN = re.compile(r"[a-z][A-Za-z0-9_]*(?:-[a-z][A-Za-z0-9_]*)*")


class ValueFault(HeadgateError):
    """A value that SeNDlog does not have, or one beyond its limits."""


def canonical(value: object, depth: int = 0) -> Value:
    """The one form of a value; a ValueFault for what is not one."""
    if isinstance(value, bool) or depth > MAX_DEPTH:
        raise ValueFault("a value is a text, a number or a list of values, at most 32 deep")
    if isinstance(value, str):
        if len(value) > MAX_TEXT or any("\ud800" <= c <= "\udfff" for c in value):
            raise ValueFault(f"a text has at most {MAX_TEXT:,} characters, all of them whole")
        return value
    if isinstance(value, int):
        if value.bit_length() > MAX_BITS:
            raise ValueFault(f"an integer has at most {MAX_BITS:,} bits")
        return value
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValueFault("a number is finite")
        return int(value) if value.is_integer() and abs(value) <= _EXACT else value
    if isinstance(value, list | tuple):
        return tuple([canonical(item, depth + 1) for item in value])
    raise ValueFault("a value is a text, a number or a list of values, at most 32 deep")


def encoded(value: object) -> bytes:
    """The canonical bytes of a canonical value, or of a list of them; a ValueFault for what has none."""
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()
    except (ValueError, RecursionError):
        raise ValueFault("this value cannot be written") from None


def decoded(data: bytes) -> Any:
    """What `encoded` wrote; a ValueFault for anything else that somebody may have sent."""
    try:
        return json.loads(data.decode(), parse_float=_finite, parse_constant=_finite)
    except (ValueError, RecursionError):
        raise ValueFault("these bytes are no message") from None


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError("a number is finite")
    return number


def shown(value: Value) -> str:
    """A value as a program writes it."""
    match value:
        case str():
            return value if _PLAIN.fullmatch(value) else '"' + value.replace('"', '""') + '"'
        case tuple():
            return "[" + ", ".join(map(shown, value)) + "]"
        case _:
            return str(value)


def shown_fact(name: str, row: Row) -> str:
    return f"{name}({', '.join(map(shown, row))})"
