"""Several processes use one store: nobody is behind, whoever wrote, and however far behind they were."""

from __future__ import annotations

import pytest
from conftest import System

from access.stores import in_memory, in_store, may
from headgate.access.permissions import Kind, Permission
from headgate.errors import AuthenticationFailed, Conflict
from headgate.service import Headgate


def test_a_change_is_seen_in_the_very_next_check_of_another_process(system: System) -> None:
    other = system.another()
    system.run("CREATE STREAM in1 (n INT)")
    joe = system.new_user("joe", "nurse")
    assert other.principal(joe).roles == {"nurse"}
    for _ in range(3):
        assert not may(other, joe, Permission.SUBSCRIBE, "in1")
        system.run("GRANT VIEW OBJECT, SUBSCRIBE ON STREAM in1 TO nurse")
        assert may(other, joe, Permission.SUBSCRIBE, "in1")
        system.run("REVOKE SUBSCRIBE ON STREAM in1 FROM nurse")
        assert not may(other, joe, Permission.SUBSCRIBE, "in1")
        system.run("REVOKE VIEW OBJECT ON STREAM in1 FROM nurse")


@pytest.mark.parametrize(
    "revocation",
    [
        "REVOKE ROLE nurse FROM USER joe",
        "REVOKE SUBSCRIBE ON STREAM in1 FROM nurse",
        "REVOKE VIEW OBJECT ON STREAM in1 FROM nurse",
        "DROP ROLE nurse",
        "DROP STREAM in1",
    ],
)
def test_a_revocation_is_seen_in_the_very_next_check_of_another_process(system: System, revocation: str) -> None:
    other = system.another()
    joe = system.new_user("joe", "nurse")
    system.run("CREATE STREAM in1 (n INT); GRANT VIEW OBJECT, SUBSCRIBE ON STREAM in1 TO nurse")
    assert may(other, joe, Permission.SUBSCRIBE, "in1")
    system.run(revocation)
    assert not may(other, joe, Permission.SUBSCRIBE, "in1")


@pytest.mark.parametrize(
    "ending",
    ["ALTER USER joe LOCK", "ALTER USER joe END SESSIONS", "DROP USER joe", "ALTER USER joe PASSWORD '12345678'"],
)
def test_a_session_that_ends_in_one_process_has_ended_in_the_other(system: System, ending: str) -> None:
    other = system.another()
    joe = system.new_user("joe", "nurse")
    assert other.principal(joe).user == "joe"
    system.run(ending)
    with pytest.raises(AuthenticationFailed):
        other.principal(joe)


def test_both_processes_write_and_both_know_everything(system: System) -> None:
    first, second = system.headgate, system.another()
    for number in range(20):
        writer = (first, second)[number % 2]
        writer.execute(system.root, f"CREATE USER u{number}; CREATE STREAM s{number} (n INT); CREATE ROLE r{number}")
    first.principal(system.root)
    second.principal(system.root)
    assert in_memory(first) == in_memory(second) == in_store(system)
    assert len(in_memory(first)["users"]) == 22  # with the one that nobody can be


def test_a_name_can_be_taken_in_one_process_only(system: System) -> None:
    other = system.another()
    system.run("CREATE USER joe")
    with pytest.raises(Conflict, match="already a user `joe`"):
        other.execute(system.root, "CREATE USER joe")


@pytest.mark.parametrize("left", ["none", "newest"])
def test_a_reader_that_is_too_far_behind_reads_everything_again(system: System, left: str) -> None:
    other = system.another()
    joe = system.new_user("joe", "nurse")
    assert other.principal(joe).roles == {"nurse"}
    system.run("CREATE ROLE a")
    system.run("REVOKE ROLE nurse FROM USER joe")
    system.run("CREATE ROLE b")
    keep = "-1" if left == "none" else "(SELECT max(version) FROM change_log)"
    system.sql(f"DELETE FROM change_log WHERE version <> {keep}")
    assert other.principal(joe).roles == frozenset()
    assert in_memory(other) == in_store(system) == in_memory(system.headgate)


def test_a_store_that_was_put_back_is_read_again(system: System) -> None:
    """A backup is restored under a running process: what is no longer in the store is no longer true."""

    def may_add(headgate: Headgate, token: str) -> bool:
        return bool(headgate.check(token, Permission.ADD, Kind.SYSTEM, ""))

    other = system.another()
    joe = system.new_user("joe", "nurse")
    system.run("GRANT ADD ON SYSTEM TO nurse")
    assert other.principal(joe).roles == {"nurse"}
    assert may_add(other, joe)
    system.sql(
        "DELETE FROM grants WHERE permission = 'ADD' AND role = 'nurse'",
        "DELETE FROM change_log WHERE version = (SELECT version FROM head)",
        "UPDATE head SET version = version - 1",
    )
    assert not may_add(other, joe)
