"""Continuous queries in the catalog: who may create, start, subscribe; what is stored; what stays hidden."""

from __future__ import annotations

import json

import pytest
from conftest import PASSWORD, System

from headgate.access.definitions import write_definition
from headgate.access.queries import stored_query
from headgate.access.rows import Object
from headgate.errors import AccessDenied, Conflict, HeadgateError, NotFound, TextError
from headgate.plan.expressions import Type
from headgate.plan.lowering import lower

WARD = """
CREATE STREAM vitals (patient INT, bp INT, at TIMESTAMP, policy STRING)
    EVENT TIME at LATENESS 5 SECONDS SKEW 1 MINUTE ROLES FROM policy;
CREATE STREAM beds (patient INT, ward STRING);
"""


def named(system: System, kind: str, name: str) -> Object:
    return next(x for x in system.headgate.monitor.state.objects if x.kind == kind and x.name == name)


def definition(system: System, kind: str, name: str) -> dict[str, object]:
    found: dict[str, object] = json.loads(write_definition(named(system, kind, name).definition))
    return found


def refused(system: System, script: str, token: str = "") -> HeadgateError:
    with pytest.raises(HeadgateError) as caught:
        system.run(script, token)
    return caught.value


def at(text: str, word: str) -> int:
    return text.index(word)


@pytest.fixture
def ward(sqlite_system: System) -> System:
    sqlite_system.run(WARD)
    return sqlite_system


@pytest.fixture
def ann(ward: System) -> str:
    """A doctor who may read vitals and add queries."""
    token = ward.new_user("ann", "doctor")
    ward.run("GRANT ADD ON SYSTEM TO doctor; GRANT VIEW OBJECT, READ TUPLE ON STREAM vitals TO doctor")
    return token


def test_a_stream_keeps_what_its_clauses_say(ward: System) -> None:
    kept = definition(ward, "STREAM", "vitals")
    assert kept["event_time"] == "at"
    assert kept["lateness"] == 5000
    assert kept["skew"] == 60_000
    assert kept["labels"] == {"ROLES": "policy"}
    assert "cumulative" not in kept


@pytest.mark.parametrize(
    ("script", "place", "message"),
    [
        ("CREATE STREAM s (a INT) EVENT TIME b", "b", "there is no column `b`"),
        ("CREATE STREAM s (a INT) EVENT TIME a", "a", "the event time is a TIMESTAMP, column `a` is INT"),
        ("CREATE STREAM s (a INT) ROLES FROM a", "a", "a label is a STRING, column `a` is INT"),
        (
            "CREATE STREAM s (a TIMESTAMP LABEL 'x') EVENT TIME a",
            "a",
            "column `a` has a label, so it cannot hold the event time",
        ),
        (
            "CREATE STREAM s (a INT) LATENESS 1 SECOND LATENESS 1 SECOND",
            "LATENESS 1 SECOND",
            "`LATENESS` is given twice",
        ),
    ],
)
def test_a_stream_that_cannot_be(sqlite_system: System, script: str, place: str, message: str) -> None:
    error = refused(sqlite_system, script)
    assert error.message == message
    assert error.position is not None
    assert script[error.position.offset :].startswith(place)


def test_reading_files_needs_the_right_to_change_the_system(ward: System, ann: str) -> None:
    """The service reads with its own rights: SOURCE would otherwise show any file of the machine to whoever asks."""
    script = "CREATE STREAM loot (line STRING) SOURCE text (path = '/etc/shadow')"
    assert isinstance(refused(ward, script, ann), AccessDenied)
    ward.run(script)
    assert definition(ward, "STREAM", "loot")["input"] == {"format": "text", "options": {"path": "/etc/shadow"}}


def test_results_are_a_stream_that_can_be_queried_again(ward: System, ann: str) -> None:
    ward.run("CREATE QUERY high AS SELECT patient, bp / 10 AS tenth FROM vitals WHERE bp > 140", ann)
    kept = definition(ward, "STREAM", "high")
    assert kept["columns"] == [{"name": "patient", "type": "INT"}, {"name": "tenth", "type": "DOUBLE"}]
    assert "lateness" not in kept  # its watermark is that of the view that makes it
    ward.run("CREATE QUERY worst OUTPUT top AS SELECT patient, MAX(tenth) FROM high [ROWS 10] GROUP BY patient", ann)
    kept = definition(ward, "STREAM", "top")
    assert kept["columns"] == [{"name": "patient", "type": "INT"}, {"name": "max_tenth", "type": "DOUBLE"}]
    assert "lateness" not in kept


