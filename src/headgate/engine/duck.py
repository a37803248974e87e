"""DuckDB inside a process of ours: it computes expressions over columns in memory, and can reach nothing else."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence

import duckdb
import pyarrow as pa

from headgate.engine.direct import answered
from headgate.engine.kernels.limits import CANNOT, TooMuch
from headgate.engine.sql import arrow_type, duckdb_sql
from headgate.plan.expressions import AggregateCall, Column, Expr, Type

_NAIVE = pa.timestamp("us")
_LOCAL = threading.local()


def kernel_connection() -> duckdb.DuckDBPyConnection:
    """In memory, one thread, no files, no network, no extensions, no variables of Python's; settings cannot change."""
    return duckdb.connect(
        ":memory:",
        config={
            "threads": 1,
            "enable_external_access": False,
            "autoinstall_known_extensions": False,
            "autoload_known_extensions": False,
            "allow_community_extensions": False,
            "python_enable_replacements": False,
            "temp_directory": "",
            "ieee_floating_point_ops": True,
            "lock_configuration": True,
        },
    )


def evaluate(exprs: Sequence[Expr], values: Mapping[Column | AggregateCall, pa.Array], size: int) -> list[pa.Array]:
    """What each expression is in each of so many rows; those that need it are asked of DuckDB, all at once."""
    found = [answered(expr, values, size) for expr in exprs]
    hard = [expr for expr, answer in zip(exprs, found, strict=True) if answer is None]
    answers = iter(asked(hard, values, size) if hard else ())
    return [answer if answer is not None else next(answers) for answer in found]


def asked(exprs: Sequence[Expr], values: Mapping[Column | AggregateCall, pa.Array], size: int) -> list[pa.Array]:
    """Each thread has its own connection. Only columns that are read are given."""
    read = {part for expr in exprs for part in expr.walk() if isinstance(part, Column | AggregateCall)}
    values = {part: x for part, x in values.items() if part in read}
    names = {part: f"c{number}" for number, part in enumerate(values)}
    given = pa.table({"nothing": pa.nulls(size)} | {names[part]: _without_zone(x) for part, x in values.items()})
    results = ", ".join(f"{duckdb_sql(expr, names.__getitem__)} AS r{number}" for number, expr in enumerate(exprs))
    connection = _connection()
    connection.register("given", given)
    try:
        found = connection.sql(f"SELECT {results} FROM given").to_arrow_table()  # noqa: S608
    except duckdb.OutOfMemoryException:
        raise TooMuch(CANNOT) from None
    finally:
        connection.unregister("given")
    return [
        column.combine_chunks().cast(arrow_type(expr.type)) for column, expr in zip(found.columns, exprs, strict=True)
    ]


def _connection() -> duckdb.DuckDBPyConnection:
    if not hasattr(_LOCAL, "connection"):
        _LOCAL.connection = kernel_connection()
    found: duckdb.DuckDBPyConnection = _LOCAL.connection
    return found


def _without_zone(array: pa.Array) -> pa.Array:
    return array.cast(_NAIVE) if array.type == arrow_type(Type.TIMESTAMP) else array
