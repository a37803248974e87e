"""The store keeps its promises on SQLite and on PostgreSQL: nothing is lost, nothing is half done."""

from __future__ import annotations

from contextlib import suppress

import pytest
from conftest import ADMIN, PASSWORD, System

from access.stores import EVERYTHING, in_memory, in_store, shown
from headgate.errors import HeadgateError, StoreError


def test_everything_survives_closing_and_opening(system: System) -> None:
    system.run(EVERYTHING)
    before = shown(system)
    rows = in_memory(system.headgate)
    system.reopen()
    assert shown(system) == before
    assert in_memory(system.headgate) == rows == in_store(system)
    assert system.headgate.verify_audit() == []


def test_whatever_is_accepted_can_be_read_again(system: System) -> None:
    """A clearance longer than any text that is read back must be refused, or else must not get in anybody's way."""
    names = [f"{'c' * 120}{number}" for number in range(100)]
    system.run("; ".join(f"CREATE COMPARTMENT {name}" for name in names) + "; CREATE LEVEL S; CREATE LEVEL other")
    with suppress(HeadgateError):
        system.run(f"CREATE USER joe PASSWORD '{PASSWORD}' CLEARANCE S{{{', '.join(names)}}}")
        system.login("joe")
    system.reopen()
    system.run("DROP LEVEL other; SHOW USERS; SHOW SESSIONS")


def test_a_session_survives_closing_and_opening(system: System) -> None:
    joe = system.new_user("joe", "nurse")
    principal = system.headgate.principal(joe)
    assert system.reopen().principal(joe) == principal


def test_numbers_of_objects_are_never_used_again(system: System) -> None:
    system.run("CREATE STREAM a (n INT)")
    (first,) = system.sql("SELECT id FROM objects WHERE name = 'a'")
    system.run("DROP STREAM a")
    system.reopen()
    system.run("CREATE STREAM a (n INT)")
    (second,) = system.sql("SELECT id FROM objects WHERE name = 'a'")
    assert second > first


def test_an_error_in_the_middle_of_a_script_changes_nothing(system: System) -> None:
    system.run(EVERYTHING)
    memory, store = in_memory(system.headgate), in_store(system)
    script = """
        CREATE USER al PASSWORD 'correct horse'; ALTER USER "head nurse" UNLOCK CLEARANCE U; DROP ROLE nurse;
        DROP STREAM in1; CREATE STREAM in1 (n INT); SET ROLE NONE; SET ROLE ALL; SET SYSTEM idle_minutes = 1;
        CREATE ROLE nurse; GRANT ROLE nurse TO USER al; ALTER USER root END SESSIONS;
    """
    for last in ('DROP ROLE "no such role"', "CREATE ROLE nurse", "DROP LEVEL C"):
        with pytest.raises(HeadgateError):
            system.run(script + last)
        assert in_memory(system.headgate) == memory
        assert in_store(system) == store
    assert system.headgate.verify_audit() == []
    system.run(script)
    assert in_memory(system.headgate) == in_store(system) != store


def test_an_error_of_the_database_changes_nothing(system: System) -> None:
    """The database refuses what our own checks let pass, and the memory follows it."""
    system.run("CREATE STREAM a (n INT)")
    system.sql("INSERT INTO parameters (name, value) VALUES ('idle_minutes', '5')")  # behind Headgate's back
    before = in_store(system)
    with pytest.raises(StoreError):
        system.run("CREATE STREAM b (n INT); SET SYSTEM idle_minutes = 7")
    assert in_store(system) == before
    system.rows("SHOW SYSTEM")
    assert in_memory(system.headgate) == before
    assert system.headgate.verify_audit() == []


def test_a_name_that_is_freed_in_a_script_can_be_taken_in_it(system: System) -> None:
    """Whatever the order in which rows were first touched, the database sees them in one that it accepts."""
    joe = system.new_user("joe", "clerk")
    system.run("GRANT ADD ON SYSTEM TO clerk; CREATE STREAM in1 (n INT); CREATE QUERY q READING in1 OUTPUT o")
    system.run("GRANT VIEW OBJECT, READ TUPLE ON STREAM in1 TO clerk")
    system.run("CREATE QUERY q READING root.in1 OUTPUT p", joe)
    system.run("DROP STREAM in1; DROP QUERY q; DROP USER joe REASSIGN TO root")
    assert in_memory(system.headgate) == in_store(system)
    assert {row[0] for row in system.rows("SHOW CATALOG") if row[2] == ADMIN} == {"query", "stream"}
