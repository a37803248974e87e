"""Policies: rights that follow from rules and signed statements, and end with them (SPEC 3.7)."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from conftest import System

from headgate.access.permissions import Kind, Permission
from headgate.cql.reading import target
from headgate.errors import AccessDenied, AuthenticationFailed, Conflict, HeadgateError, NotFound
from headgate.lexing import Cursor
from headgate.sendlog.drawing import as_text
from headgate.sendlog.signing import PrivateKey

from .policy_world import RULES, Hospital


@pytest.fixture
def hospital(system: System) -> Hospital:
    return Hospital(system)


@pytest.fixture
def small(sqlite_system: System) -> Hospital:
    return Hospital(sqlite_system)


def test_a_signed_statement_gives_a_right_and_its_retraction_takes_it_away(hospital: Hospital) -> None:
    address = hospital.create()
    assert not hospital.reads()
    hospital.says(address, "employee", "bob")
    assert hospital.reads()
    hospital.takes_back(address, "employee", "bob")
    assert not hospital.reads()


def test_every_process_follows_in_its_next_decision(hospital: Hospital) -> None:
    address, other = hospital.create(), hospital.system.another()
    hospital.says(address, "employee", "bob")
    token = hospital.system.login("bob")
    assert other.check(token, Permission.READ_TUPLE, Kind.STREAM, "vitals", "joe")
    hospital.takes_back(address, "employee", "bob")
    assert not other.check(token, Permission.READ_TUPLE, Kind.STREAM, "vitals", "joe")
    assert not other.principal(token).roles


def test_policies_and_statements_survive_a_restart(hospital: Hospital) -> None:
    address = hospital.create()
    hospital.says(address, "employee", "bob")
    hospital.system.reopen()
    hospital.system.root = hospital.system.login("root")
    assert hospital.reads()
    assert hospital.system.rows("SHOW POLICIES") == (("hospitals", "root", address, "1", "4 of 4", ""),)
    hospital.bob = hospital.system.login("bob")
    hospital.takes_back(address, "employee", "bob")
    assert not hospital.reads()


@pytest.mark.parametrize("end", ["ALTER USER acme DROP KEY '{key}'", "ALTER USER acme LOCK", "DROP USER acme"])
def test_whoever_is_no_longer_trusted_gives_nothing(small: Hospital, end: str) -> None:
    address = small.create()
    small.says(address, "employee", "bob")
    assert small.reads()
    small.system.run(end.format(key=small.key.public_text()))
    assert not small.reads()


def test_a_dropped_policy_gives_nothing(small: Hospital) -> None:
    address = small.create()
    small.says(address, "employee", "bob")
    small.system.run("DROP POLICY hospitals")
    assert not small.reads()
    assert small.system.rows("SHOW STATEMENTS") == ()


def test_a_clearance_lets_log_in_and_ends_the_session_when_it_ends(small: Hospital) -> None:
    address = small.create('plays(U, partner) :- acme says employee(U). cleared(U, "S") :- acme says officer(U).')
    with pytest.raises(AccessDenied):
        small.system.login("bob", level="S")
    small.says(address, "officer", "bob")
    token = small.system.login("bob", level="S")
    assert str(small.system.headgate.principal(token).level) == "S"
    small.takes_back(address, "officer", "bob")
    with pytest.raises(AuthenticationFailed):
        small.system.headgate.principal(token)


def test_soft_state_ends_though_nobody_looks(hospital: Hospital) -> None:
    """No process runs anything when a lifetime passes: the next decision finds it passed."""
    address = hospital.create(
        "materialize(employee, 60).\nmaterialize(officer, 60)." + RULES + 'cleared(U, "S") :- acme says officer(U).'
    )
    hospital.says(address, "employee", "bob")
    hospital.says(address, "officer", "bob")
    token, high = hospital.system.login("bob"), hospital.system.login("bob", level="S")
    other = hospital.system.another()
    hospital.system.clock.advance(59)
    assert other.check(token, Permission.READ_TUPLE, Kind.STREAM, "vitals", "joe")
    hospital.says(address, "employee", "bob")
    hospital.system.clock.advance(59)
    assert other.check(token, Permission.READ_TUPLE, Kind.STREAM, "vitals", "joe"), "it was said again"
    with pytest.raises(AuthenticationFailed):
        other.principal(high)
    hospital.system.clock.advance(1)
    assert not other.check(token, Permission.READ_TUPLE, Kind.STREAM, "vitals", "joe")
    assert not hospital.reads()
    with pytest.raises(AccessDenied):
        hospital.system.login("bob", level="S")


def test_votes_and_delegation_count(small: Hospital) -> None:
    beta = PrivateKey.new()
    small.system.run(f"CREATE USER beta; ALTER USER beta ADD KEY '{beta.public_text()}'")
    address = small.create(
        "trusted(acme). plays(U, partner) :- trusted(A), A says employee(U) by delegation."
        ' may_access(partner, "VIEW OBJECT", "STREAM joe.vitals") :- 2 of [acme, beta] says opened(vitals).'
        ' may_access(partner, "READ TUPLE", "STREAM joe.vitals") :- 2 of [acme, beta] says opened(vitals).'
    )
    small.accept(small.message(address, ("employee", ("bob",)), key=beta, sender="beta"))
    small.accept(small.message(address, ("delegates", ("employee", "beta", 0))))  # type: ignore[arg-type]
    small.says(address, "opened", "vitals")
    assert not small.reads()
    small.accept(small.message(address, ("opened", ("vitals",)), key=beta, sender="beta"))
    assert small.reads()
    small.takes_back(address, "delegates", "employee", "beta", 0)  # type: ignore[arg-type]
    assert not small.reads()


def test_the_audit_trail_links_to_the_proof(hospital: Hospital) -> None:
    address = hospital.create()
    hospital.says(address, "employee", "bob")
    rows = hospital.system.rows("SHOW AUDIT LIMIT 2")
    assert [row[4:6] for row in rows] == [
        ("ACCEPT STATEMENT", "policy hospitals"),
        ("GRANT ROLES TO bob BY POLICY hospitals", "role partner"),
    ]
    assert rows[0][7] == "acme says employee(bob)"
    name = hospital.proofs()[-1]
    found = hospital.system.headgate.proof(hospital.system.root, name)
    assert as_text(found.tree).split("\n") == [
        "hospitals: plays(bob, partner)  <acme*hospitals>",
        "└─ p1 at hospitals",
        "   └─ acme says employee(bob) [signature verified]",
    ]
    assert found.rules == RULES


def test_a_decision_and_a_login_link_to_their_proofs_and_these_outlive_the_right(small: Hospital) -> None:
    address = small.create()
    small.says(address, "employee", "bob")
    token = small.system.login("bob")
    small.system.run("SUBSCRIBE TO joe.vitals", token)
    login, subscribed = small.system.rows("SHOW AUDIT LIMIT 2")
    assert login[4] == "LOGIN" and login[7].startswith("policy hospitals, proof ")
    assert (
        subscribed[4] == "SUBSCRIBE" and "role partner holds SUBSCRIBE (granted by policy hospitals)" in subscribed[7]
    )
    names = small.proofs(3)
    small.system.run("DROP POLICY hospitals; DROP USER acme")
    shown = {as_text(small.system.headgate.proof(small.system.root, name).tree).split("\n")[0] for name in names}
    assert shown == {
        "hospitals: plays(bob, partner)  <acme*hospitals>",
        'hospitals: may_access(partner, "SUBSCRIBE", "STREAM joe.vitals")  <hospitals>',
    }
    assert small.system.headgate.verify_audit() == []


def test_the_policy_in_the_specification_gives_what_it_says(small: Hospital) -> None:
    spec = (Path(__file__).parents[2] / "SPEC.md").read_text(encoding="utf-8")
    script = re.search(r"```sql\n(CREATE POLICY hospitals.*?)```", spec, re.DOTALL)
    assert script is not None
    keys = {name: PrivateKey.new() for name in ("ann", "bea")}
    for name, key in keys.items():
        small.system.run(f"CREATE USER {name}; ALTER USER {name} ADD KEY '{key.public_text()}'")
    small.system.run("CREATE USER mallory PASSWORD 'correct horse'")
    small.system.run(script[1])
    address = small.system.rows("SHOW POLICIES")[0][2]
    for user in ("bob", "mallory"):
        small.says(address, "employee", user)
        small.says(address, "officer", user)
    for name, key in keys.items():
        assert "READ TUPLE" not in {row[1] for row in small.system.rows("SHOW GRANTS") if row[2] == "partner"}
        small.accept(small.message(address, ("opened", ("vitals",)), key=key, sender=name))
    assert "READ TUPLE" in {row[1] for row in small.system.rows("SHOW GRANTS") if row[2] == "partner"}
    shown = {row[0]: row[1:3] for row in small.system.rows("SHOW USERS")}
    assert shown["bob"] == ("partner (policy hospitals)", "U, S (policy hospitals)")
    assert shown["mallory"] == ("partner (policy hospitals)", "U")


def test_what_ends_is_recorded_whatever_ended_it(small: Hospital) -> None:
    address = small.create()
    small.says(address, "employee", "bob")
    small.system.run("ALTER USER acme LOCK")
    actions = [row[4:6] for row in small.system.rows("SHOW AUDIT LIMIT 2")]
    assert actions == [
        ("ALTER USER LOCK", "user acme"),
        ("REVOKE ROLES FROM bob BY POLICY hospitals", "role partner"),
    ]


def test_the_owner_of_an_object_reads_what_policies_did_to_it(small: Hospital) -> None:
    small.create()
    actions = [row[4] for row in small.system.rows("SHOW AUDIT", small.joe)]
    assert "GRANT READ TUPLE TO partner BY POLICY hospitals" in actions


def test_rights_of_policies_are_shown_where_rights_are_shown(small: Hospital) -> None:
    address = small.create('cleared(U, "S") :- acme says employee(U).' + RULES)
    small.says(address, "employee", "bob")
    users = {row[0]: row[1:3] for row in small.system.rows("SHOW USERS")}
    assert users["bob"] == ("partner (policy hospitals)", "U, S (policy hospitals)")
    grants = [row[1:] for row in small.system.rows("SHOW GRANTS ON STREAM vitals", small.joe) if row[2] == "partner"]
    assert grants == [(p, "partner", "", "policy hospitals") for p in ("READ TUPLE", "SUBSCRIBE", "VIEW OBJECT")]
    root, stream = small.system.root, target(Cursor("STREAM joe.vitals"))
    found = small.system.headgate.why(root, "bob", Permission.READ_TUPLE, stream).decision
    assert (found.granted, found.reason) == (True, "role partner holds READ TUPLE (granted by policy hospitals)")


def test_statements_are_shown_to_administrators_and_policies_to_nobody_else(small: Hospital) -> None:
    address = small.create("materialize(employee, 60)." + RULES)
    small.says(address, "employee", "bob")
    ((policy, speaker, said, _, until),) = small.system.rows("SHOW STATEMENTS")
    assert (policy, speaker, said, bool(until)) == ("hospitals", "acme", "employee(bob)", True)
    assert small.system.rows("SHOW POLICIES", small.bob) == small.system.rows("SHOW STATEMENTS", small.bob) == ()


def test_a_role_of_the_store_is_not_taken_by_a_policy_that_ends(small: Hospital) -> None:
    address = small.create()
    small.says(address, "employee", "bob")
    small.system.run("GRANT ROLE partner TO USER bob")
    small.takes_back(address, "employee", "bob")
    assert small.reads()


def test_the_heir_of_a_policy_gives_what_the_heir_could_grant(small: Hospital) -> None:
    small.system.run("CREATE USER ann PASSWORD 'correct horse'; GRANT ROLE ADMIN TO USER ann")
    ann = small.system.login("ann")
    address = small.create(token=ann)
    small.says(address, "employee", "bob")
    with pytest.raises(Conflict, match="user ann owns objects"):
        small.system.run("DROP USER ann")
    small.system.run("DROP USER ann REASSIGN TO bob")
    assert small.system.rows("SHOW POLICIES")[0][4] == "0 of 4"
    assert not small.reads()


EVENT, KEYS = "materialize(q, 0).", "materialize(q, 9, keys(1))."
READS = "plays(X, Y) :- A says q(X, Y)."
UNSAFE = "rule `rule1` is unsafe: `Y` has no value, for no predicate of the body gives it a value"
ERRORS = [
    ("plays(X, Y) :- q(X.", 1, 42, "expected `,`, found `.`"),
    ("\nplays(X, Y) :-\n q(X).", 2, 10, UNSAFE),
    ("At ann, plays(X, Y) :- q(X, Y).", 1, 32, "a policy has one context: write its rules without `At` and a name"),
    ("plays(X, Y)@Z :- q(X, Y, Z).", 1, 24, "a policy sends no statements: write its heads without `@`"),
    ("good(X) :- q(X).", 1, 24, "this policy gives no rights"),
    ("plays(X) :- q(X).", 1, 24, "`plays` has 2 arguments"),
    (EVENT + READS, 1, 24, "`q` is an event, and a policy has none: give it a lifetime"),
    (KEYS + READS, 1, 24, "`q` has keys, and statements to a policy replace none"),
]


@pytest.mark.parametrize(("rules", "line", "column", "message"), ERRORS)
def test_an_error_in_rules_has_its_place_in_the_script(
    small: Hospital, rules: str, line: int, column: int, message: str
) -> None:
    with pytest.raises(HeadgateError) as caught:
        small.system.run(f"CREATE POLICY p AS   $${rules}$$")
    found = caught.value
    assert found.position is not None
    assert (found.message, found.position.line, found.position.column) == (message, line, column)


def test_refusals_of_policies_say_what_is_wrong(small: Hospital) -> None:
    small.create()
    with pytest.raises(Conflict, match="there is already a policy `hospitals`"):
        small.create()
    with pytest.raises(NotFound, match="there is no policy `other`"):
        small.system.run("DROP POLICY other")
    with pytest.raises(Conflict, match="this is not a signed statement"):
        small.system.run("ACCEPT STATEMENT 'hello'")
    with pytest.raises(NotFound, match="there is no proof `00000000`"):
        small.system.headgate.proof(small.system.root, "00000000")
    for script in ("DROP POLICY hospitals", "CREATE POLICY other AS $$plays(a, b).$$"):
        with pytest.raises(AccessDenied, match="CHANGE SYSTEM on system is denied"):
            small.system.run(script, small.bob)
