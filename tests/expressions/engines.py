"""The engines as functions from expressions and columns to columns, and values as tests compare them."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from headgate.cql.queries import parse_query
from headgate.expressions import duck
from headgate.expressions.sql import arrow_type, duckdb_sql, spark_sql, spark_type
from headgate.plan.expressions import AggregateCall, Column, Expr, Type, Value
from headgate.plan.queries import Stream, bind_query
from headgate.testing.oracle import value_of

Row = Mapping[Column, Value]

COLUMNS = tuple(
    Column(0, name + more, type_)
    for name, type_ in zip("bilfdstyx", (t for t in Type if t != Type.NULL), strict=True)
    for more in ("", "2")
)
STREAM = Stream("V", tuple((column.name, column.type) for column in COLUMNS))


def bound(text: str) -> Expr:
    """An expression over COLUMNS."""
    ((_, expr),) = bind_query(parse_query(f"SELECT {text} AS result FROM V"), lambda _: STREAM).blocks[0].items
    return expr


def on_duckdb(exprs: Sequence[Expr], rows: Sequence[Row]) -> list[list[Value]]:
    return [array.to_pylist() for array in duck.asked(exprs, given(rows), len(rows))]


def given(rows: Sequence[Row]) -> Mapping[Column | AggregateCall, pa.Array]:
    return {column: pa.array([row[column] for row in rows], arrow_type(column.type)) for column in rows[0]}


def on_spark(spark: SparkSession, exprs: Sequence[Expr], rows: Sequence[Row]) -> list[list[Value]]:
    """All in one select, so that many take little longer than one."""
    frame = _frame(spark, rows).repartition(1).sortWithinPartitions("row")
    found = frame.selectExpr(*(f"{spark_sql(expr, _name)} AS r{number}" for number, expr in enumerate(exprs)))
    for field, expr in zip(found.schema, exprs, strict=True):
        assert field.dataType.simpleString() == spark_type(expr.type).lower(), str(expr)
    return [[_with_zone(value) for value in column.to_pylist()] for column in found.toArrow().columns]


def kept_on_duckdb(condition: Expr, rows: Sequence[Row]) -> list[int]:
    """The numbers of the rows that meet a condition."""
    with duck.kernel_connection() as connection:
        connection.register("given", _table(rows))
        found = connection.sql(f'SELECT "row" FROM given WHERE {duckdb_sql(condition, _name)} ORDER BY "row"')
        return [number for (number,) in found.fetchall()]


def kept_on_spark(spark: SparkSession, condition: Expr, rows: Sequence[Row]) -> list[int]:
    found = _frame(spark, rows).repartition(1).where(spark_sql(condition, _name)).select("row")
    return sorted(found.toArrow().column("row").to_pylist())


def by_the_oracle(exprs: Sequence[Expr], rows: Sequence[Row]) -> list[list[Value]]:
    return [[value_of(expr, row.__getitem__) for row in rows] for expr in exprs]  # type: ignore[arg-type]


def differences(
    exprs: Sequence[Expr], rows: Sequence[Row], found: Sequence[Sequence[Value]], expected: Sequence[Sequence[Value]]
) -> list[str]:
    """Values are equal if they are of the same type and the same; -0.0 is 0.0. Nothing is equal up to rounding."""
    return [
        f"{expr}: {ours!r}, not {theirs!r}, with { {column.name: row[column] for column in expr.columns} }"
        for expr, left, right in zip(exprs, found, expected, strict=True)
        for row, ours, theirs in zip(rows, left, right, strict=True)
        if type(ours) is not type(theirs) or ours != theirs
    ]


@contextmanager
def settings(spark: SparkSession, changed: Mapping[str, str]) -> Iterator[None]:
    before: dict[str, Any] = {key: spark.conf.get(key, None) for key in changed}
    for key, value in changed.items():
        spark.conf.set(key, value)
    try:
        yield
    finally:
        for key, value in before.items():
            spark.conf.unset(key) if value is None else spark.conf.set(key, value)


def _name(part: Column | AggregateCall) -> str:
    assert isinstance(part, Column)
    return f"c_{part.name}"


def _table(rows: Sequence[Row]) -> pa.Table:
    """As engines take it: times in UTC, without a zone."""
    columns = {
        _name(column): pa.array(
            [_plain(row[column]) for row in rows],
            pa.timestamp("us") if column.type == Type.TIMESTAMP else arrow_type(column.type),
        )
        for column in rows[0]
    }
    return pa.table({"row": pa.array(range(len(rows)), pa.int64())} | columns)


def _frame(spark: SparkSession, rows: Sequence[Row]) -> DataFrame:
    schema = ", ".join(f"{_name(column)} {spark_type(column.type)}" for column in rows[0])
    return spark.createDataFrame(_table(rows), f"row BIGINT, {schema}")


def _plain(value: Value) -> Value:
    return value.replace(tzinfo=None) if isinstance(value, dt.datetime) else value


def _with_zone(value: Value) -> Value:
    return value.replace(tzinfo=dt.UTC) if isinstance(value, dt.datetime) else value


def chunks(exprs: Sequence[Expr], size: int) -> Iterable[Sequence[Expr]]:
    return (exprs[start : start + size] for start in range(0, len(exprs), size))
