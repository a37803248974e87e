"""Gaining more than one was given: by roles, separations, limits, operators and the last administrator (SPEC 3)."""

from __future__ import annotations

import pytest
from conftest import PASSWORD

from headgate.access.authorizer import RoleLimits
from headgate.errors import AccessDenied, Conflict
from headgate.labels import parse_level

from .attacked import World


def test_a_role_owner_gains_no_role_that_belongs_to_others(world: World) -> None:
    world.run("CREATE ROLE hers; ALTER ROLE hers OWNER TO eve; CREATE ROLE other; GRANT ROLE hers TO USER eve")
    eve = world.login("eve")
    for script in (
        "GRANT ROLE ADMIN TO ROLE hers",
        "GRANT ROLE hers TO ROLE ADMIN",
        "GRANT ROLE other TO ROLE hers",
        "GRANT ROLE hers TO ROLE other",
        "GRANT ROLE ADMIN TO USER eve",
        "GRANT ROLE hers TO ROLE PUBLIC",
        "GRANT ROLE PUBLIC TO ROLE hers",
        "ALTER ROLE other OWNER TO eve",
        "ALTER ROLE PUBLIC MAX QUERIES NONE",
        "DROP ROLE PUBLIC",
        "CREATE ROLE mine",
        "SET ROLE ADMIN",
        "SET ROLE PUBLIC",
        "GRANT CHANGE SYSTEM ON SYSTEM TO hers",
    ):
        assert isinstance(world.refused(script, eve), AccessDenied | Conflict), script


def test_a_role_owner_neither_frees_itself_from_limits_nor_sets_them_for_others(world: World) -> None:
    """Of several limits the largest counts, and who has none is bound by the first: a role of one's own would free its
    owner from all others, and, granted to somebody else, end what runs there."""
    world.run("CREATE ROLE small MAX QUERIES 1 MAX STATE 10 MAX RESULTS 5; GRANT ROLE small TO USER eve")
    world.run("CREATE ROLE hers; ALTER ROLE hers OWNER TO eve")
    eve, limits = world.login("eve"), world.headgate.monitor.authorizer.limits
    world.run("GRANT ROLE hers TO USER eve; GRANT ROLE hers TO USER bob", eve)
    before = limits("eve"), limits("bob")
    for most in ("MAX QUERIES 1000000", "MAX STATE 10000000", "MAX RESULTS NONE", "MAX STATE 0"):
        assert isinstance(world.refused(f"ALTER ROLE hers {most}", eve), AccessDenied)
    assert (limits("eve"), limits("bob")) == before == (RoleLimits(1, 10, 5), RoleLimits())


def test_roles_cannot_inherit_themselves_in_a_circle(world: World) -> None:
    world.run("CREATE ROLE a; CREATE ROLE b; CREATE ROLE c; GRANT ROLE a TO ROLE b; GRANT ROLE b TO ROLE c")
    for junior, senior in (("a", "a"), ("c", "a"), ("b", "a"), ("c", "b")):
        assert isinstance(world.refused(f"GRANT ROLE {junior} TO ROLE {senior}"), Conflict)


SEPARATE = "CREATE SEPARATION sep STATIC OF a, b"

STEPS = (
    SEPARATE,
    "GRANT ROLE a TO USER bob",
    "GRANT ROLE b TO ROLE c",
    "GRANT ROLE c TO ROLE d",
    "GRANT ROLE d TO USER bob",
)


@pytest.mark.parametrize("last", range(len(STEPS)))
@pytest.mark.parametrize("one_script", [False, True])
def test_a_static_separation_is_not_passed_by_any_order_of_steps(world: World, last: int, one_script: bool) -> None:
    world.run("CREATE ROLE a; CREATE ROLE b; CREATE ROLE c; CREATE ROLE d")
    steps = [step for i, step in enumerate(STEPS) if i != last]
    if one_script:
        assert isinstance(world.refused("; ".join([*steps, STEPS[last]])), Conflict)
    else:
        for step in steps:
            world.run(step)
        assert isinstance(world.refused(STEPS[last]), Conflict)


