"""An expression means the same everywhere: as SQL of Spark and of DuckDB, what SPEC.md, 4.1, says it means."""

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
