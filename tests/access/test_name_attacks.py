"""Finding out which hidden names exist: by answers, listings, ambiguity, or the work that they take (SPEC 3.1)."""

from __future__ import annotations

from collections import Counter

import pytest
from counting import counted

from headgate.access.permissions import Kind, Permission
from headgate.errors import Conflict, HeadgateError, NotFound

from .attacked import World, seen_by

NAMING = [
    "GRANT READ TUPLE ON STREAM {0} TO PUBLIC",
    "GRANT USE ON STREAM {0} TO PUBLIC",
    "GRANT READ TUPLE ON STREAM {0} TO nobody",
    "REVOKE READ TUPLE ON STREAM {0} FROM PUBLIC",
    "GRANT VIEW OBJECT ON SCHEMA {0} TO PUBLIC",
    "GRANT SET QUERY STATUS ON QUERY {0} TO PUBLIC",
    "SHOW GRANTS ON STREAM {0}",
    "SHOW GRANTS ON SCHEMA {0}",
    "SHOW GRANTS ON QUERY {0}",
    "ALTER STREAM {0} LABEL 'TRUE'",
    "ALTER STREAM {0} SEMANTICS WEAK",
    "ALTER STREAM {0} ADD COLUMN more INT",
    "GRANT READ TUPLE ON STREAM mine, {0} TO PUBLIC",
    "DESCRIBE {0}",
    "DESCRIBE STREAM {0}",
    "DESCRIBE QUERY {0}",
    "ALTER SCHEMA {0} ADD COLUMN a INT",
    "ALTER SCHEMA {0} DROP COLUMN a",
    "DROP STREAM {0}",
    "DROP SCHEMA {0}",
    "DROP QUERY {0}",
    "START QUERY {0}",
    "STOP QUERY {0}",
    "CREATE STREAM other SCHEMA {0}",
    "CREATE QUERY other READING {0} OUTPUT result",
    "CREATE QUERY other READING mine, {0} USING nosuch OUTPUT result",
]


def make_everything(world: World, token: str, name: str) -> None:
    """A schema, a stream and a query of one name."""
    world.run(
        f"CREATE SCHEMA {name} (a INT); CREATE STREAM {name} (a INT);"
        f"CREATE QUERY {name} READING {name} OUTPUT {name}_out; START QUERY {name}",
        token,
    )


@pytest.mark.parametrize("hiding", ["no right", "too high", "own, too high"])
@pytest.mark.parametrize("statement", NAMING)
def test_a_hidden_name_and_a_missing_one_cannot_be_told_apart(
    world: World, monkeypatch: pytest.MonkeyPatch, statement: str, hiding: str
) -> None:
    """Neither by what is answered or recorded, nor by the work that was done."""
    owner = "bob" if hiding == "own, too high" else "al"
    make_everything(world, world.login(owner, "U" if hiding == "no right" else "S"), "hidden")
    bob = world.login("bob")
    world.run("CREATE STREAM mine (a INT)", bob)

    def told(name: str, written: str) -> tuple[str, Counter[str]]:
        with counted(monkeypatch) as calls:
            seen = seen_by(lambda: world.run(statement.format(written), bob))
        return str((seen, world.records())).replace(name, "NAME"), calls

    for written in ("{0}", "al.{0}", "bob.{0}", "nosuch.{0}"):
        assert told("hidden", written.format("hidden")) == told("absent", written.format("absent"))


@pytest.mark.parametrize(("level", "granted"), [("U", False), ("S", False), ("S", True)])
def test_asking_why_or_checking_does_not_find_hidden_names(world: World, level: str, granted: bool) -> None:
    al = world.login("al", level)
    make_everything(world, al, "hidden")
    if granted:
        world.run("GRANT VIEW OBJECT, READ TUPLE ON STREAM hidden TO PUBLIC", al)
    bob = world.login("bob")
    answers = []
    for name in ("hidden", "absent"):
        decision = world.headgate.check(bob, Permission.READ_TUPLE, Kind.STREAM, name)
        asked = [
            seen_by(lambda who=who, name=name: world.why(bob, who, Permission.READ_TUPLE, f"stream {name}"))  # type: ignore[misc]
            for who in ("bob", "al", "nosuch")
        ]
        streams = seen_by(lambda name=name: world.headgate.streams(bob, [name]))  # type: ignore[misc]
        answers.append(str((bool(decision), decision, asked, streams, world.records())).replace(name, "NAME"))
    assert answers[0] == answers[1]


def test_creating_a_name_does_not_tell_whether_it_is_taken_by_somebody_else_or_higher_up(world: World) -> None:
    make_everything(world, world.login("al"), "taken")
    make_everything(world, world.login("bob", "S"), "taken")
    make_everything(world, world.login("bob"), "taken")
    assert {row[1:3] for row in world.run("SHOW CATALOG", world.login("bob"))} == {
        ("taken", "bob"),
        ("taken_out", "bob"),
    }


def test_a_hidden_namesake_does_not_make_a_name_ambiguous(world: World) -> None:
    al, bob = world.login("al"), world.login("bob")
    world.run("CREATE STREAM feed (a INT); GRANT VIEW OBJECT ON STREAM feed TO PUBLIC", al)
    world.run("CREATE STREAM feed (a INT)", world.login("eve"))
    world.run("CREATE STREAM feed (a INT); GRANT VIEW OBJECT ON STREAM feed TO PUBLIC", world.login("eve", "S"))
    assert [thing.owner for thing in world.headgate.streams(bob, ["feed"]).objects] == ["al"]


