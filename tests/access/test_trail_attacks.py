"""Acting without a trace, or changing the trail and the files that it lies in (SPEC 3.5)."""

from __future__ import annotations

import sqlite3
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from headgate.access.permissions import Permission
from headgate.cql.parser import parse_script
from headgate.errors import AuthenticationFailed, HeadgateError
from headgate.service import Headgate, scripts

from .attacked import FILE, World, seen_by


def change_behind(folder: Path, script: str) -> None:
    """What whoever can write the store does to it, without Headgate."""
    database = sqlite3.connect(folder / FILE)
    database.executescript(script)
    database.close()


def test_strangers_cannot_write_lines_escapes_or_volumes_into_the_trail(world: World) -> None:
    for name in ("x\n1970-01-01 root granted", "\x1b[2J\x9b31m", "‮evil", "x" * 1_000_000, "a\0b", "\u2028"):
        seen_by(lambda name=name: world.login(name))  # type: ignore[misc]
    for row in world.records(6):
        assert all(field.isprintable() and len(field) <= 1000 for field in row)


@pytest.mark.parametrize(
    "tampering",
    [
        "UPDATE audit SET granted = 0 WHERE number = 3",
        "UPDATE audit SET user = 'eve' WHERE number = 2",
        "UPDATE audit SET time = time + 1 WHERE number = 2",
        "UPDATE audit SET level = 'S' WHERE number = 2",
        "DELETE FROM audit WHERE number = 3",
        "DELETE FROM audit WHERE number = (SELECT max(number) FROM audit)",
        "DELETE FROM audit",
        "DELETE FROM audit; UPDATE head SET audit_count = 0",
        "DELETE FROM audit WHERE number > 1; UPDATE head SET audit_count = 1, audit_mac = (SELECT mac FROM audit)",
        "UPDATE audit SET number = -number; UPDATE audit SET number = 100 + number; UPDATE head SET audit_count = 99",
        "UPDATE audit SET number = 99 WHERE number = 2; UPDATE audit SET number = 2 WHERE number = 3",
        "CREATE TABLE x AS SELECT * FROM audit LIMIT 1; UPDATE x SET number = 99; INSERT INTO audit SELECT * FROM x",
    ],
)
def test_a_writer_of_the_store_cannot_rewrite_the_trail_unnoticed(tmp_path: Path, tampering: str) -> None:
    world = World.in_file(tmp_path)
    assert world.headgate.verify_audit() == []
    world.headgate.close()
    change_behind(tmp_path, f"DROP TRIGGER audit_no_update; DROP TRIGGER audit_no_delete; {tampering}")
    headgate = world.another()
    assert headgate.verify_audit()
    headgate.close()


def test_a_trail_that_was_wiped_together_with_its_head_is_not_found_intact(tmp_path: Path) -> None:
    """Without the key nobody can seal a new head; opening the store must not do it for them."""
    world = World.in_file(tmp_path)
    world.headgate.close()
    change_behind(tmp_path, "DROP TRIGGER audit_no_delete; DELETE FROM audit; DELETE FROM head")
    with suppress(HeadgateError):
        headgate = world.another()
        faults = headgate.verify_audit()
        headgate.close()
        assert faults


def test_a_store_that_was_taken_away_is_not_replaced_by_an_empty_one_with_an_intact_trail(tmp_path: Path) -> None:
    Headgate.at_home(tmp_path, create=True).close()
    for file in tmp_path.glob("headgate.db*"):
        file.unlink()
    with suppress(HeadgateError):
        headgate = Headgate.at_home(tmp_path)
        faults = headgate.verify_audit()
        headgate.close()
        assert faults


