"""The audit trail: every request leaves one record, no damage to a record goes unnoticed, and nobody reads too much."""

from __future__ import annotations

import hmac
import json
import logging
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from conftest import ADMIN, PASSWORD, System
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy.exc import DBAPIError

from headgate.access import tables
from headgate.access.audit import MAX_FIELD, START, Event, Seal, sealed_text
from headgate.access.permissions import Permission
from headgate.cql.statements import Target
from headgate.errors import AccessDenied, AuthenticationFailed, HeadgateError, Position
from headgate.labels import parse_level

FIELDS = ["number", "time", "user", "session", "level", "action", "object", "granted", "reason", "mac"]
COLUMNS = ", ".join(f'"{field}"' for field in FIELDS)
OTHER_KEY = b"another key".ljust(32)
OTHER_SEAL = Seal(OTHER_KEY)
ROLLED_BACK = "the expected head is not in this trail: it was rolled back or replaced"
Record = dict[str, object]


def trail(system: System) -> list[Record]:
    rows = system.sql(f"SELECT {COLUMNS} FROM audit ORDER BY number")
    return [dict(zip(FIELDS, row, strict=True)) for row in rows]


@contextmanager
def added(system: System) -> Iterator[list[Record]]:
    """The records that are written inside; to be looked at afterwards."""
    before = len(trail(system))
    found: list[Record] = []
    yield found
    found += trail(system)[before:]


def said(record: Record) -> tuple[object, ...]:
    return record["user"], record["action"], record["object"], bool(record["granted"])


def session_of(system: System, token: str) -> str:
    return system.rows("SHOW SESSION", token)[0][0]


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
    with added(system) as found, pytest.raises(AuthenticationFailed, match=r"^login refused$"):
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


# Damage


def disarm(system: System) -> None:
    """What whoever owns the database can do: take the triggers away."""
    if system.url.startswith("sqlite"):
        found = system.sql("SELECT name FROM sqlite_master WHERE type = 'trigger' AND tbl_name = 'audit'")
        system.sql(*[f"DROP TRIGGER {name}" for (name,) in found])
    else:
        found = system.sql("SELECT tgname FROM pg_trigger WHERE tgrelid = 'audit'::regclass AND NOT tgisinternal")
        system.sql(*[f"DROP TRIGGER {name} ON audit" for (name,) in found])


@pytest.fixture
def disarmed(system: System) -> System:
    """A trail of eight records or more, one of them denied, that can be written to in SQL."""
    joe = system.new_user("joe", "nurse")
    system.run("CREATE STREAM in1 (n INT); CREATE ROLE clerk")
    with pytest.raises(HeadgateError):
        system.run("CREATE ROLE x", joe)
    system.headgate.logout(joe)
    assert len(trail(system)) >= 8
    disarm(system)
    return system


def put(system: System, place: object, /, **values: object) -> None:
    changes = ", ".join(f'"{field}" = :{field}' for field in values)
    system.sql(f"UPDATE audit SET {changes} WHERE number = :place", place=place, **values)


def head(system: System) -> dict[str, object]:
    (row,) = system.sql("SELECT audit_count, audit_mac, audit_seal FROM head")
    return dict(zip(("audit_count", "audit_mac", "audit_seal"), row, strict=True))


def put_head(system: System, **values: object) -> None:
    system.sql(f"UPDATE head SET {', '.join(f'{name} = :{name}' for name in values)}", **values)


def other(value: object) -> list[object]:
    """Values that differ from this one, more or less."""
    match value:
        case bool():
            return [not value]
        case int():
            return [value + 1000]
        case float():
            return [value + 1e-6, value - 3600.0, 0.0]
        case _:
            text = str(value)
            return [text + "x", text + " ", text.swapcase() + "\u200b", "é", "" if text else "\u0430"]


def test_an_attack_without_the_key_can_write_but_verify_finds_it(disarmed: System) -> None:
    system = disarmed
    assert system.headgate.verify_audit() == []
    denied = next(record for record in trail(system) if not record["granted"])
    put(system, denied["number"], granted=True, reason="role ADMIN holds CHANGE SYSTEM (granted by the system)")
    assert all(record["granted"] for record in trail(system))
    assert system.headgate.verify_audit() == [
        f"record {denied['number']} was altered, or a record before it was removed or moved"
    ]


