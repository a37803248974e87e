"""Names and literals that try to be more than that, in both engines; and what DuckDB refuses for operators."""

from __future__ import annotations

import re

import duckdb
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession, types

from expressions.engines import Row, by_the_oracle, differences, on_duckdb, on_spark, settings
from headgate.expressions.duck import kernel_connection
from headgate.expressions.sql import duckdb_name, duckdb_sql, spark_name, spark_sql
from headgate.plan.expressions import (
    AggregateCall,
    Arithmetic,
    Call,
    Cast,
    Column,
    Compare,
    Expr,
    In,
    Like,
    Literal,
    Type,
)

HOSTILE = (
    *("'", "''", "'''", '"', "`", "``", ";", "--", "/*", "*/", "#", "\\", "\\\\", "\\'", "\\\\'", "\\u0027", "\\047"),
    *("' OR '1'='1", "'; DROP TABLE given; --", "\\' OR 1=1 --", "' || (SELECT 1) || '", "x' UNION SELECT 1 --"),
    *("${env:HOME}", "${spark.app.name}", "${system:user.home}", "$", "$1", "$$x$$", "${", "?", ":name", "{x}", "%s"),
    *("X'41'", "r'x'", "E'\\x27'", "U&'\\0027'", "CAST(X'27' AS STRING)", "read_csv('/etc/passwd')", "*", "/*+ x */"),
    *("a\nb", "\r\n'", "\t", "\x00", "a\x00'b", "\x1a", "\x7f", "\u2028", "\u2019", "\uff07", "\U0001f600'", "%", "_"),
    *("^", "\\%", "@x"),
)
S = Column(0, "s", Type.STRING)
SETTINGS = {
    "as it is": {},
    "raw strings": {"spark.sql.parser.escapedStringLiterals": "true"},
    "substituting": {"spark.sql.variable.substitute": "true"},
    "quoted names": {"spark.sql.ansi.doubleQuotedIdentifiers": "true"},
}


def about(text: str) -> list[Expr]:
    literal = Literal(text, Type.STRING)
    exactly = re.sub(r"([\\%_])", r"\\\1", text)
    return [
        literal,
        Compare("<=", S, literal),
        In(S, frozenset({literal, Literal("a", Type.STRING)})),
        Like(S, exactly),
        Like(S, f"%{exactly}%"),
        Call("CONCAT", (S, literal, S), Type.STRING),
        Cast(literal, Type.BOOLEAN),
    ]


EXPRS = [expr for text in HOSTILE for expr in about(text)]
ROWS: list[Row] = [{S: text} for text in (*HOSTILE, "", "a")]


def test_a_literal_is_nothing_but_its_text_on_duckdb() -> None:
    assert differences(EXPRS, ROWS, on_duckdb(EXPRS, ROWS), by_the_oracle(EXPRS, ROWS)) == []


@pytest.mark.parametrize("how", SETTINGS)
def test_a_literal_is_nothing_but_its_text_on_spark(spark: SparkSession, how: str) -> None:
    with settings(spark, SETTINGS[how]):
        found = on_spark(spark, EXPRS, ROWS)
    assert differences(EXPRS, ROWS, found, by_the_oracle(EXPRS, ROWS)) == []


# Names --------------------------------------------------------------------------------------------------------------

# The last ones are words that the generated text uses itself.
NAMES = (*(text for text in HOSTILE if "\x00" not in text), "v", "a", "b", "c", "select", "nothing", "a.b", "v.a", "é")
COLUMNS = [Column(0, name, Type.BIGINT) for name in NAMES]


def plain(part: Column | AggregateCall) -> str:
    assert isinstance(part, Column)
    return part.name


def used(column: Column) -> list[Expr]:
    """Alone, and where it is bound to a variable."""
    long = Call("GREATEST", (column,) * 12, Type.BIGINT)
    text, half = Cast(long, Type.STRING), Arithmetic("/", (long, Literal(2, Type.INT)), Type.DOUBLE)
    return [
        column,
        Call("NULLIF", (long, column), Type.BIGINT),
        Call("SUBSTRING", (text, column), Type.STRING),
        Call("CEIL", (half,), Type.BIGINT),
        half,
    ]


def expected(number: int) -> tuple[object, ...]:
    return number, None, str(number)[number - 1 :], (number + 1) // 2, number / 2


def test_a_name_is_nothing_but_a_name_on_duckdb() -> None:
    table = pa.table({name: pa.array([number + 1]) for number, name in enumerate(NAMES)})
    connection = kernel_connection()
    connection.register("given", table)
    for number, column in enumerate(COLUMNS, 1):
        results = ", ".join(duckdb_sql(expr, lambda part: duckdb_name(plain(part))) for expr in used(column))
        assert connection.sql(f"SELECT {results} FROM given").fetchall() == [expected(number)]


@pytest.mark.parametrize("how", ["as it is", "substituting"])
def test_a_name_is_nothing_but_a_name_on_spark(spark: SparkSession, how: str) -> None:
    schema = types.StructType([types.StructField(name, types.LongType()) for name in NAMES])
    frame = spark.createDataFrame([tuple(range(1, len(NAMES) + 1))], schema)
    with settings(spark, SETTINGS[how]):
        exprs = [spark_sql(expr, lambda part: spark_name(plain(part))) for column in COLUMNS for expr in used(column)]
        found = list(frame.selectExpr(*exprs).toDF(*(f"r{number}" for number in range(len(exprs)))).collect()[0])
    assert found == [value for number in range(1, len(NAMES) + 1) for value in expected(number)]


# A kernel's DuckDB ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT * FROM read_csv('/etc/passwd')",
        "SELECT * FROM read_text('/etc/passwd')",
        "SELECT * FROM read_blob('/etc/passwd')",
        "SELECT * FROM read_json('/etc/passwd')",
        "SELECT * FROM read_parquet('http://127.0.0.1/x')",
        "SELECT * FROM '/etc/passwd'",
        "SELECT * FROM glob('/etc/*')",
        "SELECT * FROM duckdb_secrets()",
        "SELECT * FROM HOSTILE",
        "SELECT getenv('HOME')",
        "COPY (SELECT 1) TO '/tmp/headgate-attack'",
        "EXPORT DATABASE '/tmp/headgate-attack'",
        "ATTACH '/tmp/headgate-attack.db'",
        "INSTALL httpfs",
        "LOAD httpfs",
        "LOAD '/tmp/headgate-attack.duckdb_extension'",
        "SET enable_external_access = true",
        "SET lock_configuration = false",
        "SET threads = 8",
        "SET TimeZone = 'America/New_York'",
        "RESET threads",
        "PRAGMA enable_profiling",
    ],
)
def test_a_kernel_reaches_nothing_but_its_columns(statement: str) -> None:
    with pytest.raises(duckdb.Error):
        kernel_connection().execute(statement).fetchall()
