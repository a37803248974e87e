"""An expression means the same in the oracle, in DuckDB and in Spark: golden cases, random ones, every kind of text."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from expressions.engines import (
    COLUMNS,
    Row,
    bound,
    by_the_oracle,
    chunks,
    differences,
    kept_on_duckdb,
    kept_on_spark,
    on_duckdb,
    on_spark,
    settings,
)
from expressions.values import EDGES, MODELS, TEXTS, almost, random_conditions, random_exprs, random_rows
from headgate.expressions.sql import spark_utc
from headgate.plan.expressions import Cast, Expr, Literal, Type, Value
from headgate.testing.oracle import value_of

TABLE: dict[str, Any] = json.loads((Path(__file__).parents[1] / "plan" / "values.json").read_text(encoding="utf-8"))
CASES = [case for group in TABLE["values"] for case in group["cases"]]
SPARKS = {
    "as it is": {},
    "without ANSI": {"spark.sql.ansi.enabled": "false"},
    "interpreted": {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"},
}


def read(written: Any, type_: Type) -> Value:
    """A value as JSON has it."""
    if written is not None and type_ == Type.BINARY:
        return bytes.fromhex(written)
    if written is not None and type_ == Type.FLOAT:
        return float(np.float32(written))
    if written is None or type_ not in (Type.TIMESTAMP, Type.DATE):
        return written  # type: ignore[no-any-return]
    return (dt.datetime if type_ == Type.TIMESTAMP else dt.date).fromisoformat(written)


def row(columns: dict[str, Any]) -> Row:
    return {column: read(columns.get(column.name), column.type) for column in COLUMNS}


# The golden cases ----------------------------------------------------------------------------------------------------

EXPRESSIONS = list(dict.fromkeys(text for text, *_ in CASES))
ROWS = [row(columns) for columns in map(json.loads, dict.fromkeys(json.dumps(columns) for _, columns, *_ in CASES))]


def check_cases(exprs: Sequence[Expr], found: list[list[Value]]) -> None:
    """Each case has its value, and every expression has in every row what the oracle says."""
    for text, columns, type_, value in CASES:
        number = EXPRESSIONS.index(text)
        assert exprs[number].type == Type(type_)
        assert found[number][ROWS.index(row(columns))] == read(value, Type(type_)), (text, columns)
    assert differences(exprs, ROWS, found, by_the_oracle(exprs, ROWS)) == []


def test_duckdb_computes_the_values_of_the_table() -> None:
    exprs = list(map(bound, EXPRESSIONS))
    check_cases(exprs, on_duckdb(exprs, ROWS))


@pytest.mark.parametrize("how", SPARKS)
def test_spark_computes_the_values_of_the_table(spark: SparkSession, how: str) -> None:
    exprs = list(map(bound, EXPRESSIONS))
    with settings(spark, SPARKS[how]):
        check_cases(exprs, on_spark(spark, exprs, ROWS))


# Random expressions --------------------------------------------------------------------------------------------------

Evaluate = Callable[[Sequence[Expr], Sequence[Row]], list[list[Value]]]


def check_random(seed: int, count: int, size: int, evaluate: Evaluate) -> None:
    rng = Random(seed)
    for exprs in chunks(random_exprs(rng, count), size):
        rows = random_rows(rng, 20)
        assert differences(exprs, rows, evaluate(exprs, rows), by_the_oracle(exprs, rows)) == []


def test_random_expressions_are_the_same_on_duckdb() -> None:
    check_random(1, 300, 50, on_duckdb)


def test_random_expressions_are_the_same_on_spark(spark: SparkSession) -> None:
    check_random(2, 300, 50, lambda exprs, rows: on_spark(spark, exprs, rows))


def check_conditions(seed: int, count: int, kept: Callable[[Expr, Sequence[Row]], list[int]]) -> None:
    """Optimisers take more liberties with conditions of a WHERE than with values."""
    rng = Random(seed)
    rows = random_rows(rng, 40)
    for condition in random_conditions(rng, count):
        met = [number for number, value in enumerate(by_the_oracle([condition], rows)[0]) if value is True]
        assert kept(condition, rows) == met, condition


def test_random_conditions_keep_the_same_rows_on_duckdb() -> None:
    check_conditions(3, 100, kept_on_duckdb)


def test_random_conditions_keep_the_same_rows_on_spark(spark: SparkSession) -> None:
    check_conditions(4, 15, lambda condition, rows: kept_on_spark(spark, condition, rows))


@pytest.mark.long
def test_many_random_conditions_keep_the_same_rows_on_duckdb() -> None:
    check_conditions(5, 1000, kept_on_duckdb)


@pytest.mark.long
def test_many_random_conditions_keep_the_same_rows_on_spark(spark: SparkSession) -> None:
    check_conditions(6, 300, lambda condition, rows: kept_on_spark(spark, condition, rows))


@pytest.mark.long
@pytest.mark.parametrize("seed", range(10, 20))
def test_many_random_expressions_are_the_same_on_duckdb(seed: int) -> None:
    check_random(seed, 2000, 50, on_duckdb)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(20, 30))
def test_many_random_expressions_are_the_same_on_spark(spark: SparkSession, seed: int) -> None:
    check_random(seed, 300, 50, lambda exprs, rows: on_spark(spark, exprs, rows))


# Texts that are almost of a form -------------------------------------------------------------------------------------

CASTS = [f"CAST(s AS {type_})" for type_ in Type if type_ not in (Type.STRING, Type.BINARY, Type.NULL)]


def test_texts_are_read_alike(spark: SparkSession) -> None:
    rng = Random(6)
    texts = [*TEXTS, *(almost(rng, rng.choice(MODELS)) for _ in range(5000))]
    exprs, rows = list(map(bound, CASTS)), [row({"s": text}) for text in texts]
    expected = by_the_oracle(exprs, rows)
    assert min(sum(value is not None for value in values) for values in expected) > 100
    assert differences(exprs, rows, on_duckdb(exprs, rows), expected) == []
    assert differences(exprs, rows, on_spark(spark, exprs, rows), expected) == []


def test_times_of_spark_are_read_in_utc(spark: SparkSession) -> None:
    moments = [moment for moment in EDGES[Type.TIMESTAMP] if isinstance(moment, dt.datetime)]
    table = pa.table({"t": pa.array(moments, pa.timestamp("us", "UTC"))})
    found = spark.createDataFrame(table).selectExpr(f"CAST({spark_utc('t')} AS STRING) AS t")
    expected = [value_of(Cast(Literal(moment, Type.TIMESTAMP), Type.STRING), lambda _: None) for moment in moments]
    assert [text for (text,) in found.collect()] == expected
