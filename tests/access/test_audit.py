"""The audit trail: every request leaves one record, and none holds a secret."""

from __future__ import annotations

import hmac
import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import ADMIN, PASSWORD, System
from hypothesis import given
from hypothesis import strategies as st

from access.trails import OTHER_KEY, OTHER_SEAL, Record, added, said, session_of, trail
from headgate.access import tables
from headgate.access.audit import MAX_FIELD, START, Event, sealed_text
from headgate.access.permissions import Permission
from headgate.cql.names import Target
from headgate.errors import AccessDenied, AuthenticationFailed, HeadgateError, Position
from headgate.labels import parse_level

# What is sealed

TEXTS = st.text() | st.sampled_from(['say "ah"', "back\\slash", "\x00", "\ud800", "é", "\U0001f512"])
ANYTHING = TEXTS | st.none() | st.integers() | st.floats() | st.binary() | st.booleans()


def slowly(previous: object, number: int, time: object, event: Event) -> str:
    """JSON with sorted keys, of whatever stands there."""
    fields = dict(zip(Event._fields, event, strict=True))
    return json.dumps([previous, number, time, fields], sort_keys=True, ensure_ascii=True, default=repr)


@given(TEXTS, st.integers(0), st.floats(), st.builds(Event, *[TEXTS] * 5, st.booleans(), TEXTS))
def test_a_record_is_sealed_as_json(previous: str, number: int, time: float, event: Event) -> None:
    """The form of all records there are: one that is written otherwise would look altered."""
    assert sealed_text(previous, number, time, event) == slowly(previous, number, time, event)


@given(ANYTHING, st.integers(0), ANYTHING, st.builds(Event, *[ANYTHING] * 7))
def test_what_a_damaged_store_holds_has_a_form_too(previous: Any, number: int, time: Any, event: Event) -> None:
    assert sealed_text(previous, number, time, event) == slowly(previous, number, time, event)


def test_a_seal_is_the_plain_hmac_of_that_text() -> None:
    """Computed here with another library: trails that were written before stay valid."""
    event = Event("joe", "0123456789ab", "U", "CREATE SCHEMA", 'schema joe."a b"', True, "user joe owns it")
    key = OTHER_KEY
    for purpose, text, seal in (
        ("record", slowly(START, 7, 1.5, event), OTHER_SEAL.record(START, 7, 1.5, event)),
        ("head", f"7:{START}", OTHER_SEAL.head(7, START).seal),
    ):
        assert hmac.digest(key, f"{purpose}\n{text}".encode(), "sha256").hex() == seal


# Every request leaves one record


