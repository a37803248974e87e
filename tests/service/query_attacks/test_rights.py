"""No query reads what its owner may not: not by consent of one's own making, for a helper, an heir or a subscriber."""

from __future__ import annotations

import pytest
from conftest import System

from headgate.errors import AccessDenied, Conflict

from .wards import explained, planned, refused


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
    return len(planned(ward))


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
