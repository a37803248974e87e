"""The types of values, their common types, and the casts between them."""

from __future__ import annotations

import datetime as dt
from enum import StrEnum


class Type(StrEnum):
    BOOLEAN = "BOOLEAN"
    INT = "INT"
    BIGINT = "BIGINT"
    FLOAT = "FLOAT"
    DOUBLE = "DOUBLE"
    STRING = "STRING"
    TIMESTAMP = "TIMESTAMP"
    DATE = "DATE"
    BINARY = "BINARY"
    NULL = "NULL"  # the type of the literal NULL: it fits everywhere

    @property
    def numeric(self) -> bool:
        return self in _WIDTH


_WIDTH = {Type.INT: 0, Type.BIGINT: 1, Type.FLOAT: 2, Type.DOUBLE: 3}
INTEGERS = frozenset({Type.INT, Type.BIGINT})

# Timestamps are in UTC. Numbers are finite: NaN, and numbers that are too large, are NULL.
Value = bool | int | float | str | bytes | dt.date | dt.datetime | None


def wider(a: Type, b: Type) -> Type | None:
    """The type to which both convert implicitly; None if there is none."""
    if a == b or b == Type.NULL:
        return a
    if a == Type.NULL:
        return b
    if a.numeric and b.numeric:
        both = {a, b}
        if Type.FLOAT in both and not both <= {Type.FLOAT, Type.INT}:
            return Type.DOUBLE
        return max(a, b, key=_WIDTH.__getitem__)
    return None


def castable(a: Type, b: Type) -> bool:
    """Whether a value of the first type can be cast to the second; the result may still be NULL. Engines disagree about
    which text some bytes are, so BINARY is cast to and from nothing."""
    if Type.BINARY in (a, b):
        return a in (b, Type.NULL)
    if b == Type.STRING:
        return a not in (Type.FLOAT, Type.DOUBLE)  # every engine writes them differently
    if a == b or a in (Type.NULL, Type.STRING):
        return True
    moments = {Type.TIMESTAMP, Type.DATE}
    return {a, b} == moments or ({a, b} & moments == set())