def test_a_namesake_at_the_readers_level_does_not_take_the_place_of_another(world: World) -> None:
    """SPEC 3.1: of several that are not one's own, the owner must be written."""
    for user, level in (("al", "U"), ("eve", "S")):
        token = world.login(user, level)
        world.run("CREATE STREAM feed (a INT); GRANT VIEW OBJECT, READ TUPLE ON STREAM feed TO PUBLIC", token)
    with pytest.raises(Conflict):
        world.headgate.streams(world.login("bob", "S"), ["feed"])


def test_a_name_with_its_owner_is_not_made_ambiguous_by_another_level(world: World) -> None:
    """SPEC 3.1: where several are left, the owner must be written; then it must be enough."""
    for level in ("U", "S"):
        world.run("CREATE STREAM feed (a INT); GRANT VIEW OBJECT ON STREAM feed TO PUBLIC", world.login("al", level))
    for level in ("S", "T"):
        world.run("SHOW GRANTS ON STREAM al.feed", world.login("bob", level))


def test_listings_do_not_show_count_or_name_what_is_hidden(world: World) -> None:
    make_everything(world, world.login("al"), "secret_thing")
    make_everything(world, world.login("bob", "S"), "secret_thing")
    bob = world.login("bob")
    for what in ("CATALOG", "SCHEMAS", "STREAMS", "QUERIES", "GRANTS", "PERMISSIONS", "AUDIT"):
        assert "secret" not in str(world.run(f"SHOW {what}", bob)), what


def test_a_viewed_query_does_not_name_its_hidden_streams(world: World) -> None:
    al, bob = world.login("al"), world.login("bob")
    make_everything(world, al, "q")
    world.run("GRANT VIEW OBJECT ON QUERY q TO PUBLIC", al)
    assert [row[3] + row[5] for row in world.run("SHOW QUERIES", bob)] == [""]


def test_a_listing_does_not_take_longer_for_what_it_hides(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    low, high, costs = world.login("al"), world.login("al", "S"), []
    for i in range(3):  # the first time fills caches
        with counted(monkeypatch) as calls:
            world.run("SHOW CATALOG", low)
        costs.append(calls)
        world.run("".join(f"CREATE STREAM s{i}_{n} (a INT);" for n in range(20)), high)
    assert costs[1] == costs[2]


def test_several_hidden_namesakes_cost_no_more_than_a_missing_name(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    for level in ("C", "S", "T"):
        al = world.login("al", level)
        world.run("CREATE STREAM shown (a INT); GRANT VIEW OBJECT ON STREAM shown TO PUBLIC", al)
        world.run("CREATE STREAM owned (a INT)", world.login("bob", level))
    bob, costs = world.login("bob"), {}
    for name in ("absent", "shown", "owned", "absent", "shown", "owned"):  # twice: the first time fills caches
        with counted(monkeypatch) as calls:
            world.refused(f"DROP STREAM {name}", bob)
        costs[name] = calls
    assert costs["shown"] == costs["absent"] and costs["owned"] == costs["absent"]


def test_a_user_cannot_find_users_outside_its_view(world: World) -> None:
    bob = world.login("bob")
    for script in (
        "ALTER USER {0} LOCK",
        "ALTER USER {0} PASSWORD 'a new password'",
        "DROP USER {0}",
        "DROP USER bob REASSIGN TO {0}",
        "GRANT ROLE ADMIN TO USER {0}",
        "REVOKE ROLE ADMIN FROM USER {0}",
        "ALTER ROLE ADMIN OWNER TO {0}",
        "CREATE USER {0}",
    ):
        there, missing = (seen_by(lambda n=n, s=script: world.run(s.format(n), bob)) for n in ("eve", "xyz"))  # type: ignore[misc]
        assert there == missing, script
    assert [row[0] for row in world.run("SHOW USERS", bob)] == ["bob"]


def test_nobody_is_nobody(world: World) -> None:
    """The row that counts tries for unknown names is no user: it owns nothing and is not found."""
    with pytest.raises(HeadgateError):
        world.login("", password="")
    with pytest.raises(NotFound):
        world.why(world.root, "", Permission.CHANGE_SYSTEM, "system")
    assert "" not in {row[0] for row in world.run("SHOW USERS")}


def test_owning_a_stream_does_not_show_who_exists_and_what_they_hold(world: World) -> None:
    world.run("CREATE ROLE secret_role; GRANT ROLE secret_role TO USER eve")
    bob = world.login("bob")
    world.run("CREATE STREAM mine (a INT)", bob)
    answers = []
    for user in ("eve", "xyz"):
        try:
            answers.append(str(world.why(bob, user, Permission.READ_TUPLE, "stream mine")))
        except HeadgateError as error:
            answers.append(f"{type(error)} {error}")
    assert "secret_role" not in answers[0]
    assert answers[0].replace("eve", "USER") == answers[1].replace("xyz", "USER")


def test_a_separation_does_not_name_users_to_the_owner_of_a_role(world: World) -> None:
    world.run("CREATE ROLE jr; CREATE ROLE sr; CREATE ROLE x; ALTER ROLE jr OWNER TO eve; ALTER ROLE sr OWNER TO eve")
    world.run("CREATE SEPARATION sep STATIC OF jr, x; GRANT ROLE sr TO USER bob; GRANT ROLE x TO USER bob")
    assert "bob" not in str(world.refused("GRANT ROLE jr TO ROLE sr", world.login("eve")))