GRANTED = [
    ("CREATE LEVEL C", "CREATE LEVEL", "level C"),
    ("ALTER LEVEL C ABOVE U", "ALTER LEVEL", "level C"),
    ("CREATE COMPARTMENT NATO", "CREATE COMPARTMENT", "compartment NATO"),
    ("CREATE ROLE nurse", "CREATE ROLE", "role nurse"),
    ('CREATE ROLE "head nurse"', "CREATE ROLE", 'role "head nurse"'),
    ("ALTER ROLE nurse MAX QUERIES 3", "ALTER ROLE", "role nurse"),
    ("ALTER ROLE nurse MAX STATE 3 MAX RESULTS 7", "ALTER ROLE", "role nurse"),
    ('GRANT ROLE nurse TO ROLE "head nurse"', 'GRANT ROLES TO "head nurse"', "role nurse"),
    ('CREATE SEPARATION duty DYNAMIC OF nurse, "head nurse"', "CREATE SEPARATION", "separation duty"),
    ("DROP SEPARATION duty", "DROP SEPARATION", "separation duty"),
    ("CREATE USER al PASSWORD 'correct horse'", "CREATE USER", "user al"),
    ("ALTER USER al LOCK UNLOCK PASSWORD 'battery staple'", "ALTER USER LOCK, UNLOCK, PASSWORD", "user al"),
    ("GRANT ROLE nurse TO USER al", "GRANT ROLES TO al", "role nurse"),
    ("REVOKE ROLE nurse FROM USER al", "REVOKE ROLES FROM al", "role nurse"),
    ("CREATE SCHEMA v (n INT)", "CREATE SCHEMA", "schema root.v"),
    ("ALTER SCHEMA v ADD COLUMN m INT", "ALTER SCHEMA", "schema root.v"),
    ("CREATE STREAM in1 SCHEMA v", "CREATE STREAM", "stream root.in1"),
    ("ALTER STREAM in1 LABEL 'nurse'", "ALTER STREAM", "stream root.in1"),
    (
        "GRANT VIEW OBJECT, SUBSCRIBE ON STREAM in1 TO nurse",
        "GRANT VIEW OBJECT, SUBSCRIBE TO nurse",
        "stream root.in1",
    ),
    ("REVOKE SUBSCRIBE ON STREAM in1 FROM nurse", "REVOKE SUBSCRIBE FROM nurse", "stream root.in1"),
    ("GRANT USE ON OPERATOR join TO nurse WITH (streams = 2)", "GRANT USE TO nurse", "operator join"),
    ("CREATE QUERY q READING in1 USING select OUTPUT out1", "CREATE QUERY", "query root.q"),
    ("START QUERY q", "START QUERY", "query root.q"),
    ("STOP QUERY q", "STOP QUERY", "query root.q"),
    ("DROP QUERY q", "DROP OBJECT", "query root.q"),
    ("SET SYSTEM idle_minutes = 20", "SET SYSTEM", "system parameter idle_minutes"),
    ("SHOW GRANTS ON STREAM in1", "SHOW GRANTS", "stream root.in1"),
    ("SHOW ROLES", "SHOW ROLES", ""),
    ("SHOW AUDIT LIMIT 3", "SHOW AUDIT", ""),
    ("DROP USER al", "DROP USER", "user al"),
    ("DROP ROLE nurse", "DROP ROLE", "role nurse"),
    ("DROP LEVEL C", "DROP LEVEL", "level C"),
]


def test_every_granted_statement_leaves_exactly_one_record(system: System) -> None:
    session = session_of(system, system.root)
    for statement, action, about in GRANTED:
        system.clock.advance(1.5)
        with added(system) as found:
            system.run(statement)
        assert [said(record) for record in found] == [(ADMIN, action, about, True)], statement
        assert (found[0]["time"], found[0]["session"], found[0]["level"]) == (system.clock.now(), session, "U")
    assert system.headgate.verify_audit() == []


def test_a_grant_leaves_one_record_per_receiver(system: System) -> None:
    """So that nobody disappears in a long list."""
    system.run("CREATE ROLE a; CREATE ROLE b; CREATE USER joe; CREATE USER al; CREATE STREAM s (n INT)")
    with added(system) as found:
        system.run("GRANT ROLE a, b TO USER joe, al; GRANT VIEW OBJECT, SUBSCRIBE ON STREAM s TO a, b")
    assert [said(record)[1:] for record in found] == [
        ("GRANT ROLES TO joe", "role a", True),
        ("GRANT ROLES TO al", "role a", True),
        ("GRANT ROLES TO joe", "role b", True),
        ("GRANT ROLES TO al", "role b", True),
        ("GRANT VIEW OBJECT, SUBSCRIBE TO a", "stream root.s", True),
        ("GRANT VIEW OBJECT, SUBSCRIBE TO b", "stream root.s", True),
    ]
    with added(system) as found, pytest.raises(HeadgateError, match="does not have role"):
        system.run("REVOKE ROLE a FROM USER joe, root")
    assert [said(record)[1:] for record in found] == [
        ("REVOKE ROLES FROM joe", "role a", False),
        ("REVOKE ROLES FROM root", "role a", False),
    ]


