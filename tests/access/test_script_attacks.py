"""Texts that break out of where they stand, and small ones that make much work."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from counting import counted

from headgate.cql.parser import parse_script
from headgate.errors import AuthenticationFailed, HeadgateError, TextError
from headgate.labels import parse_label, roles
from headgate.service import scripts

from .attacked import World


def test_names_do_not_carry_escapes_lines_or_sql(world: World) -> None:
    for name in ("a\x1b[2J", "a\nb", "a\u200bb", "a‮b", "a\0", "a\u2028b"):
        assert isinstance(world.refused(f'CREATE STREAM "{name}" (a INT)'), TextError)
    hostile = """x'); DROP TABLE users; --"" OR 1=1 %s {0} :a"""
    world.run(f'CREATE STREAM "{hostile}" (a INT); CREATE ROLE "{hostile}"; CREATE USER "{hostile}"')
    world.run(f'GRANT VIEW OBJECT ON STREAM "{hostile}" TO "{hostile}"; GRANT ROLE "{hostile}" TO USER "{hostile}"')
    assert world.run("SHOW STREAMS")[0][0] == hostile.replace('""', '"') and world.headgate.verify_audit() == []


def test_limits_of_grants_do_not_carry_escapes_to_other_peoples_terminals(world: World) -> None:
    bob = world.login("bob")
    told = []
    for script, token in (
        ("GRANT USE ON OPERATOR aggregate TO PUBLIC WITH (functions = ('AVG\n\x1b[2J'))", world.root),
        ("CREATE STREAM i (a INT); CREATE QUERY q READING i USING aggregate OUTPUT o", bob),
        ("SHOW OPERATORS", bob),
        ("SHOW GRANTS ON OPERATOR aggregate", bob),
    ):
        try:
            told += [cell for row in world.run(script, token) for cell in row]
        except HeadgateError as error:
            told.append(str(error))
    assert all(text.isprintable() for text in told)


@pytest.mark.parametrize("written", ['"hunter two"', "hunter"])
def test_a_password_in_the_wrong_quotes_is_not_repeated(world: World, written: str) -> None:
    assert "hunter" not in str(world.refused(f"ALTER USER al PASSWORD {written}"))


@pytest.mark.parametrize(
    "act",
    [
        lambda w, _: w.headgate.login("al", "\ud800 password"),
        lambda w, _: w.headgate.execute("\ud800", "SHOW CATALOG"),
        lambda w, _: w.headgate.principal("\ud800"),
        lambda w, _: w.headgate.logout("\ud800"),
        lambda w, t: w.run("ALTER USER al PASSWORD 'password \ud800'", t),
        lambda w, t: w.run("ALTER USER al ADD KEY '\ud800'", t),
    ],
    ids=["password", "token", "token of a check", "token of a logout", "new password", "key"],
)
def test_half_characters_do_not_raise_what_nobody_expects(world: World, act: Callable[[World, str], object]) -> None:
    with pytest.raises(HeadgateError):
        act(world, world.login("al"))


@pytest.mark.parametrize(
    "text",
    [
        "/* " * 100_000,
        "-- /*" * 100_000 + "\n/*",
        '"' * 99_999,
        "'" * 99_999,
        "'" + "''" * 50_000,
        "(" * 100_000,
        "SHOW GRANTS ON " + "a." * 50_000,
        "CREATE STREAM s (a INT LABEL '" + "(" * 9_000 + "')",
        "CREATE USER u CLEARANCE S{" + "a," * 50_000,
        "SET ROLE " + "a," * 100_000,
        "9" * 100_000,
        "1e999999999",
        ";" * 100_000 + "x",
    ],
)
def test_a_hostile_text_does_not_hold_the_parser(text: str) -> None:
    with pytest.raises(TextError):
        parse_script(text)


def test_a_stranger_cannot_make_the_parser_work(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[str] = []

    def parse(script: str) -> object:
        parsed.append(script)
        return parse_script(script)

    monkeypatch.setattr(scripts, "parse_script", parse)
    with pytest.raises(AuthenticationFailed):
        world.headgate.execute("not a token", "SHOW ROLES;" * 1000)
    assert not parsed


def test_a_script_cannot_have_tens_of_thousands_of_statements() -> None:
    """Each takes its turn under the one lock, keeps its answer in memory and leaves a record."""
    with pytest.raises(TextError):
        parse_script("SHOW ROLES;" * 50_000)


@pytest.mark.parametrize(
    "script",
    ["ALTER USER al" + " PASSWORD 'correct horse'" * 500, "ALTER USER al PASSWORD 'correct horse';" * 500],
    ids=["one statement", "many statements"],
)
def test_one_script_cannot_make_the_system_hash_for_hours(world: World, script: str) -> None:
    """Hashing is slow on purpose, and here it happens while everyone else waits."""
    al, before = world.login("al"), world.passwords.hashed
    with suppress(HeadgateError):
        world.run(script, al)
    assert world.passwords.hashed - before <= 20


def test_one_small_script_cannot_fill_the_memory_with_answers(world: World) -> None:
    al = world.login("al")
    world.run("SHOW SESSION;" * 200, al)
    try:
        results = world.headgate.execute(al, "SHOW AUDIT LIMIT 10000;" * 200)
    except HeadgateError:
        return
    assert sum(len(result.rows) for result in results) <= 10_000


def test_one_statement_cannot_write_a_million_rights(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    al = world.login("al")
    world.run("CREATE STREAM s (a INT)", al)
    names = ", ".join(["PUBLIC"] * 200)
    with counted(monkeypatch) as calls, suppress(HeadgateError):
        world.run(f"GRANT {', '.join(['VIEW OBJECT'] * 200)} ON STREAM s TO {names}", al)
    assert calls["Table.put"] <= 1000


def test_a_long_alternative_is_not_reduced_again_for_each_of_its_members(monkeypatch: pytest.MonkeyPatch) -> None:
    work: list[int] = []
    real = roles._minimal

    def minimal(terms: Any) -> Any:
        work.append(len(terms))
        return real(terms)

    monkeypatch.setattr(roles, "_minimal", minimal)
    names = [f"r{i}" for i in range(100)]
    with suppress(HeadgateError):
        parse_label("|".join(names * 20))
    assert sum(work) <= 20_000


def test_making_a_stream_again_and_again_does_not_get_slower(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    al, again = world.login("al"), "CREATE STREAM s (a INT); DROP STREAM s;"
    with counted(monkeypatch) as first:
        world.run(again * 50, al)
    world.run(again * 200, al)
    with counted(monkeypatch) as last:
        world.run(again * 50, al)
    assert last["Table.get"] <= first["Table.get"] + 100