def test_every_alteration_of_every_field_of_every_record_is_found(disarmed: System) -> None:
    system = disarmed
    for record in trail(system):
        for field in FIELDS:
            value = bool(record[field]) if field == "granted" else record[field]
            for altered in other(value):
                put(system, record["number"], **{field: altered})
                found = system.headgate.verify_audit()
                put(system, altered if field == "number" else record["number"], **{field: value})
                assert found, f"{field} of record {record['number']} became {altered!r}"
    assert system.headgate.verify_audit() == []


def test_what_is_added_beyond_the_longest_field_is_found(disarmed: System) -> None:
    """A field is cut when it is written; what stands in the store must not be cut before it is checked."""
    system = disarmed
    with pytest.raises(AuthenticationFailed):
        system.headgate.login("long" * MAX_FIELD, PASSWORD)
    with pytest.raises(AuthenticationFailed):
        system.headgate.login("bell \x07", PASSWORD)
    long, bell = trail(system)[-2:]
    for record, altered in ((long, str(long["user"]) + " and more"), (bell, "bell \t")):
        put(system, record["number"], user=altered)
        assert system.headgate.verify_audit(), f"user became {altered[-20:]!r}"
        put(system, record["number"], user=record["user"])
    assert system.headgate.verify_audit() == []


def test_a_field_of_another_type_is_found(disarmed: System) -> None:
    """SQLite keeps any type in any column. (Whatever counts as true reads as granted, and is no alteration.)"""
    system = disarmed
    if not system.url.startswith("sqlite"):
        with pytest.raises(DBAPIError):
            put(system, 2, time=b"\x00")
        return
    record = trail(system)[1]
    for field in set(FIELDS) - {"number", "granted"}:
        for altered in (b"\x00\xff", 17.5, "seventeen"):
            put(system, 2, **{field: altered})
            assert system.headgate.verify_audit(), f"{field} became {altered!r}"
            put(system, 2, **{field: record[field]})
    assert system.headgate.verify_audit() == []


def test_every_removal_of_a_record_is_found(disarmed: System) -> None:
    system = disarmed
    whole = trail(system)
    last = len(whole)
    choices = [{number} for number in range(1, last + 1)] + [
        {1, 2},
        {2, 3, 6},
        {last - 1, last},
        set(range(1, last + 1)),
    ]
    for gone in choices:
        removed = [record for record in whole if record["number"] in gone]
        system.sql(f"DELETE FROM audit WHERE number IN ({', '.join(map(str, sorted(gone)))})")
        found = system.headgate.verify_audit()
        insert(system, *removed)
        assert found, f"without {sorted(gone)}"
    assert system.headgate.verify_audit() == []


def insert(system: System, *records: Record) -> None:
    for record in records:
        values = record | {"granted": bool(record["granted"])}
        system.sql(f"INSERT INTO audit ({COLUMNS}) VALUES ({', '.join(f':{field}' for field in FIELDS)})", **values)


@pytest.mark.parametrize("gone", [1, 4, 8])
def test_a_removal_that_closes_the_gap_is_found(disarmed: System, gone: int) -> None:
    """The later records are given the numbers before theirs, and the head is made to fit."""
    system = disarmed
    whole = trail(system)
    system.sql("DELETE FROM audit")
    kept = [record for record in whole if record["number"] != gone]
    insert(system, *[record | {"number": number} for number, record in enumerate(kept, 1)])
    put_head(system, audit_count=len(kept), audit_mac=kept[-1]["mac"])
    assert system.headgate.verify_audit()


@pytest.mark.parametrize("with_mac", [True, False])
def test_exchanged_records_are_found(disarmed: System, with_mac: bool) -> None:
    system = disarmed
    whole = trail(system)
    for a, b in ((1, 2), (3, 6), (len(whole) - 1, len(whole))):
        kept = ["number"] if with_mac else ["number", "mac"]
        first, second = whole[a - 1], whole[b - 1]
        exchanged = [second | {k: first[k] for k in kept}, first | {k: second[k] for k in kept}]
        for records in (exchanged, [first, second]):
            system.sql(f"DELETE FROM audit WHERE number IN ({a}, {b})")
            insert(system, *records)
            assert bool(system.headgate.verify_audit()) == (records is exchanged), f"{a} and {b}"


