"""Expressions over columns: Arrow, DuckDB and Spark SQL, and the limits of what they may make."""