def test_a_query_stays_what_it_was_when_names_change_hands(ward: System) -> None:
    """A stored query is bound to its streams, not to what is called like them later."""
    ward.run("CREATE QUERY q AS SELECT ward FROM beds")
    query = named(ward, "QUERY", "q")
    before = stored_query(query, ward.headgate.monitor.state.objects.get)
    ward.new_user("eve", "clerk")
    eve = ward.login("eve")
    ward.run("GRANT ADD ON SYSTEM TO clerk")
    ward.run("CREATE STREAM beds (ward INT); GRANT VIEW OBJECT, READ TUPLE ON STREAM beds TO PUBLIC", eve)
    after = stored_query(query, ward.headgate.monitor.state.objects.get)
    assert before is not None and before == after
    assert before.columns == (("ward", Type.STRING),)
    assert lower(before).key == lower(after).key if after else False


def test_a_query_that_lost_its_stream_has_no_plan(ward: System) -> None:
    ward.run("CREATE QUERY q AS SELECT ward FROM beds; DROP STREAM beds")
    assert stored_query(named(ward, "QUERY", "q"), ward.headgate.monitor.state.objects.get) is None
    assert isinstance(refused(ward, "START QUERY q"), Conflict)


# Rights ---------------------------------------------------------------------------------------------------------------


def test_a_stream_one_may_not_see_is_unknown(ward: System, ann: str) -> None:
    hidden = refused(ward, "CREATE QUERY q AS SELECT ward FROM beds", ann)
    missing = refused(ward, "CREATE QUERY q AS SELECT ward FROM bids", ann)
    assert isinstance(hidden, NotFound)
    assert hidden.message.replace("beds", "bids") == missing.message
    assert hidden.position == missing.position
    assert hidden.position is not None and hidden.position.offset == len("CREATE QUERY q AS SELECT ward FROM ")


def test_columns_are_not_told_to_those_who_may_only_see_the_stream(ward: System, ann: str) -> None:
    ward.run("GRANT VIEW OBJECT ON STREAM beds TO doctor")
    error = refused(ward, "CREATE QUERY q AS SELECT nonsense FROM beds", ann)
    assert isinstance(error, AccessDenied)
    assert "ward" not in error.message + error.hint


def test_roles_of_a_query_are_active_ones(ward: System, ann: str) -> None:
    script = "CREATE QUERY q AS nurse SELECT bp FROM vitals"
    error = refused(ward, script, ann)
    assert error.message == "role nurse is not active"
    assert error.position is not None and error.position.offset == at(script, "nurse")
    ward.run("CREATE QUERY q AS doctor SELECT bp FROM vitals", ann)
    assert definition(ward, "QUERY", "q")["roles"] == ["doctor"]


def test_a_query_as_a_role_has_only_the_rights_of_that_role(ward: System) -> None:
    both = ward.new_user("bob", "doctor", "nurse")
    ward.run("GRANT ADD ON SYSTEM TO doctor; GRANT VIEW OBJECT, READ TUPLE ON STREAM vitals TO doctor")
    assert isinstance(refused(ward, "CREATE QUERY q AS nurse SELECT bp FROM vitals", both), AccessDenied)
    ward.run("CREATE QUERY q AS SELECT bp FROM vitals", both)
    assert definition(ward, "QUERY", "q")["roles"] == ["doctor", "nurse"]


def test_operators_are_checked_with_their_sizes_where_they_stand(ward: System, ann: str) -> None:
    ward.run(
        "REVOKE USE ON OPERATOR window FROM PUBLIC; GRANT USE ON OPERATOR window TO doctor WITH (rows = 100);"
        "REVOKE USE ON OPERATOR join FROM PUBLIC"
    )
    create = "CREATE QUERY q AS SELECT AVG(bp) FROM vitals"
    for window in ("[ROWS 101]", "[RANGE 5 SECONDS]", "[UNBOUNDED]", "[PARTITIONED BY patient ROWS 101]", ""):
        script = f"{create} {window}"
        error = refused(ward, script, ann)
        assert isinstance(error, AccessDenied)
        assert error.message.endswith("the grant to role doctor allows rows of at most 100")
        assert error.position is not None
        assert error.position.offset == (at(script, "[") if window else at(script, "vitals"))
    ward.run(f"{create} [ROWS 100]", ann)
    assert isinstance(refused(ward, "CREATE QUERY j AS SELECT a.bp FROM vitals a, vitals b", ann), AccessDenied)


def test_a_window_is_limited_by_rows_or_by_time(ward: System, ann: str) -> None:
    ward.run(
        "REVOKE USE ON OPERATOR window FROM PUBLIC;"
        "GRANT USE ON OPERATOR window TO doctor WITH (rows = 100, seconds = 60)"
    )
    create = "CREATE QUERY {} AS SELECT AVG(bp) FROM vitals {}"
    ward.run(create.format("a", "[ROWS 100]"), ann)
    ward.run(create.format("b", "[RANGE 1 MINUTE]"), ann)
    for window in ("[ROWS 101]", "[RANGE 61 SECONDS]", "[UNBOUNDED]", ""):
        assert isinstance(refused(ward, create.format("c", window), ann), AccessDenied)


