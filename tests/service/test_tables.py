"""Tables in the catalog: they are created and granted like streams, and nothing of them is told to others."""

from __future__ import annotations

import pytest
from conftest import System

from headgate.errors import AccessDenied, Conflict, HeadgateError, NotFound

SCRIPT = """
CREATE STREAM Vitals (sid INT, bp INT);
CREATE TABLE Wards (sid INT, ward STRING LABEL 'doctor', who STRING) LABEL 'staff' ROLES FROM who
  SOURCE csv (path = '/data/wards.csv');
"""
JOINED = "SELECT V.sid, ward FROM Vitals V, Wards W WHERE V.sid = W.sid AND W.ward <> 'east'"


@pytest.fixture
def ward(sqlite_system: System) -> System:
    assert [x.text for x in sqlite_system.run(SCRIPT)] == [
        "stream root.Vitals created",
        "table root.Wards created; there is no role called doctor or staff yet, so nobody has it",
    ]
    return sqlite_system


def refused(system: System, script: str, token: str = "") -> HeadgateError:
    with pytest.raises(HeadgateError) as caught:
        system.run(script, token)
    return caught.value


def test_a_table_is_called_one_and_dropped_like_a_stream(ward: System) -> None:
    assert [row[:2] for row in ward.rows("SHOW CATALOG")] == [("stream", "Vitals"), ("table", "Wards")]
    assert ward.run("DROP STREAM Wards")[-1].text == "table root.Wards dropped"


def test_a_table_needs_the_right_to_read_with_the_rights_of_the_service(ward: System) -> None:
    """A source is read by the service, which can read more than its users: a table of the password file, say."""
    ann = ward.new_user("ann", "clerk")
    ward.run("GRANT ADD ON SYSTEM TO clerk")
    error = refused(ward, "CREATE TABLE t (line STRING) SOURCE text (path = '/etc/passwd')", ann)
    assert isinstance(error, AccessDenied)
    assert "CHANGE SYSTEM" in error.message


def test_a_table_alone_cannot_be_subscribed_to(ward: System) -> None:
    error = refused(ward, "SUBSCRIBE TO Wards")
    assert isinstance(error, Conflict)
    assert (error.message, error.hint) == (
        "cannot subscribe to table root.Wards: a table has no changes",
        "query it beside a stream, and subscribe to the query",
    )


def test_a_table_that_one_may_not_see_does_not_exist(ward: System) -> None:
    ann = ward.new_user("ann", "clerk")
    ward.run("GRANT ADD ON SYSTEM TO clerk; GRANT VIEW OBJECT, READ TUPLE ON STREAM Vitals TO clerk")
    hidden = [refused(ward, x, ann) for x in ("SUBSCRIBE TO root.Wards", f"EXPLAIN {JOINED}")]
    missing = [
        refused(ward, x.replace("Wards", "Words"), ann) for x in ("SUBSCRIBE TO root.Wards", f"EXPLAIN {JOINED}")
    ]
    assert all(isinstance(x, NotFound) for x in hidden)
    assert [x.message.replace("Wards", "Words") for x in hidden] == [x.message for x in missing]


def test_reading_a_table_needs_the_right_to_read_its_tuples(ward: System) -> None:
    ann = ward.new_user("ann", "clerk")
    ward.run("GRANT ADD ON SYSTEM TO clerk; GRANT VIEW OBJECT, READ TUPLE ON STREAM Vitals TO clerk")
    ward.run("GRANT USE ON OPERATOR project TO clerk; GRANT USE ON OPERATOR select TO clerk")
    ward.run("GRANT USE ON OPERATOR join TO clerk; GRANT USE ON OPERATOR window TO clerk WITH (seconds = 1)")
    ward.run("GRANT VIEW OBJECT ON STREAM Wards TO clerk")
    query = f"CREATE QUERY q AS {JOINED}".replace("Vitals", "root.Vitals").replace("Wards", "root.Wards")
    assert isinstance(refused(ward, query, ann), AccessDenied)
    ward.run("GRANT READ TUPLE ON STREAM Wards TO clerk")
    ward.run(query, ann)  # a table has no window, and the stream beside it keeps nothing: no limit is exceeded


def test_cumulative_queries_need_the_consent_of_the_owner_of_a_table(ward: System) -> None:
    ward.run("ALTER STREAM Vitals ALLOW CUMULATIVE")
    error = refused(ward, f"CREATE QUERY q CUMULATIVE AS {JOINED}")
    assert error.message == "the owner of table root.Wards has not allowed cumulative queries"
    ward.run(f"ALTER STREAM Wards ALLOW CUMULATIVE; CREATE QUERY q CUMULATIVE AS {JOINED}")


def test_queries_that_join_the_same_table_share_that(ward: System) -> None:
    ward.run(f"CREATE QUERY q AS {JOINED}; START QUERY q")
    other = JOINED.replace("V.sid, ward", "V.bp")
    shared = "WINDOW NOW, SELECT ward <> 'east', JOIN root.Vitals.sid = root.Wards.sid"
    assert ward.run(f"EXPLAIN {other}")[-1].text.splitlines() == [
        "this query: exact, level U",
        "",
        "  ISTREAM",
        "  └─ PROJECT root.Vitals.bp AS bp",
        "     └─ JOIN root.Vitals.sid = root.Wards.sid   -- shared with root.q",
        "        ├─ WINDOW NOW   -- shared with root.q",
        "        │  └─ SOURCE root.Vitals",
        "        └─ SELECT ward <> 'east'   -- shared with root.q",
        "           └─ TABLE root.Wards",
        "",
        "shared with",
        f"  root.q: strict partial (Definition 7): {shared}",
        "",
        "each result carries",
        "  of root.Vitals: what its tuples bring",
        "  of root.Wards: the policy `staff`, the roles in column who, `doctor` for column ward",
        "  level U, the level of the query",
    ]
