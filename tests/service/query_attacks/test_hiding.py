"""What is hidden stays so: no statement about queries tells it, by its answer, its record or its work."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from collections import Counter

import pytest
from conftest import System
from counting import counted

from headgate.access.request import Result
from headgate.errors import AccessDenied, HeadgateError

from .wards import explained, records, refused

NAMING = [
    "CREATE QUERY other AS SELECT a FROM {0}",
    "CREATE QUERY other AS SELECT nonsense FROM {0}",
    "CREATE QUERY other CUMULATIVE AS SELECT a FROM {0}",
    "CREATE QUERY other AS SELECT a FROM mine, {0}",
    "CREATE QUERY other AS SELECT a FROM {0} mine, {0} mine",
    "CREATE QUERY other AS SELECT x.a FROM mine x, {0} [ROWS 5] AS y WHERE x.a = y.a",
    "CREATE QUERY other AS SELECT a FROM mine UNION ALL SELECT a FROM {0}",
    "CREATE QUERY other OUTPUT mine AS SELECT a FROM {0}",
    "EXPLAIN SELECT a FROM {0}",
    "EXPLAIN SELECT a FROM mine UNION ALL SELECT nonsense FROM {0}",
    "EXPLAIN QUERY {0}",
    "SUBSCRIBE TO {0}",
    "UNSUBSCRIBE FROM {0}",
    "ALTER STREAM {0} ALLOW CUMULATIVE",
    "ALTER STREAM {0} FORBID CUMULATIVE",
]


@pytest.mark.parametrize("hiding", ["no right", "too high", "own, too high"])
@pytest.mark.parametrize("statement", NAMING)
def test_a_hidden_stream_or_query_and_a_missing_one_cannot_be_told_apart(
    ward: System, monkeypatch: pytest.MonkeyPatch, statement: str, hiding: str
) -> None:
    """Neither by what is answered or recorded, nor by the work that was done."""
    for user in ("al", "bob"):
        ward.new_user(user, clearance="S")
    owner = ward.login("bob" if hiding == "own, too high" else "al", level="U" if hiding == "no right" else "S")
    ward.run(
        "CREATE STREAM hidden (a INT); CREATE QUERY hidden OUTPUT result AS SELECT a FROM hidden [ROWS 3];"
        "START QUERY hidden; SUBSCRIBE TO hidden",
        owner,
    )
    bob = ward.login("bob", level="U")
    ward.run("CREATE STREAM mine (a INT)", bob)

    def told(name: str, written: str) -> tuple[str, Counter[str]]:
        with counted(monkeypatch) as calls, pytest.raises(HeadgateError) as caught:
            ward.run(statement.format(written), bob)
        error = caught.value
        seen = type(error), str(error), error.message, error.hint, error.position, records(ward)
        return str(seen).replace(name, "NAME"), calls

    for written in ("{0}", "al.{0}", "bob.{0}", "nosuch.{0}"):
        assert told("hidden", written.format("hidden")) == told("absent", written.format("absent"))


def test_a_query_one_may_see_does_not_show_the_streams_that_one_may_not(ward: System, ann: str) -> None:
    """EXPLAIN QUERY refuses it; EXPLAIN QUERIES and the plans of other queries must not be the way around."""
    ward.run(
        "CREATE QUERY plain AS SELECT codename FROM secret WHERE doses > 7; START QUERY plain;"
        "CREATE QUERY joined AS SELECT v.bp, s.codename FROM vitals [ROWS 9] v, secret [ROWS 8] s WHERE v.sid = s.sid;"
        "START QUERY joined; GRANT VIEW OBJECT ON QUERY plain TO doctor; GRANT VIEW OBJECT ON QUERY joined TO doctor"
    )
    assert isinstance(refused(ward, "EXPLAIN QUERY joined", ann), AccessDenied)
    for what in ("QUERIES", "SELECT bp FROM vitals [ROWS 9]"):
        found = explained(ward, what, ann)
        for word in ("secret", "codename", "doses"):
            assert word not in found.text
            assert word not in found.picture


def test_explaining_does_not_take_longer_for_what_it_hides(
    ward: System, ann: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ward.run("CREATE QUERY mine AS SELECT sid FROM vitals WHERE bp > 3; START QUERY mine", ann)

    def steps() -> list[Counter[str]]:
        found = []
        for what in ("QUERIES", "QUERY mine", "SELECT bp FROM vitals WHERE bp > 5"):
            with counted(monkeypatch) as calls:
                explained(ward, what, ann)
            found.append(calls)
        return found

    before = steps()
    ward.run(
        "; ".join(f"CREATE QUERY h{n} AS SELECT sid FROM vitals WHERE bp > {n}; START QUERY h{n}" for n in range(9))
    )
    assert steps() == before


def test_a_namesake_of_another_level_does_not_end_every_explanation(ward: System) -> None:
    ward.new_user("spy", "agent", clearance="S")
    ward.run("GRANT VIEW OBJECT, READ TUPLE ON STREAM vitals TO agent")
    for level in ("U", "S"):
        ward.run("CREATE QUERY q AS SELECT sid FROM vitals; START QUERY q", ward.login("spy", level=level))
    found = explained(ward, "QUERIES", ward.login("spy", level="S")).text
    assert found.startswith("2 running queries")
    assert "spy.q: exact, level S" in found and "spy.q: exact, level U" in found


def test_a_text_in_a_query_does_not_write_lines_or_escapes_on_the_terminals_of_others(ward: System) -> None:
    texts = "'\x1b]0;owned\x07', 'x\n  root.q: complete (Definition 5): all', '\x00\u2028\x85\x9b31m'"
    ward.run(f"CREATE QUERY q AS SELECT sid FROM vitals WHERE name IN ({texts}); START QUERY q")
    for what in ("QUERY q", "QUERIES"):
        found = explained(ward, what)
        assert all(line.isprintable() for line in found.text.split("\n"))
        assert not any(line.startswith("  root.q: complete") for line in found.text.split("\n"))
        ElementTree.fromstring(found.picture)  # noqa: S314


def test_what_runs_high_changes_nothing_that_is_seen_low(ward: System, monkeypatch: pytest.MonkeyPatch) -> None:
    ward.run("CREATE ROLE few MAX QUERIES 2")
    ward.new_user("spy", "few", clearance="S")
    ward.run("GRANT VIEW OBJECT, READ TUPLE, SUBSCRIBE ON STREAM vitals TO few; GRANT VIEW CATALOG ON SYSTEM TO few")
    low, high = ward.login("spy", level="U"), ward.login("spy", level="S")
    ward.run("CREATE QUERY low AS SELECT sid FROM vitals WHERE bp > 3", low)
    asked = ["SHOW QUERIES", "SHOW STREAMS", "SHOW CATALOG", "SHOW SUBSCRIPTIONS", "SHOW GRANTS", "EXPLAIN QUERY low"]
    asked += ["EXPLAIN QUERIES", "EXPLAIN SELECT sid FROM vitals [ROWS 9] WHERE bp > 4", "START QUERY low"]
    asked += ["SUBSCRIBE TO low", "UNSUBSCRIBE FROM low", "STOP QUERY low"]

    def seen() -> tuple[list[list[Result]], Counter[str]]:
        with counted(monkeypatch) as calls:
            return [ward.run(statement, low) for statement in asked], calls

    before = seen()
    for name in ("low", "a", "b"):
        ward.run(f"CREATE QUERY {name} AS SELECT sid FROM vitals [ROWS 9] WHERE bp > 3; SUBSCRIBE TO {name}", high)
    ward.run("START QUERY low; START QUERY a; SUBSCRIBE TO vitals", high)
    assert isinstance(refused(ward, "START QUERY b", high), AccessDenied)
    assert seen() == before


def test_a_query_of_a_low_level_is_not_started_from_above(ward: System) -> None:
    ward.new_user("spy", "agent", clearance="S")
    ward.run("GRANT VIEW OBJECT, READ TUPLE ON STREAM vitals TO agent")
    ward.run("CREATE QUERY q AS SELECT sid FROM vitals", ward.login("spy", level="U"))
    high = ward.login("spy", level="S")
    for statement in ("START QUERY q", "STOP QUERY q", "ALTER STREAM q ALLOW CUMULATIVE", "DROP QUERY q"):
        assert isinstance(refused(ward, statement, high), AccessDenied)
