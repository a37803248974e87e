"""Errors say what to do instead, to those who may know it."""

from __future__ import annotations

import pytest
from conftest import System

from headgate.errors import HeadgateError

WARD = """
CREATE STREAM A (ts TIMESTAMP, pat INT, v DOUBLE, who STRING) EVENT TIME ts ROLES FROM who;
CREATE QUERY mean AS SELECT pat, AVG(v) AS m FROM A [ROWS 3] GROUP BY pat; START QUERY mean;
CREATE QUERY high AS SELECT pat FROM mean WHERE m > 3; START QUERY high
"""


def refused(system: System, script: str, token: str = "") -> HeadgateError:
    with pytest.raises(HeadgateError) as caught:
        system.run(script, token)
    return caught.value


@pytest.mark.parametrize(
    ("script", "hint"),
    [
        ("GRANT READ TUPLE ON STREAM A TO ann", "ann is a user: rights are granted to roles, and roles to users"),
        ("CREATE QUERY q AS SELECT pat FROM a", "did you mean A?; names are exact"),
        ("SELECT * FROM A", "a query is continuous: CREATE QUERY name AS SELECT ..."),
        ("GRANT SELECT ON STREAM A TO nurse", "did you mean READ TUPLE?"),
        ("GRANT ALL ON STREAM A TO nurse", "did you mean READ TUPLE?"),
        ("GRANT READ ON STREAM A TO nurse", "did you mean READ TUPLE?"),
        ("EXPLAIN SELECT pat FROM A WHERE ts > '2024-01-01'", "write TIMESTAMP '2024-01-31 08:00:00'"),
        ("CREATE STREAM B (n INT) LEVEL 'C'", "LABEL 'TRUE AT C' gives all tuples the level C"),
    ],
)
def test_an_error_has_a_remedy(sqlite_system: System, script: str, hint: str) -> None:
    sqlite_system.run(WARD)
    sqlite_system.new_user("ann", "nurse")
    assert refused(sqlite_system, script).hint == hint


@pytest.mark.parametrize("function", ["MEDIAN", "ROUND"])
def test_an_unknown_function_is_answered_with_the_list(sqlite_system: System, function: str) -> None:
    sqlite_system.run(WARD)
    hint = refused(sqlite_system, f"EXPLAIN SELECT {function}(v) FROM A [ROWS 1]").hint
    assert hint.startswith("there is ABS, ") and "AVG" in hint


def test_who_may_not_see_users_or_streams_is_told_of_none(sqlite_system: System) -> None:
    sqlite_system.run(WARD)
    ann = sqlite_system.new_user("ann", "nurse")
    sqlite_system.new_user("ben", "nurse")
    sqlite_system.run("GRANT ADD ON SYSTEM TO nurse")
    sqlite_system.run("CREATE STREAM mine (n INT)", ann)
    assert refused(sqlite_system, "GRANT READ TUPLE ON STREAM mine TO ben", ann).hint == ""
    assert refused(sqlite_system, "SUBSCRIBE TO root.a", ann).hint == ""
    assert refused(sqlite_system, "SUBSCRIBE TO Mine", ann).hint == "did you mean mine?; names are exact"


def test_publish_on_a_stream_that_takes_nothing_is_granted_with_a_warning(sqlite_system: System) -> None:
    sqlite_system.run(WARD)
    sqlite_system.new_user("ann", "nurse")
    told = sqlite_system.run("GRANT PUBLISH ON STREAM A TO nurse")[-1].text
    assert told.endswith("granted to nurse; stream root.A has no SOURCE publish, so nobody can publish there")


def test_a_query_over_a_query_is_explained_with_the_labels_of_what_it_is_computed_from(sqlite_system: System) -> None:
    sqlite_system.run(WARD)
    ann = sqlite_system.new_user("ann", "nurse")
    told = sqlite_system.run("EXPLAIN QUERY high")[-1].text
    assert "of root.mean: the roles in column who of root.A" in told
    sqlite_system.run("GRANT VIEW OBJECT ON STREAM mean, high TO nurse; GRANT VIEW OBJECT ON QUERY high TO nurse")
    told = sqlite_system.run("EXPLAIN QUERY root.high", ann)[-1].text
    assert "of root.mean: what its tuples bring" in told and "root.A" not in told
