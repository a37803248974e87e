"""Expressions as SQL for Spark and for DuckDB, with the same meaning in both: that of SPEC.md, 4.1."""

from headgate.expressions.sql.duck import duckdb_name, duckdb_sql
from headgate.expressions.sql.spark import spark_name, spark_sql, spark_utc
from headgate.expressions.sql.types import arrow_type, duckdb_type, spark_type

__all__ = [
    "arrow_type",
    "duckdb_name",
    "duckdb_sql",
    "duckdb_type",
    "spark_name",
    "spark_sql",
    "spark_type",
    "spark_utc",
]