def test_an_operator_taken_away_stops_the_next_start(ward: System, ann: str) -> None:
    ward.run("CREATE QUERY q AS SELECT AVG(bp) FROM vitals [ROWS 5]", ann)
    ward.run("REVOKE USE ON OPERATOR aggregate FROM PUBLIC")
    assert isinstance(refused(ward, "START QUERY q", ann), AccessDenied)


def test_cumulative_is_for_the_owners_to_allow(ward: System, ann: str) -> None:
    script = "CREATE QUERY q CUMULATIVE AS SELECT AVG(bp) FROM vitals [ROWS 5]"
    assert isinstance(refused(ward, script, ann), AccessDenied)
    assert isinstance(refused(ward, "ALTER STREAM vitals ALLOW CUMULATIVE", ann), AccessDenied)
    ward.run("ALTER STREAM vitals ALLOW CUMULATIVE")
    ward.run(script, ann)
    assert definition(ward, "QUERY", "q")["cumulative"] is True
    ward.run("ALTER STREAM vitals FORBID CUMULATIVE")
    error = refused(ward, "START QUERY q", ann)
    assert isinstance(error, AccessDenied)
    assert "no longer allows cumulative queries" in error.message


def test_errors_in_a_query_have_their_place_in_the_script(ward: System) -> None:
    script = "CREATE ROLE x;\nCREATE QUERY q AS\n  SELECT bpp FROM vitals"
    error = refused(ward, script)
    assert isinstance(error, TextError)
    assert (error.message, error.hint) == ("there is no column `bpp`", "did you mean bp?")
    assert error.position is not None and (error.position.line, error.position.column) == (3, 10)
    assert ("x",) not in [row[:1] for row in ward.rows("SHOW ROLES")]  # all of a script or nothing


# Subscriptions ------------------------------------------------------------------------------------------------------


def test_subscribing_needs_the_right_and_lasts_beyond_the_session(system: System) -> None:
    system.run(WARD)
    ann = system.new_user("ann", "doctor")
    system.run("CREATE QUERY q AS SELECT bp FROM vitals; GRANT VIEW OBJECT ON STREAM q TO doctor")
    assert isinstance(refused(system, "SUBSCRIBE TO q", ann), AccessDenied)
    system.run("GRANT SUBSCRIBE ON STREAM q TO doctor")
    lacks = "; it is suspended: you lack READ TUPLE on it"
    assert system.run("SUBSCRIBE TO q", ann)[0].text == f"subscribed to stream root.q{lacks}"
    assert system.run("SUBSCRIBE TO q", ann)[0].text == f"already subscribed to stream root.q{lacks}"
    assert system.rows("SHOW SUBSCRIPTIONS", ann) == (("q", "root", "U", "doctor", "suspended"),)
    system.run("GRANT READ TUPLE ON STREAM q TO doctor")
    assert system.rows("SHOW SUBSCRIPTIONS", ann) == (("q", "root", "U", "doctor", "stopped"),)
    system.run("START QUERY q")
    assert system.rows("SHOW SUBSCRIPTIONS", ann) == (("q", "root", "U", "doctor", "suspended"),)
    system.run("GRANT READ TUPLE ON STREAM vitals TO doctor")
    assert system.rows("SHOW SUBSCRIPTIONS", ann) == (("q", "root", "U", "doctor", ""),)
    assert system.rows("SHOW SUBSCRIPTIONS") == ()
    system.headgate.logout(ann)
    ann = system.reopen().login("ann", PASSWORD)
    assert system.run("SUBSCRIBE TO q", ann)[0].text == "already subscribed to stream root.q"
    assert system.rows("SHOW SUBSCRIPTIONS", ann) == (("q", "root", "U", "doctor", ""),)
    assert len(system.sql("SELECT * FROM subscriptions")) == 1
    assert system.run("UNSUBSCRIBE FROM q", ann)[0].text == "unsubscribed from stream root.q"
    assert system.sql("SELECT * FROM subscriptions") == []


def test_a_subscription_goes_with_its_stream(system: System) -> None:
    system.run(WARD + "CREATE QUERY q AS SELECT bp FROM vitals; SUBSCRIBE TO q; SUBSCRIBE TO vitals")
    system.run("UNSUBSCRIBE FROM vitals")
    assert isinstance(refused(system, "UNSUBSCRIBE FROM vitals"), Conflict)
    assert system.rows("SHOW SUBSCRIPTIONS") == (("q", "root", "U", "ADMIN", "stopped"),)
    system.run("DROP QUERY q")
    assert system.rows("SHOW SUBSCRIPTIONS") == ()


def test_a_stream_that_may_no_longer_be_seen_is_no_longer_listed(ward: System) -> None:
    ann = ward.new_user("ann", "doctor")
    ward.run("GRANT VIEW OBJECT, SUBSCRIBE ON STREAM beds TO doctor")
    ward.run("SUBSCRIBE TO beds", ann)
    ward.run("REVOKE VIEW OBJECT ON STREAM beds FROM doctor")
    assert ward.rows("SHOW SUBSCRIPTIONS", ann) == ()