def test_other_accounts_of_the_machine_cannot_read_the_store_the_key_or_the_session(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    headgate = Headgate.at_home(tmp_path, create=True)
    for file in tmp_path.iterdir():
        assert stat.S_IMODE(file.stat().st_mode) == 0o600, file.name
    headgate.close()


def test_a_record_written_meanwhile_is_not_taken_for_a_forgery(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    real = world.headgate.monitor.store.audit_head

    def head_then_more() -> Any:
        found = real()
        seen_by(lambda: world.login("nobody"))
        return found

    monkeypatch.setattr(world.headgate.monitor.store, "audit_head", head_then_more)
    assert world.headgate.verify_audit() == []


@pytest.mark.parametrize(
    ("script", "named"),
    [
        ("GRANT ROLE ADMIN TO USER eve", "eve"),
        ("CREATE ROLE r; GRANT CHANGE SYSTEM ON SYSTEM TO r", "r"),
        ("SET SYSTEM lockout_failures = 1000", "lockout_failures"),
        ("ALTER USER eve UNLOCK", "UNLOCK"),
        ("ALTER USER eve CLEARANCE S", "CLEARANCE"),
        ("DROP USER eve REASSIGN TO al", "al"),
        ("CREATE STREAM i (a INT); CREATE QUERY q READING i OUTPUT o; STOP QUERY q", "STOP"),
    ],
)
def test_rights_are_not_given_without_a_record_of_what_was_given_to_whom(world: World, script: str, named: str) -> None:
    world.run(script)
    *_, action, about, _, _ = world.records()[0]
    assert named in f"{action} {about}".replace(",", " ").split()


@pytest.mark.parametrize(
    "grant", ["GRANT ROLE ADMIN TO USER {0}, eve", "GRANT CHANGE SYSTEM ON SYSTEM TO {0}, eve"], ids=["role", "right"]
)
def test_a_receiver_is_not_hidden_behind_others_in_a_long_record(world: World, grant: str) -> None:
    others = [f"{'x' * 100}{i}" for i in range(6)]
    world.run("; ".join(f"CREATE USER {name}; CREATE ROLE {name}" for name in others) + "; CREATE ROLE eve")
    before = world.headgate.audit_head().count
    world.run(grant.format(", ".join(others)))
    made = world.records(world.headgate.audit_head().count - before)
    assert any("eve" in row[2] + " " + row[3] for row in made)


def test_a_grant_on_ones_own_object_by_somebody_else_is_not_hidden_from_its_owner(world: World) -> None:
    """SPEC 3.5: one reads the records about one's own objects."""
    world.run("CREATE ROLE helper; GRANT ROLE helper TO USER bob")
    al, bob = world.login("al"), world.login("bob")
    world.run("CREATE STREAM s (a INT); GRANT VIEW OBJECT, CHANGE PERM ON STREAM s TO helper", al)
    world.run("GRANT READ TUPLE ON STREAM s TO PUBLIC", bob)
    world.run("REVOKE READ TUPLE ON STREAM s FROM PUBLIC", bob)
    seen = [row[4] for row in world.run("SHOW AUDIT", al) if row[1] == "bob" and "READ TUPLE" in row[4]]
    assert [action.split()[0] for action in seen] == ["GRANT", "REVOKE"]


@pytest.mark.parametrize(
    "act",
    [
        lambda w, t: w.run("GRANT nonsense", t),
        lambda w, t: w.headgate.execute(t, ""),
        lambda w, _: w.headgate.logout("not a token"),
        lambda w, _: w.why("not a token", "al", Permission.ADD, "system"),
    ],
    ids=["unreadable", "empty", "logout", "why by a stranger"],
)
def test_no_request_goes_unrecorded(world: World, act: Callable[[World, str], object]) -> None:
    """`check`, `streams` and `clearance` are no requests: parts of Headgate ask them on the way to one."""
    al, before = world.login("al"), world.headgate.audit_head().count
    with suppress(HeadgateError):
        act(world, al)
    assert world.headgate.audit_head().count > before


def test_a_session_that_ends_while_its_script_is_read_does_not_leave_the_request_unrecorded(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    al = world.login("al")

    def parse(script: str) -> object:
        monkeypatch.undo()
        world.run("ALTER USER al END SESSIONS")
        return parse_script(script)

    monkeypatch.setattr(scripts, "parse_script", parse)
    before = world.headgate.audit_head().count
    with pytest.raises(AuthenticationFailed):
        world.headgate.execute(al, "CREATE STREAM s (a INT)")
    assert world.headgate.audit_head().count == before + 2


def test_probing_is_not_hidden_by_a_script_that_fails_at_its_end(world: World) -> None:
    """The place of the error says that the first statement went well; the trail must say that it was tried."""
    world.run("CREATE ROLE hers; ALTER ROLE hers OWNER TO eve")
    world.refused("GRANT ROLE hers TO USER bob; DROP STREAM nosuch", world.login("eve"))
    assert "GRANT ROLES" in str([row for row in world.records(5) if row[0] == "eve"])


def test_nobody_writes_records_about_objects_of_others_that_were_never_touched(world: World) -> None:
    al, eve = world.login("al"), world.login("eve")
    world.run("CREATE STREAM x (a INT)", al)
    seen_by(lambda: world.why(eve, "eve", Permission.READ_TUPLE, 'stream "al.x"'))
    assert "eve" not in {row[1] for row in world.run("SHOW AUDIT", al)}


def test_parts_of_a_badly_quoted_password_do_not_reach_the_trail(world: World) -> None:
    world.refused("ALTER USER al PASSWORD 'it'hunter's' ")
    assert "hunter" not in str(world.records(3))
