"""Using what is gone: roles, users and streams of an old name, rights taken away, scripts that failed (SPEC 3)."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from headgate.access.permissions import Kind, Permission
from headgate.errors import AccessDenied, NotFound
from headgate.labels import Label
from headgate.service import Headgate

from .attacked import World, seen_by


def test_a_role_made_anew_under_an_old_name_gives_old_sessions_and_members_nothing(world: World) -> None:
    world.run(
        "CREATE STREAM s (a INT); CREATE ROLE r; GRANT ROLE r TO USER bob; CREATE ROLE top; GRANT ROLE r TO ROLE top"
    )
    world.run("GRANT VIEW OBJECT, READ TUPLE ON STREAM s TO r; GRANT ROLE top TO USER eve")
    bob, eve = world.login("bob"), world.login("eve")
    world.run("DROP ROLE r; CREATE ROLE r; GRANT VIEW OBJECT ON STREAM s TO r")
    for token in (bob, eve, world.login("bob")):
        assert not world.headgate.check(token, Permission.VIEW_OBJECT, Kind.STREAM, "s")
        assert isinstance(world.refused("SET ROLE r", token), AccessDenied)


def test_a_user_made_anew_under_an_old_name_has_nothing_of_the_old_one(world: World) -> None:
    world.run("CREATE STREAM s (a INT); CREATE ROLE r; GRANT ROLE r TO USER bob; GRANT VIEW OBJECT ON STREAM s TO r")
    world.run("CREATE ROLE owned; ALTER ROLE owned OWNER TO bob")
    old = world.login("bob")
    world.run("CREATE STREAM his (a INT)", old)
    world.run("DROP USER bob REASSIGN TO eve")
    world.create("bob")
    new = world.login("bob")
    assert not world.alive(old)
    assert world.run("SHOW CATALOG", new) == () and world.run("SHOW USERS", new)[0][1] == ""
    assert isinstance(world.refused("GRANT ROLE owned TO USER bob", new), AccessDenied)
    assert isinstance(world.refused("DROP STREAM his", new), NotFound)


def test_a_user_made_anew_under_an_old_name_does_not_read_the_old_ones_records(world: World) -> None:
    world.run("CREATE STREAM diary (a INT)", world.login("bob"))
    world.run("DROP USER bob CASCADE")
    world.create("bob")
    assert "diary" not in str(world.run("SHOW AUDIT", world.login("bob")))


@pytest.mark.parametrize("end", ["DROP USER bob CASCADE", "DROP USER bob REASSIGN TO al"])
def test_tuples_of_an_old_stream_are_not_read_through_a_new_one_of_the_same_name(world: World, end: str) -> None:
    bob = world.login("bob")
    world.run("CREATE STREAM s (a INT)", bob)
    old = Label(sources=frozenset(world.headgate.streams(bob, ["s"]).sources))
    world.run(end)
    world.create("bob")
    world.run("CREATE STREAM s (a INT); GRANT VIEW OBJECT, READ TUPLE ON STREAM s TO PUBLIC", world.login("bob"))
    eve = world.login("eve")
    new = world.headgate.streams(eve, ["s"])
    assert not new.rules.permits(old, world.headgate.clearance(eve, new))


def test_a_clearance_for_earlier_streams_does_not_follow_their_old_owner(world: World) -> None:
    bob = world.login("bob")
    world.run("CREATE STREAM s (a INT)", bob)
    streams = world.headgate.streams(bob, ["s"])
    world.run("DROP USER bob REASSIGN TO al")
    world.create("bob")
    assert world.headgate.clearance(world.login("bob"), streams).sources == frozenset()


def test_a_right_taken_away_is_not_used_from_another_process_or_thread(tmp_path: Path) -> None:
    world = World.in_file(tmp_path)
    world.run("CREATE STREAM s (a INT); CREATE ROLE r; GRANT ROLE r TO USER bob")
    world.run("GRANT VIEW OBJECT, READ TUPLE ON STREAM s TO r")
    bob, elsewhere = world.login("bob"), world.another()
    revoked, late, failures = threading.Event(), [], []

    def read(headgate: Headgate) -> None:
        for _ in range(200):
            known = revoked.is_set()
            try:
                if headgate.check(bob, Permission.READ_TUPLE, Kind.STREAM, "s") and known:
                    late.append(headgate)
            except Exception as error:  # anything but an answer is a finding
                failures.append(error)

    threads = [threading.Thread(target=read, args=(h,)) for h in (world.headgate, elsewhere) for _ in range(2)]
    for thread in threads:
        thread.start()
    world.run("REVOKE READ TUPLE ON STREAM s FROM r")
    revoked.set()
    for thread in threads:
        thread.join()
    assert not late and not failures
    elsewhere.close()
    world.headgate.close()


@pytest.mark.parametrize(
    "revoke", ["REVOKE READ TUPLE ON STREAM feed FROM PUBLIC", "REVOKE USE ON OPERATOR join FROM PUBLIC"]
)
def test_a_query_is_not_started_with_rights_that_were_taken_away(world: World, revoke: str) -> None:
    world.run("CREATE STREAM feed (a INT); GRANT VIEW OBJECT, READ TUPLE ON STREAM feed TO PUBLIC")
    bob = world.login("bob")
    world.run("CREATE QUERY q READING feed USING join OUTPUT o", bob)
    world.run(revoke)
    assert isinstance(world.refused("START QUERY q", bob), AccessDenied)


def test_a_failed_script_leaves_no_right_behind_in_any_cache(world: World) -> None:
    world.run("CREATE ROLE jr; CREATE ROLE sr; GRANT ROLE sr TO USER bob; CREATE STREAM s (a INT)")
    world.run("GRANT VIEW OBJECT, READ TUPLE ON STREAM s TO jr; CREATE LEVEL X ABOVE T; ALTER USER eve CLEARANCE X")
    bob, al = world.login("bob"), world.login("al", "T")
    world.run("CREATE STREAM top (a INT); GRANT VIEW OBJECT ON STREAM top TO PUBLIC", al)
    for script in (
        "GRANT ROLE jr TO ROLE sr; SHOW GRANTS ON STREAM s; DROP ROLE nosuch",
        "GRANT ROLE jr TO USER bob; SHOW ROLES; DROP ROLE nosuch",
        "GRANT VIEW OBJECT, READ TUPLE ON STREAM s TO PUBLIC; DROP ROLE nosuch",
        "ALTER LEVEL C ABOVE X; DROP ROLE nosuch",
        "CREATE LEVEL Y ABOVE X; ALTER LEVEL C ABOVE Y; DROP ROLE nosuch",
        "ALTER USER bob CLEARANCE X; DROP ROLE nosuch",
        "ALTER USER bob PASSWORD 'never committed'; DROP ROLE nosuch",
        "DROP USER bob CASCADE; DROP ROLE nosuch",
    ):
        world.refused(script)
        assert not world.headgate.check(bob, Permission.READ_TUPLE, Kind.STREAM, "s"), script
        assert not world.headgate.check(world.login("bob", "C"), Permission.VIEW_OBJECT, Kind.STREAM, "top"), script
        seen_by(lambda: world.login("bob", "X"))
        seen_by(lambda: world.login("bob", password="never committed"))
