"""The SQL that is written: short and plain, closed, and no longer than the expression is large."""

from __future__ import annotations

from random import Random

import pytest
from pyspark.sql import SparkSession

from expressions.engines import bound, by_the_oracle, differences, on_duckdb, on_spark
from expressions.values import random_rows
from headgate.errors import TextError
from headgate.expressions.sql import arrow_type, duckdb_sql, duckdb_type, spark_sql, spark_type
from headgate.plan.expressions import AggregateCall, Arithmetic, Call, Column, Compare, Expr, Literal, Type


def name(part: Column | AggregateCall) -> str:
    assert isinstance(part, Column)
    return part.name


def test_aggregates_are_columns_in_the_written_sql() -> None:
    average = AggregateCall("AVG", Column(0, "bp", Type.INT), False, Type.DOUBLE)
    expr = Compare("<", average, Arithmetic("-", (average,), Type.DOUBLE))
    assert duckdb_sql(expr, lambda part: f'"{part}"') == '("AVG(bp)" < (-"AVG(bp)"))'
    assert spark_sql(expr, lambda part: f"`{part}`") == "(`AVG(bp)` < (-`AVG(bp)`))"


PLAIN = {
    "i > 120": ("(i > CAST('120' AS INT))", "(i > CAST('120' AS INTEGER))"),
    "l + l2": ("try_add(l, l2)", "TRY_CAST(CAST(l AS HUGEINT) + CAST(l2 AS HUGEINT) AS BIGINT)"),
    "s = 'it''s'": ("(s IN (CAST(X'69742773' AS STRING)))", "(s IN (decode(unhex('69742773'))))"),
    "s LIKE 'a%'": ("startswith(s, 'a')", "(s LIKE 'a%')"),
    "s LIKE 'a\\%'": ("(s = 'a%')", "(s LIKE 'a^%' ESCAPE '^')"),
    "s LIKE 'a%b%c'": ("(s LIKE 'a%b%c' ESCAPE '^')", "(s LIKE 'a%b%c')"),
    "SUBSTRING(s, 0, 2)": ("substring(s, 1, 1)", "substring(s, 1, 1)"),
    "d / d2": (
        "nanvl(try_divide(d, d2) % CAST('Infinity' AS DOUBLE), CAST(NULL AS DOUBLE))",
        "(CASE WHEN isfinite((d / d2)) THEN (d / d2) END)",
    ),
}


@pytest.mark.parametrize("text", PLAIN)
def test_the_text_is_short_and_plain(text: str) -> None:
    expr = bound(text)
    assert (spark_sql(expr, name), duckdb_sql(expr, name)) == PLAIN[text]


@pytest.mark.parametrize(
    "expr",
    [
        Call("VERSION", (Literal("a", Type.STRING),), Type.STRING),
        Compare("OR", Literal(True, Type.BOOLEAN), Literal(True, Type.BOOLEAN)),
        Arithmetic("//", (Literal(1, Type.INT), Literal(1, Type.INT)), Type.BIGINT),
    ],
    ids=str,
)
def test_expressions_outside_the_language_cannot_be_written(expr: Expr) -> None:
    for write in (spark_sql, duckdb_sql):
        with pytest.raises(TypeError, match="no expression"):
            write(expr, name)


def test_every_type_has_its_name_in_each_engine() -> None:
    names = [(spark_type(type_), duckdb_type(type_), str(arrow_type(type_))) for type_ in Type]
    assert names == [
        ("BOOLEAN", "BOOLEAN", "bool"),
        ("INT", "INTEGER", "int32"),
        ("BIGINT", "BIGINT", "int64"),
        ("FLOAT", "FLOAT", "float"),
        ("DOUBLE", "DOUBLE", "double"),
        ("STRING", "VARCHAR", "string"),
        ("TIMESTAMP_NTZ", "TIMESTAMP", "timestamp[us, tz=UTC]"),
        ("DATE", "DATE", "date32[day]"),
        ("BINARY", "BLOB", "binary"),
        ("BOOLEAN", "BOOLEAN", "bool"),
    ]


