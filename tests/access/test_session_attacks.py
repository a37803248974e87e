"""Logging in as somebody else, and using a session longer than it lasts (SPEC 3.4)."""

from __future__ import annotations

import hashlib
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from conftest import PASSWORD
from sqlalchemy import event

from headgate.errors import AuthenticationFailed, HeadgateError

from .attacked import World, seen_by


def test_what_the_store_and_the_trail_hold_of_a_token_does_not_open_its_session(world: World) -> None:
    token = world.login("al")
    hashed = hashlib.sha256(token.encode()).hexdigest()
    (session,) = [row[0] for row in world.run("SHOW SESSIONS") if row[1] == "al"]
    for guess in ("", " ", hashed, hashed[:12], session, token[:-1], token + " ", token.upper(), "'", "%", "None"):
        assert not world.alive(guess)
    assert world.alive(token)


def test_a_session_is_not_used_beyond_its_end_or_its_idle_time(world: World) -> None:
    world.run("SET SYSTEM idle_minutes = 10; SET SYSTEM session_minutes = 25")
    token, idle = world.login("al"), world.login("al")
    world.clock.advance(599)
    assert world.run("SHOW SESSION", token) and world.alive(idle)
    world.clock.advance(1)
    assert world.alive(token) and not world.alive(idle)
    for _ in range(2):
        world.clock.advance(449.5)
        world.run("SHOW SESSION", token)
    world.clock.advance(1)
    assert not world.alive(token)


@pytest.mark.parametrize(
    "change",
    [
        "ALTER USER al PASSWORD 'another password'",
        "ALTER USER al LOCK",
        "ALTER USER al END SESSIONS",
        "DROP USER al",
        "DROP USER al; CREATE USER al PASSWORD 'correct horse' CLEARANCE T",
        "ALTER USER al CLEARANCE C",
        "ALTER USER al LOCK; ALTER USER al UNLOCK; ALTER USER al CLEARANCE C; ALTER USER al CLEARANCE C",
    ],
)
def test_a_session_does_not_outlive_what_it_rests_on(tmp_path: Path, change: str) -> None:
    world = World.in_file(tmp_path)
    token, elsewhere = world.login("al", "S"), world.another()
    assert elsewhere.principal(token).user == "al"
    world.run(change)
    for headgate in (world.headgate, elsewhere):
        with pytest.raises(AuthenticationFailed):
            headgate.principal(token)
        with pytest.raises(AuthenticationFailed):
            headgate.execute(token, "SHOW CATALOG")
        headgate.close()


def test_an_ended_session_does_not_bring_itself_back(world: World) -> None:
    al = world.login("al")
    with suppress(HeadgateError):
        world.run("ALTER USER al END SESSIONS; SET ROLE ALL", al)
    assert not world.alive(al)


def test_a_refused_request_does_not_count_as_silence(world: World) -> None:
    """SPEC 3.4: a session ends after idle_minutes without a request."""
    al = world.login("al")
    for _ in range(3):
        world.clock.advance(20 * 60)
        assert not isinstance(world.refused("DROP STREAM nosuch", al), AuthenticationFailed)


def test_changing_roles_does_not_count_as_silence(world: World) -> None:
    al = world.login("al")
    for _ in range(3):
        world.clock.advance(20 * 60)
        world.run("SET ROLE NONE", al)


def test_refused_logins_do_not_tell_why(world: World) -> None:
    world.run("CREATE USER keyless; ALTER USER eve LOCK; SET SYSTEM lockout_failures = 1")
    seen_by(lambda: world.login("bob", password="wrong one"))
    answers = {
        seen_by(lambda u=u, p=p: world.login(u, password=p))  # type: ignore[misc]
        for u, p in (
            ("al", "wrong one"),
            ("al", ""),
            ("nobody", PASSWORD),
            ("keyless", ""),
            ("keyless", PASSWORD),
            ("eve", PASSWORD),
            ("bob", PASSWORD),
            ("", ""),
        )
    }
    assert len(answers) == 1


def test_a_wrong_password_and_a_wrong_name_cost_the_store_the_same(world: World) -> None:
    statements: list[str] = []

    @event.listens_for(world.headgate._store._engine, "before_cursor_execute")
    def _(_connection: Any, _cursor: Any, statement: str, *_rest: Any) -> None:
        statements.append(statement)

    world.run("ALTER USER eve LOCK")
    costs = []
    for user in ("al", "eve", "nobody"):
        statements.clear()
        seen_by(lambda user=user: world.login(user, password="wrong one"))  # type: ignore[misc]
        costs.append(list(statements))
    assert costs[0] == costs[1] == costs[2]


def test_passwords_cannot_be_guessed_past_the_lock_even_at_once(world: World) -> None:
    world.run("SET SYSTEM lockout_failures = 3; SET SYSTEM lockout_minutes = 10")

    def guess() -> None:
        with suppress(AuthenticationFailed):
            world.login("al", password="wrong one")

    threads = [threading.Thread(target=guess) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for seconds in (0, 599):
        world.clock.advance(seconds)
        seen_by(lambda: world.login("al"))
    world.clock.advance(1)
    assert world.login("al")


def test_tries_during_a_lock_do_not_bring_the_next_one(world: World) -> None:
    """SPEC 3.4: only wrong passwords in a row lock; here they were right, or refused unread."""
    world.run("SET SYSTEM lockout_failures = 3; SET SYSTEM lockout_minutes = 10")
    for _ in range(3):
        seen_by(lambda: world.login("al", password="wrong one"))
    for _ in range(3):
        seen_by(lambda: world.login("al"))
    world.clock.advance(600)
    seen_by(lambda: world.login("al", password="wrong one"))
    assert world.login("al")


@pytest.mark.parametrize(
    "meanwhile",
    [
        "ALTER USER al PASSWORD 'a new password'",
        "DROP USER al; CREATE USER al PASSWORD 'another person' CLEARANCE T",
        "ALTER USER al PASSWORD 'a new password'; ALTER USER al END SESSIONS",
    ],
)
def test_an_old_password_does_not_open_a_session_after_it_was_changed(world: World, meanwhile: str) -> None:
    """The proof is slow and runs outside the lock; what it proved may be gone when it is used."""
    world.passwords.meanwhile = lambda: world.run(meanwhile)
    with pytest.raises(AuthenticationFailed):
        world.login("al")


def test_a_password_that_was_never_committed_opens_nothing(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The state in memory holds a script's changes before it is known whether they will be kept."""
    changed, go_on = threading.Event(), threading.Event()

    def pause(password: str) -> None:
        if password == "pause here":
            changed.set()
            go_on.wait(5)

    script = "ALTER USER al PASSWORD 'never committed'; CREATE USER z PASSWORD 'pause here'; DROP ROLE nosuch"
    other = threading.Thread(target=lambda: world.refused(script))
    get = world.headgate._state.users.get

    def get_late(*key: str | int) -> Any:
        if other.ident is None:
            other.start()
            changed.wait(1)
        return get(*key)

    world.passwords.hashing, world.passwords.meanwhile = pause, go_on.set
    monkeypatch.setattr(world.headgate._state.users, "get", get_late)
    try:
        with pytest.raises(AuthenticationFailed):
            world.login("al", password="never committed")
    finally:
        go_on.set()
        other.join()
