"""Logging in as somebody else, and using a session longer than it lasts (SPEC 3.4)."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from conftest import PASSWORD
from sqlalchemy import event

from headgate.errors import AuthenticationFailed, Conflict, HeadgateError

from .attacked import World, seen_by


def refusal(act: Callable[[], object]) -> HeadgateError:
    with pytest.raises(HeadgateError) as caught:
        act()
    return caught.value


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

    @event.listens_for(world.headgate.monitor.store._engine, "before_cursor_execute")
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
    for seconds in (0, 0.9):
        world.clock.advance(seconds)
        seen_by(lambda: world.login("al"))
    world.clock.advance(0.1)
    assert world.login("al")


def test_the_wait_doubles_with_each_wrong_password_up_to_the_longest(world: World) -> None:
    world.run("SET SYSTEM lockout_failures = 3; SET SYSTEM lockout_minutes = 1")
    guesses, begin = 0, world.clock.now()
    while world.clock.now() - begin < 600:  # a guesser who never waits longer than it must
        seen_by(lambda: world.login("al", password="wrong one"))
        guesses += 1
        while world.headgate.monitor.state.users.get("al").locked_until > world.clock.now():  # type: ignore[union-attr]
            world.clock.advance(1)
    assert guesses == 17  # two at once, then after 1, 2, 4, 8, 16, 32, 60, 60, ... seconds
    assert world.login("al")


def test_tries_that_came_too_early_do_not_make_the_wait_longer(world: World) -> None:
    """SPEC 3.4: only wrong passwords in a row count; here they were right, or refused unread."""
    world.run("SET SYSTEM lockout_failures = 3; SET SYSTEM lockout_minutes = 10")
    for _ in range(3):
        seen_by(lambda: world.login("al", password="wrong one"))
    for _ in range(3):
        seen_by(lambda: world.login("al"))
    world.clock.advance(1)
    assert world.login("al")


def test_six_wrong_passwords_of_a_stranger_do_not_keep_the_only_administrator_out(world: World) -> None:
    """The attack: whoever knew a name could lock its user out for a quarter of an hour, again and again."""
    login, admin = world.headgate.login, world.headgate.principal(world.root).user
    login(admin, PASSWORD, source="10.0.0.1")
    for attempt in range(60):
        seen_by(lambda n=attempt: login(admin, "wrong one", source=f"10.6.6.{n}"))  # type: ignore[misc]
    assert login(admin, PASSWORD, source="10.0.0.1")
    assert world.alive(world.root)
    world.clock.advance(2)
    assert login(admin, PASSWORD, source="10.0.0.2")  # a new place has to wait as long as the strangers, and no longer


def test_strangers_cannot_guess_faster_from_many_places(world: World) -> None:
    for attempt in range(100):
        seen_by(lambda n=attempt: world.headgate.login("al", "wrong one", source=f"10.6.6.{n}"))  # type: ignore[misc]
    assert world.headgate.monitor.state.users.get("al").failures == 5  # type: ignore[union-attr]


def test_a_known_place_is_no_way_around_the_wait(world: World) -> None:
    world.headgate.login("al", PASSWORD, source="10.0.0.1")
    for _ in range(5):
        seen_by(lambda: world.headgate.login("al", "wrong one", source="10.0.0.1"))
    assert isinstance(refusal(lambda: world.headgate.login("al", PASSWORD, source="10.0.0.1")), AuthenticationFailed)
    assert world.login("al")  # from elsewhere


def test_a_user_has_a_certain_number_of_sessions(world: World) -> None:
    """The attack: 150 sessions of one user, each with views of its own in the engine."""
    opened = [world.login("al") for _ in range(20)]
    error = refusal(lambda: world.login("al"))
    assert isinstance(error, Conflict) and "20 open sessions" in str(error) and "log out" in str(error)
    assert all(map(world.alive, opened))
    world.headgate.logout(opened[0])
    assert world.login("al")
    world.clock.advance(31 * 60)
    assert world.login("al")
    world.run("SET SYSTEM max_sessions = 1", world.login("root"))
    assert isinstance(refusal(lambda: world.login("al")), Conflict)


def test_sessions_at_a_high_level_take_no_place_at_a_low_one(world: World) -> None:
    world.run("SET SYSTEM max_sessions = 2")
    for _ in range(2):
        world.login("al", level="S")
    assert isinstance(refusal(lambda: world.login("al", level="S")), Conflict)
    assert world.login("al", level="U")
    assert world.login("al", level="U")
    assert isinstance(refusal(lambda: world.login("al", level="U")), Conflict)


def test_a_role_that_was_given_back_is_active_again(world: World) -> None:
    """The reader was not told that it had to log in again, and saw nothing any more."""
    world.run("CREATE ROLE back; GRANT ROLE back TO USER al")
    al = world.login("al")
    assert "back" in world.headgate.principal(al).roles
    world.run("REVOKE ROLE back FROM USER al")
    assert "back" not in world.headgate.principal(al).roles
    assert "back" not in world.run("SHOW SESSION", al)[0][2]
    world.run("GRANT ROLE back TO USER al")
    assert "back" in world.headgate.principal(al).roles
    world.run("DROP ROLE back; CREATE ROLE back; GRANT ROLE back TO USER al")
    assert "back" not in world.headgate.principal(al).roles  # another role of that name


def test_a_role_that_was_given_back_does_not_get_around_a_separation(world: World) -> None:
    world.run("CREATE ROLE buyer; CREATE ROLE payer; GRANT ROLE buyer, payer TO USER al")
    al = world.login("al")
    world.run("REVOKE ROLE payer FROM USER al; CREATE SEPARATION money DYNAMIC OF buyer, payer")
    assert world.alive(al)
    world.run("GRANT ROLE payer TO USER al")
    assert not world.alive(al)


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
    get = world.headgate.monitor.state.users.get

    def get_late(*key: str | int) -> Any:
        if other.ident is None:
            other.start()
            changed.wait(1)
        return get(*key)

    world.passwords.hashing, world.passwords.meanwhile = pause, go_on.set
    monkeypatch.setattr(world.headgate.monitor.state.users, "get", get_late)
    try:
        with pytest.raises(AuthenticationFailed):
            world.login("al", password="never committed")
    finally:
        go_on.set()
        other.join()
