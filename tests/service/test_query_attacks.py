"""Attacks on continuous queries: what their statements tell, what their stored texts become, what they cost."""

from __future__ import annotations

import json
import time
import xml.etree.ElementTree as ElementTree
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from conftest import System
from counting import counted

from headgate.access.request import Result
from headgate.access.rows import Object
from headgate.cql.queries import MAX_QUERY
from headgate.errors import AccessDenied, Conflict, HeadgateError, TextError

STREAMS = """
CREATE STREAM vitals (sid INT, bp INT, awake BOOLEAN, name STRING);
CREATE STREAM secret (sid INT, codename STRING, doses INT);
"""


def refused(system: System, script: str, token: str = "") -> HeadgateError:
    with pytest.raises(HeadgateError) as caught:
        system.run(script, token)
    return caught.value


def explained(system: System, what: str, token: str = "") -> Result:
    return system.run(f"EXPLAIN {what}", token)[-1]


def named(system: System, kind: str, name: str) -> Object:
    return next(x for x in system.headgate._state.objects if x.kind == kind and x.name == name)


def definition(system: System, kind: str, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(named(system, kind, name).definition)
    return found


def planned(system: System) -> set[str]:
    """The numbers of the queries in the plan."""
    return {name for part in system.headgate.plan().plans.values() for name in part.queries}


def records(system: System, newest: int = 1) -> list[tuple[str, ...]]:
    """The newest audit records without time and session, as root reads them."""
    return [(user, *rest) for _, user, _, *rest in system.rows(f"SHOW AUDIT LIMIT {newest}")]


@pytest.fixture
def ward(sqlite_system: System) -> System:
    sqlite_system.run(STREAMS + "CREATE LEVEL S; GRANT ADD ON SYSTEM TO PUBLIC")
    return sqlite_system


@pytest.fixture
def ann(ward: System) -> str:
    """A doctor who may read vitals, and not even see the other stream."""
    token = ward.new_user("ann", "doctor")
    ward.run("GRANT VIEW OBJECT, READ TUPLE ON STREAM vitals TO doctor")
    return token


# What is hidden -------------------------------------------------------------------------------------------------------

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


# Rights ---------------------------------------------------------------------------------------------------------------


def test_consent_to_cumulative_queries_is_not_evaded_by_a_query_in_between(ward: System, ann: str) -> None:
    """Whoever owns the output of an exact query would otherwise consent in the place of the owner of its input."""
    ward.run("CREATE QUERY copy AS SELECT sid, bp FROM vitals", ann)
    ward.run("ALTER STREAM copy ALLOW CUMULATIVE", ann)
    create = "CREATE QUERY {} CUMULATIVE AS SELECT sid, AVG(bp) AS bp FROM {} [ROWS 5] GROUP BY sid"
    error = refused(ward, create.format("c", "copy"), ann)
    assert isinstance(error, AccessDenied)
    ward.run("ALTER STREAM vitals ALLOW CUMULATIVE")
    ward.run(create.format("c", "copy") + "; START QUERY c; STOP QUERY c; ALTER STREAM c ALLOW CUMULATIVE", ann)
    ward.run(create.format("d", "c") + "; START QUERY d; STOP QUERY d", ann)
    ward.run("ALTER STREAM vitals FORBID CUMULATIVE")
    for name in ("c", "d"):
        assert isinstance(refused(ward, f"START QUERY {name}", ann), AccessDenied)
    assert isinstance(refused(ward, create.format("e", "c"), ann), AccessDenied)


def test_consent_is_not_evaded_by_a_query_of_boxes_in_between(ward: System, ann: str) -> None:
    ward.run("CREATE QUERY copy READING vitals OUTPUT copied; ALTER STREAM copied ALLOW CUMULATIVE", ann)
    error = refused(ward, "CREATE QUERY c CUMULATIVE AS SELECT 1 AS one FROM copied", ann)
    assert isinstance(error, AccessDenied)


def test_consent_does_not_name_the_hidden_streams_behind_an_output(ward: System, ann: str) -> None:
    ward.run(
        "CREATE QUERY q AS SELECT sid FROM secret; ALTER STREAM q ALLOW CUMULATIVE;"
        "GRANT VIEW OBJECT, READ TUPLE ON STREAM q TO doctor"
    )
    error = refused(ward, "CREATE QUERY c CUMULATIVE AS SELECT sid FROM q", ann)
    assert isinstance(error, AccessDenied)
    assert "secret" not in str(error)


def test_a_query_as_a_role_sees_only_what_that_role_sees(ward: System) -> None:
    """Created and started by the same rule: READ TUPLE of the role alone does not make up for what it cannot see."""
    both = ward.new_user("bob", "doctor", "nurse")
    ward.run("GRANT VIEW OBJECT ON STREAM vitals TO doctor; GRANT READ TUPLE ON STREAM vitals TO nurse")
    assert isinstance(refused(ward, "CREATE QUERY q AS nurse SELECT bp FROM vitals", both), AccessDenied)
    ward.run("CREATE QUERY q AS doctor, nurse SELECT bp FROM vitals; START QUERY q", both)


@pytest.mark.parametrize("role", ["PUBLIC", "nurse", "nosuch"])
def test_a_query_cannot_be_as_a_role_that_is_not_active(ward: System, ann: str, role: str) -> None:
    ward.run("CREATE ROLE nurse; GRANT ROLE nurse TO ROLE doctor")
    assert isinstance(refused(ward, f"CREATE QUERY q AS doctor, {role} SELECT bp FROM vitals", ann), AccessDenied)


def test_a_level_in_a_window_is_a_selection_and_needs_its_right(ward: System, ann: str) -> None:
    ward.run("REVOKE USE ON OPERATOR select FROM PUBLIC")
    script = "CREATE QUERY q AS SELECT bp FROM vitals [ROWS 5 LEVEL = 'S']"
    error = refused(ward, script, ann)
    assert isinstance(error, AccessDenied)
    assert error.position is not None and script[error.position.offset :].startswith("'S'")


@pytest.mark.parametrize(
    "revoke",
    [
        "REVOKE READ TUPLE ON STREAM vitals FROM doctor",
        "REVOKE VIEW OBJECT ON STREAM vitals FROM doctor",
        "REVOKE ROLE doctor FROM USER ann",
        "REVOKE USE ON OPERATOR window FROM PUBLIC",
        "DROP ROLE doctor",
    ],
)
def test_a_helper_does_not_start_what_the_owner_may_no_longer_start(ward: System, ann: str, revoke: str) -> None:
    bob = ward.new_user("bob", "helper")
    ward.run(
        "CREATE QUERY q AS SELECT bp FROM vitals [ROWS 5];"
        "GRANT VIEW OBJECT, SET QUERY STATUS ON QUERY q TO helper; START QUERY q; STOP QUERY q",
        ann,
    )
    ward.run("START QUERY q; STOP QUERY q", bob)
    ward.run(revoke)
    error = refused(ward, "START QUERY q", bob)
    assert isinstance(error, AccessDenied)
    assert "vitals" not in str(error)


def test_an_heir_does_not_see_or_start_what_a_query_reads(ward: System, ann: str) -> None:
    ward.run("CREATE QUERY q AS SELECT bp FROM vitals; START QUERY q", ann)
    bob = ward.new_user("bob", "heir")
    ward.run("GRANT VIEW CATALOG ON SYSTEM TO heir; DROP USER ann REASSIGN TO bob")
    assert isinstance(refused(ward, "EXPLAIN QUERY q", bob), AccessDenied)
    assert explained(ward, "QUERIES", bob).text.startswith("0 running queries")
    assert "vitals" not in str(ward.rows("SHOW QUERIES", bob))
    error = refused(ward, "STOP QUERY q; START QUERY q", bob)
    assert isinstance(error, AccessDenied)
    assert "vitals" not in str(error)


def running(ward: System) -> int:
    """How many queries there are for the engine."""
    return sum(len(plan.queries) for plan in ward.headgate.plan().plans.values())


def test_a_query_does_not_go_on_for_an_heir_who_could_not_start_it(ward: System, ann: str) -> None:
    """Its output is the heir's own now: the heir would read through it what ann could read."""
    ward.run("CREATE QUERY q AS SELECT bp FROM vitals; START QUERY q", ann)
    bob = ward.new_user("bob", "heir")
    assert running(ward) == 1
    ward.run("DROP USER ann REASSIGN TO bob")
    assert running(ward) == 0
    assert isinstance(refused(ward, "START QUERY q", bob), AccessDenied)


def test_what_an_heir_could_start_goes_on_up_to_its_limit(ward: System, ann: str) -> None:
    ward.run("; ".join(f"CREATE QUERY q{n} AS SELECT bp FROM vitals; START QUERY q{n}" for n in range(3)), ann)
    bob = ward.new_user("bob", "heir")
    ward.run("ALTER ROLE heir MAX QUERIES 2")
    for role in {row[1] for row in ward.rows("SHOW USERS") if row[0] == "ann"}:
        ward.run(f"GRANT ROLE {role} TO USER bob")
    ward.run("DROP USER ann REASSIGN TO bob")
    assert running(ward) == 2
    assert "at most 2 running queries" in str(refused(ward, "START QUERY q2", bob))


def test_a_query_above_an_heirs_clearance_stops_without_a_word(ward: System) -> None:
    ward.run("CREATE LEVEL H; CREATE ROLE adder; GRANT ADD ON SYSTEM TO adder")
    ward.new_user("cleared", "adder", clearance="H")
    ward.new_user("bob", "adder")
    high = ward.login("cleared", level="H")
    ward.run("CREATE STREAM s (a INT); CREATE QUERY q AS SELECT a FROM s; START QUERY q", high)
    assert running(ward) == 1
    (told,) = ward.run("DROP USER cleared REASSIGN TO bob")
    assert running(ward) == 0
    assert told.text == "user cleared dropped"


def test_a_subscription_does_not_outlive_the_stream_or_move_to_its_successor(system: System) -> None:
    bob = system.new_user("bob", "reader")
    system.run(
        "CREATE STREAM s (a INT); GRANT VIEW CATALOG ON SYSTEM TO reader;"
        "GRANT VIEW OBJECT, SUBSCRIBE ON STREAM s TO reader"
    )
    system.run("SUBSCRIBE TO s", bob)
    system.run("DROP STREAM s; CREATE STREAM s (a INT); GRANT VIEW OBJECT, SUBSCRIBE ON STREAM s TO reader")
    assert system.rows("SHOW SUBSCRIPTIONS", bob) == ()
    assert isinstance(refused(system, "UNSUBSCRIBE FROM s", bob), Conflict)
    system.run("SUBSCRIBE TO s", bob)
    system.run("DROP USER bob")
    assert system.sql("SELECT * FROM subscriptions") == []


# Stored texts ---------------------------------------------------------------------------------------------------------


def test_a_stored_query_never_reads_what_takes_the_place_of_its_stream(system: System) -> None:
    """Dropped and made anew, by the same owner or after the owner's name passed to somebody else."""
    system.run("CREATE STREAM s (a INT); CREATE QUERY q AS SELECT a FROM s; START QUERY q")
    before = planned(system)
    assert len(before) == 1
    system.run("DROP STREAM s; CREATE STREAM s (a INT)")
    for headgate in (system.headgate, system.another()):
        assert not headgate.plan().plans
    assert isinstance(refused(system, "START QUERY q"), Conflict)
    assert isinstance(refused(system, "EXPLAIN QUERY q"), Conflict)
    assert [row[-1] for row in system.rows("SHOW QUERIES")] == ["broken"]


def test_a_lost_output_stops_what_reads_it(system: System) -> None:
    system.run("CREATE STREAM s (a INT); CREATE QUERY q AS SELECT a FROM s; START QUERY q")
    bob = system.new_user("bob", "reader")
    system.run("GRANT ADD ON SYSTEM TO reader; GRANT VIEW OBJECT, READ TUPLE, SUBSCRIBE ON STREAM q TO reader")
    system.run("CREATE QUERY r AS SELECT a FROM root.q [ROWS 3]; START QUERY r; SUBSCRIBE TO r; SUBSCRIBE TO q", bob)
    assert len(planned(system)) == 2
    system.run("DROP QUERY q")
    assert planned(system) == set()
    assert isinstance(refused(system, "START QUERY r", bob), Conflict)
    assert system.sql("SELECT count(*) FROM subscriptions") == [(1,)]
    system.reopen()
    assert planned(system) == set()


def test_an_output_is_not_dropped_or_replaced_under_its_query(ward: System, ann: str) -> None:
    ward.run("CREATE QUERY q AS SELECT bp FROM vitals; START QUERY q", ann)
    assert isinstance(refused(ward, "DROP STREAM q", ann), Conflict)
    assert isinstance(refused(ward, "CREATE QUERY p OUTPUT q AS SELECT bp FROM vitals", ann), Conflict)
    assert isinstance(refused(ward, "CREATE QUERY q OUTPUT p AS SELECT bp FROM vitals", ann), Conflict)
    assert "p" not in {row[0] for row in ward.rows("SHOW STREAMS", ann)}


def test_comments_and_quotes_around_a_query_do_not_change_what_is_stored(ward: System, ann: str) -> None:
    script = (
        "CREATE QUERY q /* AS SELECT 1 */ AS /* x */ doctor -- y\n SELECT bp, ';' AS `a;b` /* z */ FROM vitals"
        " -- WHERE\n ; CREATE QUERY p AS SELECT sid FROM vitals"
    )
    ward.run(script + "; START QUERY q; START QUERY p", ann)
    assert definition(ward, "QUERY", "q")["text"] == "SELECT bp, ';' AS `a;b` /* z */ FROM vitals"
    assert len(planned(ward)) == 2


# Transactions ---------------------------------------------------------------------------------------------------------


def test_a_plan_does_not_hold_what_was_undone(ward: System) -> None:
    ward.run("CREATE QUERY q AS SELECT bp FROM vitals; CREATE QUERY p AS SELECT sid FROM vitals; START QUERY p")
    plan = ward.headgate.plan()
    before = {name for part in plan.plans.values() for name in part.queries}
    refused(ward, "START QUERY q; STOP QUERY p; EXPLAIN QUERIES; DROP STREAM nosuch")
    assert {name for part in plan.plans.values() for name in part.queries} == before
    assert planned(ward) == before
    assert explained(ward, "QUERIES").text.startswith("1 running queries")


def test_a_plan_does_not_hold_what_is_not_yet_certain(ward: System, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever executes a plan reads it without the lock, while others run scripts."""
    ward.run("CREATE QUERY q AS SELECT bp FROM vitals")
    plan = ward.headgate.plan()
    seen: list[int] = []
    real = ward.headgate._store._write

    def looking(*args: Any) -> Any:
        seen.append(len(plan.plans))
        return real(*args)

    monkeypatch.setattr(ward.headgate._store, "_write", looking)
    ward.run("START QUERY q; EXPLAIN QUERIES")
    assert seen == [0]


def test_two_processes_have_the_same_plan(system: System) -> None:
    other = system.another()
    system.run(STREAMS + "CREATE QUERY q AS SELECT bp FROM vitals WHERE bp > 3; START QUERY q")
    ours, theirs = system.headgate.plan(), other.plan()
    assert [part.snapshot() for part in ours.plans.values()] == [part.snapshot() for part in theirs.plans.values()]
    other.execute(system.root, "STOP QUERY q")
    assert not system.headgate.plan().plans


def test_a_store_of_the_first_version_is_brought_up_to_date_with_all_it_has(store_url: str) -> None:
    system = System(store_url)
    system.initialise()
    system.run(
        "CREATE ROLE r; CREATE STREAM s (a INT) LABEL 'r'; CREATE QUERY boxes READING s USING select OUTPUT o;"
        "START QUERY boxes; GRANT VIEW OBJECT ON STREAM s TO r"
    )
    before = system.rows("SHOW CATALOG"), system.rows("SHOW GRANTS"), system.rows("SHOW SESSIONS")
    system.sql("ALTER TABLE roles DROP COLUMN max_state", "ALTER TABLE roles DROP COLUMN max_results")
    system.sql("DROP TABLE subscriptions", "UPDATE alembic_version SET version_num = '0001'")
    head = system.headgate.audit_head()
    system.close()
    try:
        system.another()
        assert system.sql("SELECT version_num FROM alembic_version") == [("0004",)]
        assert system.headgate.verify_audit(f"{head.count}:{head.mac}") == []
        assert (system.rows("SHOW CATALOG"), system.rows("SHOW GRANTS"), system.rows("SHOW SESSIONS")) == before
        system.run(
            "CREATE QUERY q AS SELECT a FROM s; START QUERY q; SUBSCRIBE TO q; EXPLAIN QUERIES; STOP QUERY boxes"
        )
        assert system.rows("SHOW SUBSCRIPTIONS") == (("q", "root", "U"),)
    finally:
        system.close()


# Audit ----------------------------------------------------------------------------------------------------------------

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


# Cost -----------------------------------------------------------------------------------------------------------------

WIDE = "CREATE STREAM wide (" + ", ".join(f"c{n} INT" for n in range(999)) + ", zz INT)"


def listed(text: str, times: int) -> str:
    return ",".join([text] * times)


def sizes(number: int) -> str:
    """16 blocks of 16 sources, no two operators alike."""
    blocks = []
    for block in range(16):
        first = number * 256 + block * 16
        sources = ", ".join(f"vitals [ROWS {1 + first + n}] s{n}" for n in range(16))
        chosen = " AND ".join(f"s{n}.bp > {first + n}" for n in range(16))
        blocks.append(f"SELECT s0.bp WHERE {chosen} FROM {sources}")
    return " UNION ALL ".join(blocks)


HEAVY: dict[str, str] = {
    "a chain of ANDs as a result": "SELECT " + " AND ".join(["awake"] * 900) + " AS x FROM vitals",
    "many names of a wide stream": (
        "SELECT " + ", ".join(f"COALESCE({listed('zz', 990)}) AS x{n}" for n in range(16)) + " FROM wide"
    ),
    "many names of many groups": (
        "SELECT "
        + ", ".join(f"COALESCE({listed('zz', 990)}) AS x{n}" for n in range(14))
        + f" FROM wide GROUP BY {', '.join(f'c{n}' for n in range(990))}, zz"
    ),
    "every column two hundred times": f"SELECT {listed('wide.*', 200)} FROM wide",
    "many equal columns": (
        "SELECT a.zz FROM wide a, wide b WHERE " + " AND ".join(f"a.c{n} = b.c{n}" for n in range(480))
    ),
    "very many alternatives": "SELECT bp FROM vitals WHERE "
    + " OR ".join(f"(bp > {n} AND sid < {n} AND (bp < {n} OR sid > {n} AND bp <> {n}))" for n in range(80)),
    "long lists": "SELECT bp FROM vitals WHERE "
    + " AND ".join(f"bp IN ({', '.join(map(str, range(n, n + 60)))})" for n in range(30)),
    "long lists denied": "SELECT bp FROM vitals WHERE NOT ("
    + " OR ".join(f"bp + {n} IN ({', '.join(map(str, range(60)))})" for n in range(28))
    + ")",
    "as many operators as there can be": sizes(0),
    **{
        f"{written} inside itself": f"SELECT bp FROM vitals WHERE {'(' * 28}awake{f' {written})' * 28}"
        for written in (
            "BETWEEN awake AND TRUE",
            "NOT BETWEEN awake AND TRUE",
            "IN (awake, TRUE)",
            "NOT IN (TRUE, FALSE)",
            "NOT IN (TRUE, NULL) IS NULL",
        )
    },
    "a long condition said again for each of its parts": " UNION ALL ".join(
        "SELECT sid FROM vitals WHERE "
        + " AND ".join(f"bp <> {block * 64 + n}" for n in range(64))
        + " OR "
        + " OR ".join(f"sid<>{n}" for n in range(390))
        for block in range(9)
    ),
    "a long text in a list": f"SELECT bp FROM vitals WHERE '{'x' * 30_000}' IN ("
    + ", ".join(f"CONCAT(name, '{n}')" for n in range(300))
    + ")",
}


def seconds(act: Callable[[], object]) -> float:
    """Of this process, whatever else the machine is doing."""
    before = time.process_time()
    act()
    return time.process_time() - before


@pytest.mark.parametrize("what", HEAVY)
def test_no_query_holds_everybody_up(ward: System, what: str) -> None:
    assert len(HEAVY[what]) < MAX_QUERY
    ward.run(WIDE)

    def asked() -> None:
        with suppress(TextError):
            explained(ward, HEAVY[what])

    assert seconds(asked) < 3


def test_a_wrong_name_among_very_many_similar_ones_is_refused_quickly(ward: System) -> None:
    letters = "abcdefghijklmnopqrstuvwxyz" * 4
    for number in range(16):
        columns = (f"{letters[n % 26 :]}{letters[: n % 26]}_{number}_{n}" for n in range(1000))
        ward.run(f"CREATE STREAM w{number} ({', '.join(f'{name} INT' for name in columns)})")
    sources = ", ".join(f"w{number}" for number in range(16))
    assert seconds(lambda: refused(ward, f"EXPLAIN SELECT {letters[13:]}{letters[:13]} FROM {sources}")) < 1


def test_large_queries_beside_each_other_are_explained_quickly(ward: System) -> None:
    for number in range(3):
        ward.run(f"CREATE QUERY big{number} AS {sizes(number)}; START QUERY big{number}")
    assert seconds(lambda: explained(ward, sizes(3))) < 3
    assert seconds(lambda: explained(ward, "QUERIES")) < 3


def test_a_long_line_of_queries_computed_from_each_other_can_be_drawn(ward: System) -> None:
    """Names are sorted, so that the one with the most below it comes first."""
    many = 600
    ward.run(
        "; ".join(
            f"CREATE QUERY q{n:04} AS SELECT sid FROM vitals WHERE bp > {many - n}; START QUERY q{n:04}"
            for n in range(many)
        )
    )
    ElementTree.fromstring(explained(ward, "QUERIES").picture)  # noqa: S314


def test_an_explanation_does_not_grow_with_the_square_of_the_queries(ward: System) -> None:
    def size(many: int) -> int:
        ward.run(
            "; ".join(
                f"CREATE QUERY q{n} AS SELECT sid, {n} AS n FROM vitals [ROWS 5] WHERE bp > 3; START QUERY q{n}"
                for n in range(many)
            )
        )
        found = explained(ward, "QUERIES")
        ward.run("; ".join(f"DROP QUERY q{n}" for n in range(many)))
        return len(found.text) + len(found.picture)

    assert size(200) < 5 * size(50)


def test_a_small_script_does_not_explain_for_hours(ward: System) -> None:
    error = refused(ward, "; ".join(["EXPLAIN QUERIES"] * 1000))
    assert isinstance(error, Conflict)


# Sharing --------------------------------------------------------------------------------------------------------------


def test_no_column_is_taken_for_the_level_of_its_tuple(ward: System) -> None:
    """`SELECT *` of a column called LEVEL would be the same operator as SELECT LEVEL."""
    for script in (
        "CREATE STREAM s (LEVEL INT)",
        "CREATE SCHEMA s (LEVEL STRING)",
        "CREATE SCHEMA t (a INT); ALTER SCHEMA t ADD COLUMN LEVEL INT",
        "CREATE QUERY q AS SELECT bp AS LEVEL FROM vitals",
        "CREATE QUERY q AS SELECT bp AS `LEVEL` FROM vitals",
    ):
        refused(ward, script)
    ward.run("CREATE QUERY q AS SELECT LEVEL, vitals.* FROM vitals; START QUERY q")
    assert definition(ward, "STREAM", "q")["columns"][0] == {"name": "level", "type": "STRING"}
    ward.run("CREATE QUERY a AS SELECT * FROM q; CREATE QUERY b AS SELECT LEVEL, sid, bp, awake, name FROM q")
    ward.run("START QUERY a; START QUERY b")
    (plan,) = ward.headgate.plan().plans.values()
    assert len({root.key for root in plan.queries.values()}) == 3


ODD_NAMES = ("a", "a@1", "a, b", "a AS b", "`", "``", "'", '"', "a|b", "TRUE", "NULL", "1", "a = b", "all", "é")


def test_odd_names_do_not_make_two_operators_look_alike(ward: System) -> None:
    columns = "name STRING, " + ", ".join('"' + name.replace('"', '""') + '" STRING' for name in ODD_NAMES)
    ward.run(f'CREATE STREAM "o|d,d" ({columns}); CREATE STREAM "o|d" ({columns})')
    items = ["`" + name.replace("`", "``") + "`" for name in ODD_NAMES] + ["'a'", "'`a`'", "'a, b'", "LEVEL", "'''a'"]
    made = 0
    for stream in ('"o|d,d"', '"o|d"'):
        for item in items:
            for rest in (" AS x", " AS `x AS y`", f" AS x, {item} AS y"):
                ward.run(f"CREATE QUERY q{made} AS SELECT {item}{rest} FROM {stream}; START QUERY q{made}")
                made += 1
            ward.run(f"CREATE QUERY q{made} AS SELECT 1 AS x FROM {stream} WHERE name = {item}; START QUERY q{made}")
            made += 1
    (plan,) = ward.headgate.plan().plans.values()
    assert len({root.key for root in plan.queries.values()}) == len(set(plan.queries.values())) == made
