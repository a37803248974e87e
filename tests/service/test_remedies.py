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


@pytest.mark.parametrize(
    ("source", "message", "hint"),
    [
        ("cvs (path = 'x')", "there is no format `cvs`", "did you mean csv?"),
        ("jsonl (path = 'x')", "there is no format `jsonl`", "did you mean json?"),
        ("csv", "`csv` needs a path", "SOURCE csv (path = 'FOLDER')"),
        ("parquet (mergeSchema = 'true')", "`parquet` needs a path", "SOURCE parquet (path = 'FOLDER')"),
        (
            "csv (path = 'x', headers = 'true')",
            "`csv` has no option `headers` here",
            "there are header, sep, delimiter, quote, nullValue, encoding, and those that say which files there are",
        ),
    ],
)
def test_a_source_that_cannot_be_meant_is_refused_when_it_is_created(
    sqlite_system: System, source: str, message: str, hint: str
) -> None:
    error = refused(sqlite_system, f"CREATE STREAM s (n INT) SOURCE {source}")
    assert (error.message, error.hint) == (message, hint)
    assert error.position is not None
    sqlite_system.run("CREATE STREAM s (n INT) SOURCE delta (path = 'x'); CREATE STREAM t (n INT) SOURCE iceberg")


def test_dropping_a_stream_names_the_queries_that_it_breaks(sqlite_system: System) -> None:
    sqlite_system.run(WARD)
    ann = sqlite_system.new_user("ann", "nurse")
    sqlite_system.run("GRANT ADD ON SYSTEM TO nurse; GRANT VIEW OBJECT, READ TUPLE ON STREAM A TO nurse")
    sqlite_system.run("CREATE QUERY hers AS SELECT pat FROM root.A", ann)
    assert sqlite_system.run("DROP STREAM A")[-1].text == "stream root.A dropped; this breaks query root.mean"


def test_a_query_that_cannot_mean_what_it_says_is_created_with_a_warning(sqlite_system: System) -> None:
    sqlite_system.run(WARD)
    sqlite_system.run("CREATE LEVEL S ABOVE U")

    def told(name: str, text: str) -> str:
        answer = sqlite_system.run(f"CREATE QUERY {name} AS {text}")[-1].text
        return answer.partition(f"with output stream root.{name}")[2]

    assert told("a", "SELECT pat FROM A WHERE LEVEL = 'Q'") == "; there is no level Q"
    assert told("b", "SELECT pat FROM A [ROWS 3 LEVEL = 'Q']") == "; there is no level Q"
    assert told("c", "SELECT pat FROM A WHERE LEVEL = 'S' OR 'U'") == ""
    assert told("d", 'SELECT "pat" FROM A').startswith("; a result is the text 'pat', not the column")
    assert told("e", "SELECT 'patient' AS kind, pat FROM A WHERE who = 'pat'") == ""


def test_a_window_has_one_level(sqlite_system: System) -> None:
    sqlite_system.run(WARD)
    error = refused(sqlite_system, """EXPLAIN SELECT pat FROM A [ROWS 3 LEVEL = 'S' OR 'C']""")
    assert error.hint == "a window has one level; write several with WHERE, as LEVEL IN ('S', 'C')"
