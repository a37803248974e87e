"""A store's file that somebody replaces under a running process: a backup is put back, a new store is made. What the
process knows, writes and locks is the old one's; stale rights must not go on."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from conftest import PASSWORD, System

from headgate.access.permissions import Kind, Permission
from headgate.errors import StoreError
from headgate.service import Headgate

SAID = "was replaced or removed while this process used it"


@pytest.fixture
def system(tmp_path: Path) -> Iterator[System]:
    found = System(f"sqlite:///{tmp_path / 'headgate.db'}")
    found.initialise()
    found.run("CREATE ROLE nurse; CREATE STREAM hr (x INT); GRANT VIEW OBJECT, READ TUPLE ON STREAM hr TO nurse")
    yield found
    found.close()


def replaced(system: System, tmp_path: Path, how: str) -> None:
    """Another file has the name; in it the right is gone. The old one's companions go with it."""
    file = tmp_path / "headgate.db"
    system.sql("PRAGMA wal_checkpoint(TRUNCATE)")
    shutil.copy(file, tmp_path / "new.db")
    other = System(f"sqlite:///{tmp_path / 'new.db'}", clock=system.clock, root=system.root)
    other.another().execute(system.root, "REVOKE READ TUPLE ON STREAM hr FROM nurse")
    other.close()
    other.sql("PRAGMA wal_checkpoint(TRUNCATE)")
    if how == "removed":
        file.unlink()
        return
    if how == "moved away":
        file.rename(tmp_path / "old.db")
    (tmp_path / "new.db").rename(file)


USES: dict[str, Callable[[Headgate, str], object]] = {
    "a check": lambda h, token: h.check(token, Permission.READ_TUPLE, Kind.STREAM, "hr"),
    "a demand": lambda h, _: h.snapshot(),
    "a script": lambda h, token: h.execute(token, "SHOW ROLES"),
    "a change": lambda h, token: h.execute(token, "CREATE ROLE clerk"),
    "a login": lambda h, _: h.login("root", PASSWORD),
    "a lock": lambda h, _: h.open().__enter__(),
}


@pytest.mark.parametrize("how", ["renamed over", "moved away", "removed"])
@pytest.mark.parametrize("use", list(USES))
def test_a_file_that_was_replaced_is_noticed_at_the_next_use(
    system: System, tmp_path: Path, use: str, how: str
) -> None:
    before = (tmp_path / "headgate.db").stat().st_ino
    replaced(system, tmp_path, how)
    assert how == "removed" or (tmp_path / "headgate.db").stat().st_ino != before
    for _ in range(2):
        with pytest.raises(StoreError, match=SAID) as caught:
            USES[use](system.headgate, system.root)
        assert str(tmp_path / "headgate.db") in caught.value.message and "start again" in caught.value.hint


def test_a_file_that_is_replaced_while_results_go_out_lets_nothing_out(system: System, tmp_path: Path) -> None:
    with system.headgate.open():
        system.headgate.verify()
        shutil.copy(tmp_path / "headgate.db", tmp_path / "new.db")
        (tmp_path / "new.db").rename(tmp_path / "headgate.db")
        with pytest.raises(StoreError, match=SAID):
            system.headgate.verify()


def test_who_starts_afterwards_works_with_what_is_there(system: System, tmp_path: Path) -> None:
    assert system.headgate.check(system.root, Permission.CHANGE_SYSTEM, Kind.SYSTEM, "system")
    replaced(system, tmp_path, "renamed over")
    system.reopen()
    assert ("stream root.hr", "READ TUPLE") not in {row[:2] for row in system.rows("SHOW GRANTS ON STREAM hr")}
