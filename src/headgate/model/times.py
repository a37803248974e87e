"""Times before any event time, in milliseconds since 1970."""

from __future__ import annotations

NO_TIME = -(1 << 62)
BEGINNING = -(1 << 47)
"""The time of all tuples of tables: before the year 1, and so before the time of any stream tuple."""
