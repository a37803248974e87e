"""Everyone reads the audit trail as far as the own rights and level reach."""

from __future__ import annotations

from typing import Any

import pytest
from conftest import ADMIN, System

from access.trails import trail
from headgate.access.audit import Event
from headgate.access.store import Transaction
from headgate.errors import AccessDenied, HeadgateError
from headgate.lexing import quote


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
    assert others == [("al", "DROP OBJECT", f"stream joe.in{n}", "denied") for n in (1, 2)]
    system.run("GRANT CHANGE PERM ON STREAM in1 TO nurse", joe)
    system.run("GRANT SUBSCRIBE ON STREAM joe.in1 TO PUBLIC", al)
    others = [(row[1], row[4], row[5], row[6]) for row in read(system, joe) if row[1] != "joe"]
    assert others[2:] == [("al", "GRANT SUBSCRIBE TO PUBLIC", "stream joe.in1", "granted")]


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


NAMES = ["s", "stream", "joe", "a s.b", "s.", "stream s.x", "joe.in1", "ß"]


def test_no_name_hides_from_an_owner_what_others_did(system: System) -> None:
    """Attack: what a stranger does shall look as if the owner had done it, which the index by objects leaves out."""
    tokens = {user: system.new_user(user, "nurse") for user in ("s", "joe", "Joe", "stream")}
    system.run("""CREATE USER "s.joe" PASSWORD 'correct horse'; GRANT ROLE nurse TO USER "s.joe" """)
    tokens["s.joe"] = system.headgate.login("s.joe", "correct horse")
    system.run("GRANT ADD ON SYSTEM TO nurse")
    for owner, token in tokens.items():
        for name in NAMES:
            system.run(f'CREATE STREAM "{name}" (n INT); GRANT VIEW OBJECT ON STREAM "{name}" TO nurse', token)
            for other, theirs in tokens.items():
                if other != owner:
                    with pytest.raises(AccessDenied):
                        system.run(f'DROP STREAM "{owner}"."{name}"', theirs)
        rows = read(system, token)
        done = sorted((row[1], row[5]) for row in rows if row[1] != owner and row[4] == "DROP OBJECT")
        full = [f"stream {quote(owner)}.{quote(name)}" for name in NAMES]
        assert done == sorted((other, thing) for other in tokens if other != owner for thing in full)
        assert [row[5] for row in rows if row[4] == "CREATE STREAM"] == full


class Planner:
    """Stands where a transaction has its connection, and asks the database how it would find what is wanted."""

    def __init__(self, system: System) -> None:
        self.system, self.plan = system, ""

    def execute(self, query: Any) -> Planner:
        dialect = self.system.headgate.monitor.store._engine.dialect
        wanted = query.compile(dialect=dialect, compile_kwargs={"literal_binds": True})
        explain = "EXPLAIN QUERY PLAN" if dialect.name == "sqlite" else "EXPLAIN"
        rows = self.system.sql(f"{explain} {str(wanted).replace(':', chr(92) + ':')}")
        self.plan = "\n".join(row[-1] for row in rows)
        return self

    def mappings(self) -> list[dict[str, Any]]:
        return []


def test_reading_ones_records_does_not_walk_through_those_of_others(system: System) -> None:
    """Attack: how long it takes tells how much others do. As the database plans it: by user and by object."""
    with system.headgate.monitor.transaction() as work:
        about = [f"stream u{n}.x" for n in range(3000)]
        work.events += [Event(f"u{n % 700}", "s", "U", "SHOW ROLES", about[n], True, "") for n in range(3000)]
    system.sql("ANALYZE")
    planner = Planner(system)
    Transaction(planner, 0, 0).audit_records(50, ["U"], "u5", ["stream u5.x", "stream u5.y"], 0)  # type: ignore[arg-type]
    assert "audit_by_user" in planner.plan, planner.plan
    assert "audit_by_object" in planner.plan, planner.plan


def test_a_refusal_names_what_was_asked_for(sqlite_system: System) -> None:
    joe = sqlite_system.new_user("joe", "nurse")
    for script in ("EXPLAIN QUERY root.mean", "SUBSCRIBE TO root.Vitals", "DROP STREAM gone"):
        with pytest.raises(HeadgateError):
            sqlite_system.run(script, joe)
    with pytest.raises(HeadgateError):
        sqlite_system.headgate.sender(joe, "Vitals", "root")
    asked = [row[5] for row in read(sqlite_system, joe) if row[6] == "denied"]
    assert asked == ["query root.mean", "stream root.Vitals", "stream gone", "stream root.Vitals"]


def test_the_audit_is_read_by_user_and_by_object(system: System) -> None:
    joe, al = system.new_user("joe", "nurse"), system.new_user("al", "nurse")
    system.run("GRANT ADD ON SYSTEM TO nurse")
    system.run(
        "CREATE STREAM in1 (n INTEGER, t VARCHAR); CREATE STREAM in2 (n INT); GRANT VIEW OBJECT ON STREAM in1 TO nurse",
        joe,
    )
    with pytest.raises(AccessDenied):
        system.run("DROP STREAM joe.in1", al)
    system.run("DROP STREAM in1", joe)

    def shown(words: str, token: str) -> list[tuple[str, str, str]]:
        return [(row[1], row[4], row[5]) for row in system.rows(f"SHOW AUDIT {words}", token)]

    about = [
        ("joe", "CREATE STREAM", "stream joe.in1"),
        ("joe", "GRANT VIEW OBJECT TO nurse", "stream joe.in1"),
        ("al", "DROP OBJECT", "stream joe.in1"),
        ("joe", "DROP OBJECT", "stream joe.in1"),
    ]
    assert shown("ON STREAM joe.in1", system.root) == about
    assert shown("FOR USER al ON STREAM joe.in1 LIMIT 5", system.root) == [about[2]]
    assert {user for user, _, _ in shown("FOR USER al", system.root)} == {"al"}
    assert shown("ON STREAM in2", joe) == [("joe", "CREATE STREAM", "stream joe.in2")]
    assert shown("FOR USER root", joe) == shown("FOR USER joe", al) == []
