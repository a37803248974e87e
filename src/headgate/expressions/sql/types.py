"""The name of each type in each engine.

Timestamps have no time zone inside the engines: they are in UTC as they stand, so that no session's time zone can
change them. NULL, which has no type of its own in any engine, is read as BOOLEAN.
"""

from __future__ import annotations

import pyarrow as pa

from headgate.plan.expressions import Type

SPARK = {type_: str(type_) for type_ in Type} | {Type.TIMESTAMP: "TIMESTAMP_NTZ", Type.NULL: "BOOLEAN"}
DUCKDB = {type_: str(type_) for type_ in Type} | {
    Type.STRING: "VARCHAR",
    Type.INT: "INTEGER",
    Type.BINARY: "BLOB",
    Type.NULL: "BOOLEAN",
}
ARROW = {
    Type.BOOLEAN: pa.bool_(),
    Type.INT: pa.int32(),
    Type.BIGINT: pa.int64(),
    Type.FLOAT: pa.float32(),
    Type.DOUBLE: pa.float64(),
    Type.STRING: pa.string(),
    Type.TIMESTAMP: pa.timestamp("us", "UTC"),
    Type.DATE: pa.date32(),
    Type.BINARY: pa.binary(),
    Type.NULL: pa.bool_(),
}


def spark_type(type_: Type) -> str:
    return SPARK[type_]


def duckdb_type(type_: Type) -> str:
    return DUCKDB[type_]


def arrow_type(type_: Type) -> pa.DataType:
    """Timestamps outside the engines have the zone UTC."""
    return ARROW[type_]