def test_a_dynamic_separation_is_not_passed_by_login_set_role_or_later_changes(world: World) -> None:
    world.run("CREATE ROLE a; CREATE ROLE b; CREATE ROLE c; GRANT ROLE a, b, c TO USER bob")
    world.run("CREATE SEPARATION sep DYNAMIC OF a, b")
    with pytest.raises(Conflict):
        world.headgate.login("bob", PASSWORD)
    token = world.headgate.login("bob", PASSWORD, roles=frozenset({"a"}), level=parse_level("U"))
    for script in ("SET ROLE a, b", "SET ROLE ALL", "SET ROLE a; SET ROLE b, a"):
        assert isinstance(world.refused(script, token), Conflict)
    both = world.headgate.login("bob", PASSWORD, roles=frozenset({"a", "c"}), level=parse_level("U"))
    world.run("GRANT ROLE b TO ROLE c")
    assert world.alive(token) and not world.alive(both)


@pytest.mark.parametrize(
    "use",
    [
        "window",
        "window (seconds = 1)",
        "window (rows = 11)",
        "window (rows = 10.5)",
        "window (rows = '5')",
        "window (rows = ('5', '6'))",
        "window (rows = 10), window",
        'window ("r ows" = 1)',
        "aggregate",
        "aggregate (functions = 'SUM')",
        "aggregate (functions = ('AVG', 'SUM'))",
        "aggregate (functions = 3)",
        "aggregate (functions = 'avg')",
        "aggregate (groups = 1)",
        "join",
    ],
)
def test_operator_limits_are_not_passed_by_missing_or_mistyped_parameters(world: World, use: str) -> None:
    world.run("REVOKE USE ON OPERATOR join FROM PUBLIC; GRANT USE ON OPERATOR window TO PUBLIC WITH (rows = 10)")
    world.run("GRANT USE ON OPERATOR aggregate TO PUBLIC WITH (functions = ('AVG'))")
    bob = world.login("bob")
    world.run("CREATE STREAM i (a INT)", bob)
    assert isinstance(world.refused(f"CREATE QUERY q READING i USING {use} OUTPUT o", bob), AccessDenied)
    world.run("CREATE QUERY q READING i USING window (ROWS = 10), aggregate (functions = 'AVG') OUTPUT o", bob)


def test_the_limit_of_running_queries_is_not_passed_by_laying_down_the_role(world: World) -> None:
    world.run("CREATE ROLE trader MAX QUERIES 1; GRANT ROLE trader TO USER al")
    al = world.login("al")
    world.run("CREATE STREAM i (a INT); CREATE QUERY q READING i OUTPUT o; CREATE QUERY r READING i OUTPUT p", al)
    world.run("START QUERY q", al)
    world.refused("START QUERY r", al)
    world.refused("SET ROLE NONE; START QUERY r; SET ROLE ALL", al)


def test_the_limit_of_running_queries_is_not_passed_with_the_help_of_a_friend(world: World) -> None:
    world.run("CREATE ROLE trader MAX QUERIES 1; GRANT ROLE trader TO USER al; CREATE ROLE friend")
    world.run("GRANT ROLE friend TO USER bob")
    al, bob = world.login("al"), world.login("bob")
    world.run("CREATE STREAM i (a INT); CREATE QUERY q READING i OUTPUT o; CREATE QUERY r READING i OUTPUT p", al)
    world.run("START QUERY q; GRANT VIEW OBJECT, SET QUERY STATUS ON QUERY r TO friend", al)
    world.refused("START QUERY al.r", bob)


@pytest.mark.parametrize(
    "script",
    [
        "REVOKE CHANGE SYSTEM ON SYSTEM FROM ADMIN",
        "DROP ROLE ADMIN",
        "REVOKE ROLE ADMIN FROM USER root",
        "ALTER USER root LOCK",
        "CREATE USER u; GRANT ROLE ADMIN TO USER u; ALTER USER u LOCK; ALTER USER root LOCK",
        "CREATE ROLE r; GRANT CHANGE SYSTEM ON SYSTEM TO r; DROP ROLE ADMIN",
    ],
)
def test_the_last_administrator_cannot_be_removed(world: World, script: str) -> None:
    assert isinstance(world.refused(script), Conflict)
    world.run("CREATE ROLE still_here")


@pytest.mark.parametrize(
    "script",
    [
        "CREATE SEPARATION sep DYNAMIC OF ADMIN, PUBLIC",
        "CREATE ROLE a; CREATE ROLE b; GRANT ROLE a, b TO ROLE ADMIN; CREATE SEPARATION sep DYNAMIC OF a, b",
        "CREATE USER ghost; GRANT ROLE ADMIN TO USER ghost; ALTER USER root LOCK",
    ],
)
def test_the_last_administrator_cannot_be_kept_out_for_good(world: World, script: str) -> None:
    """Nobody who could still log in and change the system would be left."""
    world.refused(script)
