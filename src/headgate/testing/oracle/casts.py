"""Which values fit which type, and casts from one type to another (SPEC.md, 4.1). A value that does not fit is NULL."""

from __future__ import annotations

import datetime as dt
import math
import re
import struct

import numpy as np

from headgate.plan.expressions import Type, Value

_BITS = {Type.INT: 31, Type.BIGINT: 63}
_TRUTHS = dict.fromkeys(("true", "t", "yes", "y", "1"), True) | dict.fromkeys(("false", "f", "no", "n", "0"), False)
_WHOLE = re.compile(r"([+-]?)0*([0-9]{1,19})")  # a number with more digits does not fit
_NUMBER = re.compile(r"[+-]?([0-9]+(\.[0-9]+)?|\.[0-9]+)([eE][+-]?[0-9]+)?")
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_TIME = re.compile(
    rf"(?P<day>{_DATE.pattern})[ T](?P<hour>[0-9]{{2}}):(?P<minute>[0-9]{{2}})"
    r"(:(?P<second>[0-9]{2})(\.(?P<fraction>[0-9]{1,6}))?)?"
    r"(Z|(?P<sign>[+-])(?P<hours>[0-9]{2}):(?P<minutes>[0-5][0-9]))?"
)
_FARTHEST = dt.timedelta(hours=18)


def fitted(number: int | float, type_: Type) -> int | float | None:
    """A number as one of this type: rounded to a FLOAT or DOUBLE, truncated to a whole number."""
    if isinstance(number, float) and not math.isfinite(number):
        return None
    if type_ in _BITS:
        whole, limit = int(number), 1 << _BITS[type_]
        return whole if -limit <= whole < limit else None
    return _rounded(number) if type_ == Type.FLOAT else float(number)


def _rounded(number: int | float) -> float | None:
    """The nearest number of 32 bits. A whole number must not be rounded to a DOUBLE first."""
    if isinstance(number, int):
        return float(np.int64(number).astype(np.float32))
    try:
        found: float = struct.unpack("<f", struct.pack("<f", number))[0]
    except OverflowError:
        return None
    return found


def cast(value: Value, type_: Type) -> Value:
    match value:
        case None | bytes():  # which are cast to nothing but BINARY
            return value
        case str():
            return _from_text(value.strip(" "), type_)
        case dt.datetime():
            return _text(value) if type_ == Type.STRING else value.date() if type_ == Type.DATE else value
        case dt.date():
            return _text(value) if type_ == Type.STRING else dt.datetime.combine(value, dt.time(), dt.UTC)
        case _ if type_ == Type.STRING:
            return _text(value)
        case _ if type_ == Type.BOOLEAN:
            return value != 0
        case _:
            return fitted(value, type_)


def _text(value: bool | int | float | dt.date) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case dt.datetime():
            fraction = f".{value.microsecond:06}".rstrip("0").rstrip(".")
            return f"{value.date().isoformat()} {value:%H:%M:%S}{fraction}"
        case dt.date():
            return value.isoformat()
        case _:
            return str(value)


def _from_text(text: str, type_: Type) -> Value:
    match type_:
        case Type.BOOLEAN:
            return _TRUTHS.get(text.lower())
        case Type.DATE:
            return _date(text)
        case Type.TIMESTAMP:
            return _timestamp(text)
        case Type.INT | Type.BIGINT:
            found = _WHOLE.fullmatch(text)
            return fitted(int(found[1] + found[2]), type_) if found else None
        case _:
            return fitted(float(text), type_) if _NUMBER.fullmatch(text) else None


def _date(text: str) -> dt.date | None:
    try:
        return dt.date.fromisoformat(text) if _DATE.fullmatch(text) else None
    except ValueError:
        return None


def _timestamp(text: str) -> dt.datetime | None:
    found = _TIME.fullmatch(text)
    if found is None:
        return None
    offset = dt.timedelta(hours=int(found["hours"] or 0), minutes=int(found["minutes"] or 0))
    if offset > _FARTHEST:
        return None
    try:
        time = dt.time(
            int(found["hour"]),
            int(found["minute"]),
            int(found["second"] or 0),
            int((found["fraction"] or "").ljust(6, "0")),
        )
        written = dt.datetime.combine(dt.date.fromisoformat(found["day"]), time, dt.UTC)
        return written + offset if found["sign"] == "-" else written - offset
    except (ValueError, OverflowError):
        return None
