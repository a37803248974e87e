"""Evaluate expressions with DuckDB inside this process: it computes over columns in memory and can reach nothing
else."""

from __future__ import annotations

import atexit
import os
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import duckdb
import pyarrow as pa

from headgate.expressions.direct import answered
from headgate.expressions.limits import CANNOT
from headgate.expressions.sql import arrow_type, duckdb_sql
from headgate.model.budget import LimitExceeded
from headgate.plan.expressions import AggregateCall, Column, Expr, Type

_NAIVE = pa.timestamp("us")
_IDLE: dict[int, deque[duckdb.DuckDBPyConnection]] = {}
"""Idle connections, by process."""


def kernel_connection() -> duckdb.DuckDBPyConnection:
    """A connection in memory with one thread and no access to files, network, extensions or Python variables; its
    settings are locked."""
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
    """The value of each expression in each of `size` rows. Arrow computes the simple ones; DuckDB computes all others
    in one query."""
    found = [answered(expr, values, size) for expr in exprs]
    hard = [expr for expr, answer in zip(exprs, found, strict=True) if answer is None]
    answers = iter(asked(hard, values, size) if hard else ())
    return [answer if answer is not None else next(answers) for answer in found]


def asked(exprs: Sequence[Expr], values: Mapping[Column | AggregateCall, pa.Array], size: int) -> list[pa.Array]:
    """Evaluate expressions with DuckDB, which receives only the columns that they read."""
    read = {part for expr in exprs for part in expr.walk() if isinstance(part, Column | AggregateCall)}
    values = {part: x for part, x in values.items() if part in read}
    names = {part: f"c{number}" for number, part in enumerate(values)}
    given = pa.table({"nothing": pa.nulls(size)} | {names[part]: _without_zone(x) for part, x in values.items()})
    results = ", ".join(f"{duckdb_sql(expr, names.__getitem__)} AS r{number}" for number, expr in enumerate(exprs))
    found = kernel_answer(f"SELECT {results} FROM given", given)  # noqa: S608
    return [
        column.combine_chunks().cast(arrow_type(expr.type)) for column, expr in zip(found.columns, exprs, strict=True)
    ]


def kernel_answer(sql: str, given: pa.Table) -> pa.Table:
    """Run a statement that Headgate wrote over the table `given`."""
    with _connection() as connection:
        connection.register("given", given)
        try:
            return connection.sql(sql).to_arrow_table()
        except duckdb.OutOfMemoryException:
            raise LimitExceeded(CANNOT) from None
        finally:
            connection.unregister("given")


@contextmanager
def _connection() -> Iterator[duckdb.DuckDBPyConnection]:
    """A connection that no other thread uses. Connections belong to the process and not to a thread: when a process
    forks, the objects of its other threads are destroyed in the child, and that would end it."""
    idle = _IDLE.setdefault(os.getpid(), deque())
    try:
        connection = idle.pop()
    except IndexError:
        connection = kernel_connection()
    try:
        yield connection
    finally:
        idle.append(connection)


@atexit.register
def _close_all() -> None:
    """Close this process's connections while the interpreter is still complete."""
    for connection in _IDLE.pop(os.getpid(), ()):
        connection.close()


def _without_zone(array: pa.Array) -> pa.Array:
    return array.cast(_NAIVE) if array.type == arrow_type(Type.TIMESTAMP) else array