def test_a_granted_record_says_by_which_right(system: System) -> None:
    with added(system) as found:
        system.run("CREATE ROLE nurse; CREATE STREAM in1 (n INT); ALTER STREAM in1 SEMANTICS WEAK")
    assert [record["reason"] for record in found] == [
        "role ADMIN holds CHANGE SYSTEM (granted by the system)",
        "role ADMIN holds ADD (granted by the system)",
        "owner",
    ]


NOT_ADMIN = "CHANGE SYSTEM on system is denied: not the owner, and no active role holds CHANGE SYSTEM"
NO_ADD = "ADD on system is denied: not the owner, and no active role holds ADD"
DENIED = [
    (
        "CREATE USER x",
        "CREATE USER",
        NOT_ADMIN,
    ),
    (
        "DROP USER root",
        "DROP USER",
        NOT_ADMIN,
    ),
    (
        "CREATE STREAM s (n INT)",
        "CREATE STREAM",
        NO_ADD,
    ),
    ("ALTER STREAM seen DROP LABEL", "ALTER STREAM", "only its owner may change stream root.seen"),
    ("DROP STREAM hidden", "DROP OBJECT", "there is no stream hidden"),
    ("DROP STREAM never", "DROP OBJECT", "there is no stream never"),
    ("GRANT SUBSCRIBE ON STREAM root.hidden TO nurse", "GRANT SUBSCRIBE", "there is no stream root.hidden"),
    ("START QUERY q", "START QUERY", "there is no query q"),
    (
        "GRANT ROLE ADMIN TO USER joe",
        "GRANT ROLES TO joe",
        NOT_ADMIN,
    ),
    ("SET ROLE ADMIN", "SET ROLES", "role ADMIN is not one of yours"),
    (
        "SET SYSTEM idle_minutes = 1",
        "SET SYSTEM",
        NOT_ADMIN,
    ),
]


def test_every_denied_statement_leaves_exactly_one_record(system: System) -> None:
    joe = system.new_user("joe", "nurse")
    session = session_of(system, joe)
    system.run("CREATE STREAM seen (n INT); CREATE STREAM hidden (n INT); GRANT VIEW OBJECT ON STREAM seen TO nurse")
    for statement, action, reason in DENIED:
        with added(system) as found, pytest.raises(HeadgateError, match=r"."):
            system.run(statement, joe)
        (record,) = found
        assert (record["user"], record["session"], record["level"]) == ("joe", session, "U")
        assert (record["action"], bool(record["granted"]), record["reason"]) == (action, False, reason), statement
    assert system.headgate.verify_audit() == []


def test_what_is_hidden_and_what_never_was_leave_the_same_record_but_for_the_name(system: System) -> None:
    joe = system.new_user("joe")
    system.run("CREATE STREAM hidden (n INT)")
    records = []
    for name in ("hidden", "nevers"):
        with added(system) as found, pytest.raises(HeadgateError):
            system.run(f"DROP STREAM root.{name}", joe)
        records.append({k: str(v).replace(name, "...") for k, v in found[0].items() if k not in ("number", "mac")})
    assert records[0] == records[1]


def test_a_script_leaves_a_record_for_each_statement_that_was_tried(system: System) -> None:
    with added(system) as found:
        system.run("CREATE ROLE a; CREATE ROLE b; SHOW ROLES")
    assert [said(record)[1:] for record in found] == [
        ("CREATE ROLE", "role a", True),
        ("CREATE ROLE", "role b", True),
        ("SHOW ROLES", "", True),
    ]
    with added(system) as found, pytest.raises(HeadgateError):
        system.run("CREATE ROLE c; CREATE ROLE b; CREATE ROLE d")
    assert [(record["object"], bool(record["granted"]), record["reason"]) for record in found] == [
        ("role c", False, "undone: a later statement failed"),
        ("role b", False, "there is already a role `b`"),
    ]