def test_a_trail_in_reverse_is_found(disarmed: System) -> None:
    system = disarmed
    whole = trail(system)
    system.sql("DELETE FROM audit")
    insert(system, *[record | {"number": number} for number, record in enumerate(reversed(whole), 1)])
    put_head(system, audit_mac=whole[0]["mac"])
    assert system.headgate.verify_audit()


def forged(previous: object, number: int, record: Record) -> Record:
    """A record sealed with a key that is not ours."""
    event = Event(**{field: record[field] for field in FIELDS[2:-1]})  # type: ignore[arg-type]
    mac = OTHER_SEAL.record(str(previous), number, 1_000_000.0, event)
    return record | {"number": number, "time": 1_000_000.0, "mac": mac}


@pytest.mark.parametrize("place", ["before", "end", "end with head"])
def test_an_inserted_record_is_found(disarmed: System, place: str) -> None:
    system = disarmed
    whole = trail(system)
    number = 0 if place == "before" else len(whole) + 1
    new = forged(START if place == "before" else whole[-1]["mac"], number, whole[3])
    insert(system, new)
    if place == "end with head":
        put_head(system, audit_count=number, audit_mac=new["mac"])
    assert system.headgate.verify_audit()


def test_an_inserted_record_that_moves_the_others_on_is_found(disarmed: System) -> None:
    system = disarmed
    whole = trail(system)
    system.sql("DELETE FROM audit")
    records = [*whole[:3], forged(whole[2]["mac"], 4, whole[5]), *whole[3:]]
    insert(system, *[record | {"number": number} for number, record in enumerate(records, 1)])
    put_head(system, audit_count=len(records))
    assert system.headgate.verify_audit()


def test_a_record_repeated_at_the_end_is_found(disarmed: System) -> None:
    system = disarmed
    whole = trail(system)
    insert(system, whole[-1] | {"number": len(whole) + 1})
    put_head(system, audit_count=len(whole) + 1)
    assert system.headgate.verify_audit()


@pytest.mark.parametrize("cut", [1, 3, "all"])
def test_a_trail_cut_short_is_found_even_if_the_head_is_made_to_fit(disarmed: System, cut: int | str) -> None:
    system = disarmed
    whole = trail(system)
    left = [] if cut == "all" else whole[: -int(cut)]
    system.sql(f"DELETE FROM audit WHERE number > {len(left)}")
    assert system.headgate.verify_audit()
    fitting = {"audit_count": len(left), "audit_mac": left[-1]["mac"] if left else START}
    put_head(system, **fitting)
    assert "the head of the trail was altered" in system.headgate.verify_audit()
    put_head(system, **fitting, audit_seal=Seal(bytes(32)).head(len(left), str(fitting["audit_mac"])).seal)
    assert "the head of the trail was altered" in system.headgate.verify_audit()


def test_every_alteration_of_the_head_is_found(disarmed: System) -> None:
    system = disarmed
    right = head(system)
    for name, value in right.items():
        for altered in other(value):
            put_head(system, **{name: altered})
            assert system.headgate.verify_audit(), f"{name} became {altered!r}"
            put_head(system, **{name: value})
    assert system.headgate.verify_audit() == []


def test_a_trail_of_our_own_with_another_key_is_found(system: System) -> None:
    """The whole trail is replaced by one that is consistent in itself."""
    disarm(system)
    previous: object = START
    records = []
    for number, record in enumerate(trail(system), 1):
        records.append(forged(previous, number, record | {"user": "al"}))
        previous = records[-1]["mac"]
    system.sql("DELETE FROM audit")
    insert(system, *records)
    put_head(
        system, audit_mac=previous, audit_seal=Seal(b"another key".ljust(32)).head(len(records), str(previous)).seal
    )
    assert len(system.headgate.verify_audit()) == len(records) + 1


def test_damage_is_not_healed_by_going_on(disarmed: System) -> None:
    system = disarmed
    put(system, 3, reason="nothing happened")
    system.run("CREATE ROLE a; CREATE ROLE b")
    assert system.headgate.verify_audit() == ["record 3 was altered, or a record before it was removed or moved"]


# The database itself refuses


def refuses(system: System, statement: str) -> None:
    before = trail(system)
    with pytest.raises(DBAPIError, match="append-only"):
        system.sql(statement)
    assert trail(system) == before
    assert system.headgate.verify_audit() == []


