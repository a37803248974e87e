"""Values as they are printed: the texts of CAST to STRING (SPEC.md, 4.1), numbers with fraction shortened."""

from __future__ import annotations

import datetime as dt

import pytest

from headgate.plain import counted
from headgate.service.run_client import _cell

NOON = dt.datetime(2026, 1, 31, 12, tzinfo=dt.UTC)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "NULL"),
        (True, "true"),
        (False, "false"),
        (-12, "-12"),
        (122.6666666, "122.667"),
        ("as it is", "as it is"),
        (NOON, "2026-01-31 12:00:00"),
        (NOON.replace(microsecond=250_000), "2026-01-31 12:00:00.25"),
        (NOON.date(), "2026-01-31"),
    ],
)
def test_a_value_is_printed_as_sql_writes_it(value: object, text: str) -> None:
    assert _cell(value) == text


def test_one_thing_is_named_in_the_singular() -> None:
    assert [counted(n, "result") for n in (0, 1, 2, 1000)] == ["0 results", "1 result", "2 results", "1,000 results"]
    assert [counted(n, "query", "queries") for n in (1, 2)] == ["1 query", "2 queries"]
