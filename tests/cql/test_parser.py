"""Each form of each statement is read as what it means; each mistake is refused where it stands, in the right words."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.cql.parser import MAX_SCRIPT, MAX_STATEMENTS, READERS, parse_script
from headgate.cql.reading import MAX_LIST
from headgate.cql.statements import CreateUser, GrantPermissions, Statement
from headgate.errors import HeadgateError, Position, TextError
from headgate.lexing import tokenize

from .values import plain_statement, positions

HERE = Path(__file__).parent
STATEMENTS: list[dict[str, Any]] = json.loads((HERE / "statements.json").read_text(encoding="utf-8"))
ERRORS: list[dict[str, Any]] = json.loads((HERE / "errors.json").read_text(encoding="utf-8"))


def one(text: str) -> Statement:
    (statement,) = parse_script(text)
    return statement


def refusal(text: str) -> TextError:
    with pytest.raises(TextError) as caught:
        parse_script(text)
    return caught.value


# What is read


@pytest.mark.parametrize("case", STATEMENTS, ids=lambda case: str(case["text"]))
def test_a_statement_is_read_as_what_it_means(case: dict[str, Any]) -> None:
    assert plain_statement(one(case["text"])) == case["value"]


@pytest.mark.parametrize("case", STATEMENTS, ids=lambda case: str(case["text"]))
def test_space_comments_and_the_case_of_key_words_mean_nothing(case: dict[str, Any]) -> None:
    words = set(" ".join(" ".join(reader) for reader in READERS).split())
    pieces = [case["text"][t.offset : t.end] for t in tokenize(case["text"])]
    pieces = [piece.lower() if piece in words else piece for piece in pieces]
    assert plain_statement(one(" /* ; 'x' */\n-- \"\n".join(pieces))) == case["value"]


def test_there_is_a_case_for_every_kind_of_statement() -> None:
    every = {cls.__name__ for cls in _leaves(Statement)}
    assert {name for case in STATEMENTS for name in case["value"]} == every


def _leaves(cls: type[Statement]) -> list[type[Statement]]:
    below = cls.__subclasses__()
    return [leaf for sub in below for leaf in _leaves(sub)] if below else [cls]


def test_there_are_cases_for_every_beginning_of_a_statement() -> None:
    for table in (STATEMENTS, ERRORS):
        texts = [" ".join(case["text"].upper().split()[:4]) for case in table]
        for words in READERS:
            assert any(text.startswith(" ".join(words)) for text in texts), words


@pytest.mark.parametrize("text", ["", " ", ";", " ; ;; \n;", "-- nothing", "/* nothing */ ;"])
def test_nothing_is_an_empty_script(text: str) -> None:
    assert parse_script(text) == ()


def test_a_script_keeps_the_order_of_its_statements() -> None:
    whole = parse_script(";\n".join(case["text"] for case in STATEMENTS) + ";")
    assert [plain_statement(statement) for statement in whole] == [case["value"] for case in STATEMENTS]


# Where things stood


def test_statements_and_names_know_their_line_and_column() -> None:
    text = '-- first\nCREATE USER\n  joe;/* a\n comment */ GRANT ADD ON\tSYSTEM TO a,\r\n"b c"'
    create, grant = parse_script(text)
    assert isinstance(create, CreateUser) and isinstance(grant, GrantPermissions)
    assert create.position == Position(9, 2, 1)
    assert create.name.position == Position(text.index("joe"), 3, 3)
    assert grant.position == Position(text.index("GRANT"), 4, 13)
    assert grant.targets[0].position == Position(text.index("SYSTEM"), 4, 26)
    assert [name.position for name in grant.roles] == [
        Position(text.index("a,"), 4, 36),
        Position(text.index('"b'), 5, 1),
    ]


@pytest.mark.parametrize("space", [" ", "\n", "\r\n", "\t", "/* é\n */", "-- 😀\n", "\n\n  "])
def test_every_position_is_that_of_a_token(space: str) -> None:
    for case in STATEMENTS:
        pieces = [case["text"][t.offset : t.end] for t in tokenize(case["text"])]
        text = "SHOW ROLES;" + space + space.join(pieces)
        statement = parse_script(text)[1]
        starts = {token.offset for token in tokenize(text)}
        found = positions(statement)
        assert found[0].offset == text.index(pieces[0], len("SHOW ROLES;") + len(space))
        for place in found:
            assert place.offset in starts
            assert place == Position.of(text, place.offset)


# What is refused


@pytest.mark.parametrize("case", ERRORS, ids=lambda case: str(case["text"]))
def test_a_mistake_is_refused_where_it_stands(case: dict[str, Any]) -> None:
    error = refusal(case["text"])
    assert (error.message, error.hint) == (case["message"], case.get("hint", ""))
    assert error.position == Position.of(case["text"], case["offset"])


@pytest.mark.parametrize("case", ERRORS, ids=lambda case: str(case["text"]))
def test_a_mistake_is_found_at_the_same_place_of_a_longer_script(case: dict[str, Any]) -> None:
    before = "SHOW ROLES;\n-- é\n  "
    error = refusal(before + case["text"])
    assert error.message == case["message"]
    assert error.position == Position.of(before + case["text"], len(before) + case["offset"])


def test_every_error_is_one_line_in_lower_case() -> None:
    for case in ERRORS:
        assert re.fullmatch(r"[a-z`][^\n]*[^\n.]", case["message"])


def test_a_script_is_read_as_a_whole_before_anything_counts() -> None:
    assert refusal("SHOW ROLES; SHOW ROLES; SHOW ROLES;\nSHOW nothing").position == Position(41, 2, 6)


def test_the_longest_script_is_read_and_no_longer_one() -> None:
    assert parse_script("SHOW ROLES".ljust(MAX_SCRIPT))
    error = refusal("SHOW ROLES".ljust(MAX_SCRIPT + 1))
    assert error.message == f"a script must not be longer than {MAX_SCRIPT} characters"
    assert error.position is not None and error.position.offset == MAX_SCRIPT


def test_the_longest_list_of_statements_is_read_and_no_longer_one() -> None:
    assert len(parse_script("SHOW ROLES;" * MAX_STATEMENTS)) == MAX_STATEMENTS
    error = refusal("SHOW ROLES;" * (MAX_STATEMENTS + 1))
    assert error.message == f"a script must not have more than {MAX_STATEMENTS} statements"
    assert error.position is not None and error.position.offset == len("SHOW ROLES;") * MAX_STATEMENTS


@pytest.mark.parametrize(
    ("begin", "item", "end"),
    [
        ("SET ROLE ", "r", ""),
        ("CREATE SCHEMA s (", "c INT", ")"),
        ("CREATE QUERY q READING ", "s", " OUTPUT o"),
        ("GRANT ", "ADD", " ON SYSTEM TO r"),
        ("GRANT USE ON OPERATOR o TO r WITH (f = (", "'x'", "))"),
    ],
)
def test_a_list_has_a_limit(begin: str, item: str, end: str) -> None:
    assert one(begin + ", ".join([item] * MAX_LIST) + end)
    error = refusal(begin + ", ".join([item] * (MAX_LIST + 1)) + end)
    assert error.message == f"a list must not have more than {MAX_LIST} members"


# Strings may be passwords


SECRET = "Tr0ub4dor"
# Every place where a string can stand, right or wrong; a label is a policy, not a secret, and is explained.
HIDING = [
    "CREATE USER joe PASSWORD {}",
    "CREATE USER joe PASSWORD 'x' PASSWORD {}",
    "ALTER USER joe PASSWORD 'x' PASSWORD {}",
    "CREATE USER {}",
    "CREATE USER joe {}",
    "CREATE USER joe CLEARANCE {}",
    "ALTER USER joe PASSWORD {}",
    "ALTER USER joe PASSWORD {} PASSWORD {} {}",
    "ALTER USER joe ADD KEY {}",
    "ALTER USER joe DROP KEY {}",
    "ALTER USER joe {}",
    "SET SYSTEM secret = {}",
    "SET {}",
    "SHOW {}",
    "{}",
    "GRANT {} ON SYSTEM TO r",
    "GRANT USE ON OPERATOR o TO r WITH (f = {})",
    "GRANT USE ON OPERATOR o TO r WITH (f = ({}, {}))",
    "GRANT USE ON OPERATOR o TO r WITH ({} = 1)",
    "CREATE QUERY q READING s USING o (f = {}) OUTPUT t",
    "CREATE QUERY q READING s USING o (f = {} OUTPUT t",
    "CREATE SCHEMA s ({} INT)",
    "CREATE STREAM s (n INT) SEMANTICS {}",
]


@pytest.mark.parametrize("form", HIDING)
def test_no_error_and_no_repr_shows_a_string(form: str) -> None:
    text = form.replace("{}", f"'{SECRET}'")
    for shown in (text, text.replace(SECRET, f"{SECRET}''s"), text + " nonsense", text + " 'nonsense", text[:-1]):
        try:
            said = repr(parse_script(shown))
        except HeadgateError as error:
            said = f"{error} {error!r} {error.args} {error.message} {error.hint}"
        assert SECRET not in said, f"{shown}: {said}"


@pytest.mark.parametrize(
    "verb", ["CREATE USER joe PASSWORD", "ALTER USER joe PASSWORD", "ALTER USER joe LOCK PASSWORD"]
)
@pytest.mark.parametrize("written", [SECRET, f'"{SECRET}"', f"{SECRET}-x", "12345678", f"'{SECRET}"])
def test_a_password_in_the_wrong_quotes_is_not_repeated(verb: str, written: str) -> None:
    error = refusal(f"{verb} {written}")
    assert written.strip("'\"")[:8] not in str(error)


@settings(deadline=None, max_examples=200)
@given(st.sampled_from(HIDING), st.text(st.characters(exclude_characters="'"), min_size=4, max_size=20))
def test_no_error_shows_any_string(form: str, secret: str) -> None:
    secret = f"{secret}\u2603"  # in no text of ours
    try:
        parse_script(form.replace("{}", f"'{secret}'"))
    except HeadgateError as error:
        said = error.message.replace("a string", "").replace("in single quotes", "")
        assert secret not in said or secret in refusal(form.replace("{}", "'x'")).message