def test_the_triggers_refuse_to_change_or_remove_a_record(system: System) -> None:
    refuses(system, "UPDATE audit SET reason = 'x'")
    refuses(system, "UPDATE audit SET reason = 'x' WHERE number = 1")
    refuses(system, "UPDATE audit SET number = number + 100")
    refuses(system, "DELETE FROM audit")
    refuses(system, "DELETE FROM audit WHERE number = (SELECT max(number) FROM audit)")
    system.reopen()
    refuses(system, "DELETE FROM audit")


def test_the_triggers_refuse_what_only_one_database_has(system: System) -> None:
    if system.url.startswith("sqlite"):
        copy = COLUMNS.replace('"reason"', "'x'")
        refuses(system, f"INSERT OR REPLACE INTO audit ({COLUMNS}) SELECT {copy} FROM audit WHERE number = 1")
        refuses(system, f"REPLACE INTO audit ({COLUMNS}) SELECT {copy} FROM audit")
    else:
        refuses(system, "TRUNCATE audit")
        copy = f"INSERT INTO audit ({COLUMNS}) SELECT {COLUMNS} FROM audit WHERE number = 1"
        refuses(system, f"{copy} ON CONFLICT (number) DO UPDATE SET reason = 'x'")


# Rolling back the whole store


def test_a_store_rolled_back_is_found_by_a_head_noted_elsewhere(tmp_path: Path) -> None:
    file = tmp_path / "headgate.db"
    system = System(f"sqlite:///{file}")
    system.initialise()
    system.close()
    shutil.copy(file, tmp_path / "backup.db")
    system.another().execute(system.root, "CREATE USER joe")
    noted = str(system.headgate.audit_head())
    assert system.headgate.verify_audit(noted) == []
    system.close()
    shutil.copy(tmp_path / "backup.db", file)
    headgate = system.another()
    assert headgate.verify_audit() == [], "a store rolled back as a whole is consistent in itself"
    assert headgate.verify_audit(noted) == [ROLLED_BACK]
    system.close()


def test_a_trail_rolled_back_with_its_head_is_found_by_a_head_noted_elsewhere(system: System) -> None:
    disarm(system)
    old = head(system)
    system.run("CREATE USER joe")
    noted = str(system.headgate.audit_head())
    system.sql(f"DELETE FROM audit WHERE number > {old['audit_count']}")
    put_head(system, **old)
    assert system.headgate.verify_audit() == []
    assert system.headgate.verify_audit(noted) == [
        "the expected head is not in this trail: it was rolled back or replaced"
    ]
    system.run("CREATE USER joe2")
    assert system.headgate.verify_audit(noted), "as many records as before, but other ones"


def test_every_head_that_ever_was_is_expected_rightly(system: System) -> None:
    heads = [f"0:{START}"]
    for number in range(5):
        heads.append(str(system.headgate.audit_head()))
        system.run(f"CREATE ROLE r{number}")
    system.reopen()
    assert [system.headgate.verify_audit(expected) for expected in heads] == [[]] * len(heads)
    count, mac = heads[-1].split(":")
    for wrong in (f"{int(count) + 1}:{mac}", f"{count}:{START}", "nonsense"):
        assert len(system.headgate.verify_audit(wrong)) == 1


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


# Who reads what


def read(system: System, token: str, limit: int = 1000) -> tuple[tuple[str, ...], ...]:
    return system.rows(f"SHOW AUDIT LIMIT {limit}", token)


def users(rows: tuple[tuple[str, ...], ...]) -> set[str]:
    return {row[1] for row in rows}


def test_one_reads_only_ones_own_records(system: System) -> None:
    joe, al = system.new_user("joe", "nurse"), system.new_user("al", "nurse")
    system.run("SHOW ROLES", al)
    system.run("SHOW LEVELS", joe)
    rows = read(system, joe)
    assert users(rows) == {"joe"}
    assert [row[4] for row in rows] == ["LOGIN", "SHOW LEVELS"]
    assert users(read(system, al)) == {"al"}


