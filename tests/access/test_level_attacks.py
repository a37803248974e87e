"""Carrying something from a high level to a low one, or writing below one's own (SPEC 3)."""

from __future__ import annotations

from contextlib import suppress

import pytest
from conftest import PASSWORD
from counting import counted

from headgate.access.permissions import Kind, Permission
from headgate.errors import AccessDenied, HeadgateError
from headgate.labels import parse_level

from .attacked import World

LOW_VIEWS = (
    *("CATALOG", "SCHEMAS", "STREAMS", "QUERIES", "OPERATORS", "USERS", "ROLES"),
    *("SEPARATIONS", "LEVELS", "COMPARTMENTS", "GRANTS", "PERMISSIONS", "SYSTEM"),
)

HIGH = (
    "CREATE SCHEMA x (a INT); CREATE STREAM low (a INT); GRANT VIEW OBJECT, READ TUPLE ON STREAM low TO PUBLIC;"
    "CREATE QUERY q READING al.low, bob.low OUTPUT out; START QUERY q; SHOW AUDIT; DROP QUERY q; DROP SCHEMA x"
)


def test_whatever_happens_at_a_high_level_a_low_one_sees_the_same() -> None:
    seen = []
    for high in (False, True):
        world = World()
        al, bob = world.login("al"), world.login("bob")
        world.run("CREATE STREAM low (a INT); GRANT VIEW OBJECT, READ TUPLE ON STREAM low TO PUBLIC", al)
        if high:
            top = world.login("bob", "S")
            world.run(HIGH.replace("bob.low", "low"), top)
            world.refused("DROP STREAM al.low", top)
            world.headgate.logout(top)
            # the login itself comes from outside all levels; nothing that was done in it may show
        views = [world.run(f"SHOW {what}", token) for what in LOW_VIEWS for token in (al, bob, world.root)]
        audit = [row for row in world.records(1000) if row[2] != "LOGIN"]
        sessions = [row[1:4] for row in world.run("SHOW SESSIONS")]
        seen.append((views, audit, sessions, world.run("CREATE STREAM x (a INT); SHOW STREAMS", bob)))
        world.headgate.close()
    assert seen[0] == seen[1]


@pytest.mark.parametrize(
    "statement",
    [
        "GRANT READ TUPLE ON STREAM low TO PUBLIC",
        "REVOKE VIEW OBJECT ON STREAM low FROM PUBLIC",
        "ALTER STREAM low LABEL 'FALSE'",
        "ALTER STREAM low SEMANTICS WEAK",
        "DROP STREAM low",
        "DROP QUERY q",
        "STOP QUERY q",
        "START QUERY q",
        "ALTER USER root PASSWORD 'something else'",
        "ALTER USER root ADD KEY 'ssh-ed25519 x'",
        "ALTER USER root END SESSIONS",
        "ALTER ROLE mine MAX QUERIES 7",
        "GRANT ROLE mine TO USER al",
        "DROP ROLE mine",
        "CREATE ROLE r",
        "CREATE USER u",
        "CREATE LEVEL X",
        "CREATE COMPARTMENT X",
        "SET SYSTEM idle_minutes = 5",
        "GRANT ADD ON SYSTEM TO mine",
        "GRANT USE ON OPERATOR join TO mine",
    ],
)
def test_nobody_writes_down_not_even_an_administrator_and_owner(world: World, statement: str) -> None:
    world.run("ALTER USER root CLEARANCE S; CREATE ROLE mine; CREATE STREAM low (a INT)")
    world.run("GRANT VIEW OBJECT ON STREAM low TO PUBLIC; CREATE QUERY q READING low OUTPUT o; START QUERY q")
    before = [world.run(f"SHOW {what}") for what in LOW_VIEWS]
    assert isinstance(world.refused(statement, world.login("root", "S")), AccessDenied)
    assert [world.run(f"SHOW {what}") for what in LOW_VIEWS] == before


def test_a_high_session_and_its_records_are_not_read_from_below_by_anybody(world: World) -> None:
    top = world.login("al", "S")
    world.run("CREATE STREAM overlord (a INT)", top)
    world.refused("DROP STREAM nosuch_overlord", top)
    for token in (world.root, world.login("al")):
        assert {row[3] for row in world.run("SHOW SESSIONS", token)} == {"U"}
    world.headgate.logout(top)
    for token in (world.root, world.login("al"), world.login("al", "C")):
        assert "overlord" not in str(world.run("SHOW AUDIT LIMIT 1000", token))
    assert "overlord" in str(world.run("SHOW AUDIT LIMIT 1000", world.login("al", "T")))


def test_default_rights_do_not_lift_a_high_object_into_a_low_view(world: World) -> None:
    world.run("CREATE ROLE r; GRANT ROLE r TO USER al; GRANT ROLE r TO USER bob; SET SYSTEM default_rights = 'ROLE'")
    al, bob = (world.headgate.login(user, PASSWORD, level=parse_level("S")) for user in ("al", "bob"))
    world.run("CREATE STREAM shared (a INT)", al)
    assert world.headgate.check(bob, Permission.READ_TUPLE, Kind.STREAM, "shared")
    low = world.login("bob")
    assert not world.headgate.check(low, Permission.READ_TUPLE, Kind.STREAM, "shared")
    assert world.run("SHOW GRANTS", low) == world.run("SHOW GRANTS", world.login("al"))


def test_nobody_logs_in_above_or_beside_the_clearance(world: World) -> None:
    world.run("CREATE COMPARTMENT X; CREATE LEVEL beside; ALTER USER al CLEARANCE S")
    for level in ("T", "S{X}", "C{X}", "U{X}", "beside", "nosuch", "S{nosuch}"):
        with pytest.raises(HeadgateError):
            world.login("al", level)


def test_a_query_running_at_a_high_level_does_not_use_up_the_limit_of_a_low_one(world: World) -> None:
    world.run("CREATE ROLE trader MAX QUERIES 1; GRANT ROLE trader TO USER al")
    low, high = world.login("al"), world.login("al", "S")
    world.run("CREATE STREAM i (a INT); CREATE QUERY q READING i OUTPUT o", low)
    world.run("CREATE QUERY q READING i OUTPUT o; START QUERY q", high)
    world.run("START QUERY q", low)


def test_an_administrator_does_not_learn_names_of_high_objects_by_reassigning_them(world: World) -> None:
    for user in ("al", "bob"):
        world.run("CREATE STREAM overlord (a INT)", world.login(user, "S"))
    with suppress(HeadgateError):
        world.run("DROP USER al REASSIGN TO bob")
    assert "overlord" not in str(world.records())


def test_a_new_level_in_use_changes_nothing_for_users_who_do_not_see_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.run("CREATE COMPARTMENT A; CREATE COMPARTMENT B; ALTER USER al CLEARANCE T{A, B}")
    bob, costs = world.login("bob"), []
    world.refused("DROP STREAM nosuch", bob)
    for level in ("S{A}", "S{B}", "S{A, B}", "T{A}", "T{B}", "T{A, B}"):
        world.run("CREATE STREAM s (a INT)", world.login("al", level))
        world.refused("DROP STREAM nosuch", bob)
        with counted(monkeypatch) as calls:
            world.refused("DROP STREAM nosuch", bob)
        costs.append(calls)
    assert costs[0] == costs[-1]