# Deep expressions ----------------------------------------------------------------------------------------------------

DEEP = (
    *("({}) + d", "d - ({})", "d * ({})", "d / ({})", "d % ({})", "-({})", "ABS({})", "SQRT({})", "l - ({})"),
    *(
        "({}) % l",
        "COALESCE({}, d, d2)",
        "COALESCE(NULLIF({}, 1), l)",
        "NULLIF(d, {})",
        "GREATEST({}, l)",
        "LEAST({}, f)",
    ),
    *("CASE WHEN ({}) > 1 THEN d WHEN b THEN d2 END", "CASE WHEN b THEN l WHEN b2 THEN ({}) END", "CEIL(({}) + d)"),
    *("LENGTH(SUBSTRING(s, {}))", "LENGTH(SUBSTRING(s, {}, i))", "LENGTH(SUBSTRING(s, i, {}))"),
    *("LENGTH(UPPER(CAST({} AS STRING)))", "CAST(CAST({} AS FLOAT) AS DOUBLE)", "CAST(CAST({} AS STRING) AS BIGINT)"),
    *("CAST(({}) IN (1, 1.5, 3000000000) AS BIGINT)", "CAST(CAST(CAST({} AS STRING) AS BOOLEAN) AS INT)"),
    "CAST(NOT (({}) > 1 AND b OR ({}) < i) AS INT)",
)
DEEP_TEXTS = ("CONCAT({}, s)", "TRIM({})", "LOWER({})", "SUBSTRING({}, 1, 2)", "CAST(CAST({} AS TIMESTAMP) AS STRING)")


def deepest(template: str, innermost: str) -> Expr:
    """As deep as expressions may be."""
    found, text = bound(innermost), innermost
    while True:
        text = template.replace("{}", text)
        try:
            found = bound(text)
        except TextError:
            return found


@pytest.fixture(scope="module")
def deep() -> list[Expr]:
    return [*(deepest(template, "l2") for template in DEEP), *(deepest(template, "s2") for template in DEEP_TEXTS)]


def test_texts_grow_no_faster_than_expressions(deep: list[Expr]) -> None:
    for expr in deep:
        for sql in (spark_sql(expr, name), duckdb_sql(expr, name)):
            assert len(sql) < 400 * sum(1 for _ in expr.walk()), expr


def test_deep_expressions_are_the_same_on_duckdb(deep: list[Expr]) -> None:
    rows = random_rows(Random(3), 20)
    assert differences(deep, rows, on_duckdb(deep, rows), by_the_oracle(deep, rows)) == []


def test_some_deep_expressions_are_the_same_on_spark(spark: SparkSession, deep: list[Expr]) -> None:
    rows, few = random_rows(Random(4), 20), deep[::6]
    assert differences(few, rows, on_spark(spark, few, rows), by_the_oracle(few, rows)) == []


@pytest.mark.long
def test_deep_expressions_are_the_same_on_spark(spark: SparkSession, deep: list[Expr]) -> None:
    rows = random_rows(Random(4), 20)
    assert differences(deep, rows, on_spark(spark, deep, rows), by_the_oracle(deep, rows)) == []


def test_wide_expressions_are_the_same(spark: SparkSession) -> None:
    exprs = [
        bound(f"CONCAT({', '.join(['s'] * 900)})"),
        bound(" AND ".join(f"i <> {number}" for number in range(400))),
        bound(f"d IN ({', '.join(map(str, range(900)))})"),
        bound(f"l IN (0.5, {', '.join(map(str, range(900)))})"),
        bound(f"GREATEST({', '.join(['d'] * 900)})"),
        bound(f"CASE {' '.join(f'WHEN i = {number} THEN {number}.5' for number in range(300))} END"),
    ]
    rows = random_rows(Random(5), 20)
    expected = by_the_oracle(exprs, rows)
    assert differences(exprs, rows, on_duckdb(exprs, rows), expected) == []
    assert differences(exprs, rows, on_spark(spark, exprs, rows), expected) == []
