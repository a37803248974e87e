"""Evaluate expressions over columns with Arrow or DuckDB, write them as SQL, and limit what they may compute."""