def test_a_refusal_at_the_end_of_a_script_belongs_to_its_last_statement(system: System) -> None:
    with added(system) as found, pytest.raises(HeadgateError, match="nobody would be left"):
        system.run("CREATE ROLE a; ALTER USER root LOCK")
    assert [said(record)[1:] for record in found] == [
        ("CREATE ROLE", "role a", False),
        ("ALTER USER LOCK", "user root", False),
    ]


def test_a_session_that_a_change_ends_leaves_a_record(system: System) -> None:
    joe = system.new_user("joe")
    session = session_of(system, joe)
    with added(system) as found:
        system.run("ALTER USER joe LOCK")
    ended = {(*said(record), record["session"]) for record in found}
    cause = (ADMIN, "ALTER USER LOCK", "user joe", True, session_of(system, system.root))
    assert ended == {cause, ("joe", "END SESSION", "session", True, session)}
    assert len(found) == 2


def test_the_first_record_is_the_first_act(system: System) -> None:
    first = trail(system)[0]
    assert (first["number"], *said(first)) == (1, ADMIN, "INITIALISE", "system", True)


Act = Callable[[System], object]
LOGINS: list[tuple[str, Act, str, bool, str]] = [
    ("right", lambda s: s.headgate.login("joe", PASSWORD), "joe", True, ""),
    ("wrong password", lambda s: s.headgate.login("joe", "wrong password"), "joe", False, "wrong password, 1 in a row"),
    ("no such user", lambda s: s.headgate.login("nobody", PASSWORD), "nobody", False, "no such user"),
    ("locked", lambda s: s.headgate.login("al", PASSWORD), "al", False, "the account is locked"),
    (
        "another's role",
        lambda s: s.headgate.login("joe", PASSWORD, roles=frozenset({"ADMIN"})),
        "joe",
        False,
        "role ADMIN is not one of yours",
    ),
    (
        "too high",
        lambda s: s.headgate.login("joe", PASSWORD, level=parse_level("S")),
        "joe",
        False,
        "level S is not dominated by your clearance U",
    ),
]


def test_every_login_leaves_exactly_one_record(system: System) -> None:
    system.run("CREATE LEVEL S")
    system.new_user("joe", "nurse")
    system.new_user("al")
    system.run("ALTER USER al LOCK")
    for what, act, user, granted, reason in LOGINS:
        with added(system) as found:
            try:
                act(system)
            except (AuthenticationFailed, AccessDenied):
                assert not granted, what
            else:
                assert granted, what
        assert [(*said(record), record["reason"]) for record in found] == [(user, "LOGIN", "session", granted, reason)]


STRANGE = ["", "\x00", "\ud800", "a\nb", "x" * 100_000, "'; DROP TABLE audit; --", "é", "\u202eroot"]


def _refused(system: System, user: str, password: str) -> list[Record]:
    with added(system) as found, pytest.raises(AuthenticationFailed, match=r"^login refused \(after several wrong"):
        system.headgate.login(user, password)
    return found


def test_a_login_under_any_name_is_refused_alike_and_recorded(system: System) -> None:
    for name in STRANGE:
        (record,) = _refused(system, name, "some password")
        assert said(record)[1:] == ("LOGIN", "session", False)
        assert str(record["user"]).isprintable() and len(str(record["user"])) <= MAX_FIELD
    assert system.headgate.verify_audit() == []


def test_a_login_with_any_password_is_refused_alike_and_recorded(system: System) -> None:
    for password in STRANGE[:4]:
        for user in (ADMIN, "nobody"):
            (record,) = _refused(system, user, password)
            assert said(record) == (user, "LOGIN", "session", False)


def test_a_logout_leaves_exactly_one_record(system: System) -> None:
    joe = system.new_user("joe")
    session = session_of(system, joe)
    with added(system) as found:
        system.headgate.logout(joe)
    assert [said(record) for record in found] == [("joe", "LOGOUT", "session", True)]
    assert found[0]["session"] == session


def _why(system: System, token: str, user: str) -> object:
    target = Target("STREAM", "in1", None, Position(0, 1, 1))
    return system.headgate.why(token, user, Permission.SUBSCRIBE, target)


