"""Every statement about queries leaves its record in the audit trail, and no literal of anybody's in it."""

from __future__ import annotations

import pytest
from conftest import System

from headgate.errors import HeadgateError

from .wards import records

LITERAL = "hunter2secret"
RECORDED = [
    (f"CREATE QUERY n AS SELECT bp FROM vitals WHERE name = '{LITERAL}'", "CREATE QUERY AS", "query ann.n", "granted"),
    (f"EXPLAIN SELECT bp FROM vitals WHERE name = '{LITERAL}'", "EXPLAIN QUERY", "a query", "granted"),
    ("EXPLAIN QUERY q", "EXPLAIN QUERY", "query ann.q", "granted"),
    ("EXPLAIN QUERIES", "EXPLAIN QUERY", "queries", "granted"),
    ("START QUERY q", "START QUERY", "query ann.q", "granted"),
    ("STOP QUERY q", "STOP QUERY", "query ann.q", "granted"),
    ("SUBSCRIBE TO q", "SUBSCRIBE", "stream ann.q", "granted"),
    ("UNSUBSCRIBE FROM q", "UNSUBSCRIBE", "stream ann.q", "denied"),
    ("SUBSCRIBE TO vitals", "SUBSCRIBE", "stream root.vitals", "denied"),
    ("ALTER STREAM q ALLOW CUMULATIVE", "ALTER STREAM", "stream ann.q", "granted"),
    ("ALTER STREAM vitals ALLOW CUMULATIVE", "ALTER STREAM", "stream root.vitals", "denied"),
    (f"CREATE QUERY n AS SELECT '{LITERAL}' + 1 AS x FROM vitals", "CREATE QUERY AS", "stream root.vitals", "denied"),
    (f'EXPLAIN SELECT "{LITERAL}" + 1 AS x FROM vitals', "EXPLAIN QUERY", "stream root.vitals", "denied"),
    (f"EXPLAIN SELECT bp FROM vitals WHERE name LIKE '{LITERAL}\\'", "EXPLAIN QUERY", "stream root.vitals", "denied"),
    (f"EXPLAIN SELECT bp FROM vitals WHERE DATE '{LITERAL}' = bp", "EXPLAIN QUERY", "stream root.vitals", "denied"),
    (f"EXPLAIN SELECT bp FROM vitals, '{LITERAL}'", "EXECUTE", "script", "denied"),
    (f'EXPLAIN SELECT bp FROM vitals AS "{LITERAL}"', "EXECUTE", "script", "denied"),
]


@pytest.mark.parametrize(("script", "action", "about", "outcome"), RECORDED)
def test_every_statement_leaves_its_record_and_no_literal(
    ward: System, ann: str, script: str, action: str, about: str, outcome: str
) -> None:
    ward.run("CREATE QUERY q AS SELECT bp FROM vitals", ann)
    told = ""
    try:
        ward.run(script, ann)
    except HeadgateError as error:
        told = str(error) + error.hint
    (record,) = records(ward)
    assert (record[0], *record[2:5]) == ("ann", action, about, outcome)
    assert LITERAL not in str(record) + told