def test_one_reads_the_records_about_ones_own_objects(system: System) -> None:
    joe, al = system.new_user("joe", "nurse"), system.new_user("al", "nurse")
    system.run("GRANT ADD ON SYSTEM TO nurse")
    system.run("CREATE STREAM in1 (n INT); GRANT VIEW OBJECT ON STREAM in1 TO nurse; CREATE STREAM in2 (n INT)", joe)
    with pytest.raises(AccessDenied):
        system.run("DROP STREAM joe.in1", al)
    with pytest.raises(HeadgateError):
        system.run("DROP STREAM joe.in2", al)
    others = [(row[1], row[4], row[5], row[6]) for row in read(system, joe) if row[1] != "joe"]
    assert others == [("al", "DROP OBJECT", "stream joe.in1", "denied")]
    system.run("GRANT CHANGE PERM ON STREAM in1 TO nurse", joe)
    system.run("GRANT SUBSCRIBE ON STREAM joe.in1 TO PUBLIC", al)
    others = [(row[1], row[4], row[5], row[6]) for row in read(system, joe) if row[1] != "joe"]
    assert others[1:] == [("al", "GRANT SUBSCRIBE TO PUBLIC", "stream joe.in1", "granted")]


def test_view_audit_reads_all_until_it_is_revoked(system: System) -> None:
    joe = system.new_user("joe", "auditor")
    system.run("GRANT VIEW AUDIT ON SYSTEM TO auditor")
    assert users(read(system, joe)) == {ADMIN, "joe"}
    assert len(read(system, joe)) == len(trail(system)) - 1
    system.run("REVOKE VIEW AUDIT ON SYSTEM FROM auditor")
    assert users(read(system, joe)) == {"joe"}


def test_an_administrator_without_view_audit_reads_its_own(system: System) -> None:
    system.new_user("joe", "nurse")
    system.run("REVOKE VIEW AUDIT ON SYSTEM FROM ADMIN")
    assert users(read(system, system.root)) == {ADMIN}


def test_nobody_reads_above_the_login_level(system: System) -> None:
    system.run("CREATE LEVEL C; CREATE LEVEL S ABOVE C; CREATE LEVEL X; CREATE COMPARTMENT N; CREATE ROLE auditor")
    system.run("GRANT VIEW AUDIT ON SYSTEM TO auditor")
    system.new_user("spy", clearance="S")
    system.new_user("joe", "auditor", clearance="S{N}")
    system.new_user("max", clearance="X")
    for level, statement in (("U", "SHOW ROLES"), ("C", "SHOW LEVELS"), ("S", "SHOW SESSION")):
        system.run(statement, system.login("spy", level=level))
    system.run("SHOW USERS", system.login("max", level="X"))

    def seen(user: str, level: str) -> set[tuple[str, str]]:
        rows = read(system, system.login(user, level=level))
        return {(row[1], row[3]) for row in rows if row[4].startswith("SHOW ") and row[4] != "SHOW AUDIT"}

    everyone = {("spy", "U")} | {(ADMIN, "U")}
    assert seen("joe", "U") - {(ADMIN, "U")} == everyone - {(ADMIN, "U")}
    assert seen("joe", "C") - {(ADMIN, "U")} == {("spy", "U"), ("spy", "C")}
    assert seen("joe", "S") - {(ADMIN, "U")} == {("spy", "U"), ("spy", "C"), ("spy", "S")}
    assert seen("joe", "S{N}") - {(ADMIN, "U")} == {("spy", "U"), ("spy", "C"), ("spy", "S")}
    assert seen("spy", "C") == {("spy", "U"), ("spy", "C")}
    assert seen("spy", "U") == {("spy", "U")}
    assert ("max", "X") not in seen("joe", "S{N}") | seen("spy", "S")
    assert seen("max", "X") == {("max", "X")}


def test_a_limit_counts_what_may_be_read(system: System) -> None:
    joe = system.new_user("joe")
    for number in range(5):
        system.run("SHOW ROLES" if number % 2 else "SHOW LEVELS", joe)
        system.run("SHOW SESSIONS; SHOW USERS")
    assert [row[4] for row in read(system, joe, 3)] == ["SHOW LEVELS", "SHOW ROLES", "SHOW LEVELS"]
    assert [row[4] for row in read(system, joe, 2)] == ["SHOW LEVELS", "SHOW AUDIT"]
    assert read(system, joe, 0) == ()


def test_without_a_limit_the_newest_are_shown(system: System) -> None:
    system.run("; ".join(["SHOW ROLES"] * 60))
    assert len(system.rows("SHOW AUDIT")) == 50