def test_an_explanation_leaves_exactly_one_record(system: System) -> None:
    joe = system.new_user("joe", "nurse")
    system.new_user("al")
    system.run("CREATE STREAM in1 (n INT); GRANT VIEW OBJECT ON STREAM in1 TO nurse")
    with added(system) as found:
        _why(system, joe, "joe")
    assert [said(record) for record in found] == [("joe", "EXPLAIN SUBSCRIBE FOR USER joe", "stream root.in1", True)]
    with added(system) as found, pytest.raises(AccessDenied):
        _why(system, joe, "al")
    assert [said(record) for record in found] == [("joe", "EXPLAIN SUBSCRIBE FOR USER al", "stream root.in1", False)]


WITHOUT_A_SESSION: dict[str, Act] = {
    "statement": lambda s: s.headgate.execute("no such token", "SHOW ROLES"),
    "strange token": lambda s: s.headgate.execute("\ud800", "SHOW ROLES"),
    "logout": lambda s: s.headgate.logout("no such token"),
    "explanation": lambda s: _why(s, "no such token", "root"),
}


def test_a_request_without_a_session_leaves_exactly_one_record(system: System) -> None:
    left: dict[str, list[tuple[str, ...]]] = {}
    for what, act in WITHOUT_A_SESSION.items():
        with added(system) as found, pytest.raises((AuthenticationFailed, UnicodeError)):
            act(system)
        left[what] = [(str(x["user"]), str(x["granted"] == 1), str(x["reason"])) for x in found]
    assert left == {what: [("", "False", "no valid session")] for what in WITHOUT_A_SESSION}


def test_a_script_that_cannot_be_read_leaves_exactly_one_record(system: System) -> None:
    with added(system) as found, pytest.raises(HeadgateError, match="expected"):
        system.run("CREATE ROLE a; CREATE NONSENSE 'secret'")
    (record,) = found
    assert (record["user"], bool(record["granted"])) == (ADMIN, False)
    assert "secret" not in str(record)


# No secrets


def test_no_password_and_no_token_is_written_anywhere(
    store_url: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    for name in ("sqlalchemy.engine", "sqlalchemy.pool", "alembic", "psycopg"):
        caplog.set_level(logging.DEBUG, logger=name)
    secrets = [f"Tr0ub4dor-{number}" for number in range(8)]
    system = System(store_url)
    try:
        system.initialise()
        tokens = [system.root]
        system.run(f"CREATE USER joe PASSWORD '{secrets[0]}'; ALTER USER joe PASSWORD '{secrets[1]}'")
        tokens.append(system.headgate.login("joe", secrets[1]))
        for act in (
            lambda: system.headgate.login("joe", secrets[2]),
            lambda: system.headgate.login("nobody", secrets[3]),
            lambda: system.run(f"CREATE USER al PASSWORD '{secrets[4]}'; DROP ROLE nothing"),
            lambda: system.run(f"CREATE USER al PASSWORD '{secrets[5]}'", tokens[1]),
            lambda: system.run(f"CREATE USER al PASSWORD '{secrets[6]}' NONSENSE"),
            lambda: system.run(f"ALTER USER joe ADD KEY '{secrets[7]}'"),
            lambda: system.run("SHOW ROLES", secrets[7]),
        ):
            with pytest.raises(HeadgateError) as caught:
                act()
            assert not any(secret in str(caught.value) for secret in secrets)
        system.headgate.logout(tokens[1])
        written = [str(system.sql(f'SELECT * FROM "{name}"')) for name in tables.metadata.tables]
    finally:
        system.close()
    written += [path.read_bytes().decode("latin-1") for path in tmp_path.iterdir() if path.is_file()]
    written += [record.getMessage() for record in caplog.records]
    assert len(caplog.records) > 10, "the logs were listened to"
    for secret in [*secrets, *tokens, PASSWORD]:
        assert not any(secret in text for text in written), secret
