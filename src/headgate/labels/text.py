"""The text form of labels; SPEC.md has the grammar.

    roles [AT level, ...] [FROM source, ...]        (doctor & nurse) | chief AT S{NATO} FROM ward1

The whole text is read even where the outcome is already known, so that an error is found wherever it stands. Most
labels of a stream have one plain form, which a regular expression reads at once; the grammar reads all other texts and
reports all errors.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import TypeVar

from headgate.errors import LabelError, Position, TextError
from headgate.labels.conjunction import Conjunction
from headgate.labels.label import Label
from headgate.labels.levels import LEAST, Level, LevelOrder
from headgate.labels.roles import FALSE, MAX_TERMS, RESERVED, TRUE, RoleExpression
from headgate.lexing import MAX_NAME, Cursor, fail

MAX_TEXT = 10_000
MAX_DEPTH = 64
MAX_LEVELS = 64

# The plain form: alternatives of plain names, levels without compartments, sources. Every `+` after a quantifier makes
# it possessive, so that no text takes more than linear time.
_SPACE = r"[ \t\r\n]*+"
_NAME = rf"(?!(?i:{'|'.join(sorted(RESERVED))})\b)[A-Za-z_][A-Za-z0-9_]{{0,{MAX_NAME - 1}}}+{_SPACE}"
_TERM = rf"{_NAME}(?:&{_SPACE}{_NAME})*+"
_ALTERNATIVE = rf"(?:{_TERM}|\({_SPACE}{_TERM}\){_SPACE})"
_LIST = rf"{_SPACE}({_NAME}(?:,{_SPACE}{_NAME})*+)"
_PLAIN = re.compile(
    rf"{_SPACE}({_ALTERNATIVE}(?:\|{_SPACE}{_ALTERNATIVE})*+)(?:(?i:AT)\b{_LIST})?(?:(?i:FROM)\b{_LIST})?", re.ASCII
)

T = TypeVar("T")


def parse_roles(text: str) -> RoleExpression:
    return _whole(text, _only_roles)


def parse_level(text: str, order: LevelOrder | None = None) -> Level:
    """Reads a level; with an order, the order must know it."""
    return _whole(text, lambda cursor: _only_level(cursor, order))


def parse_label(text: str, order: LevelOrder | None = None) -> Label:
    """Reads a label; with an order, its levels must be known and only the maximal ones are kept."""
    plain = parse_plain_label(text, order)
    return plain if plain is not None else parse_any_label(text, order)


def parse_any_label(text: str, order: LevelOrder | None = None, limit: int = MAX_TEXT) -> Label:
    """Reads a label by the whole grammar. `limit` is raised for texts that Headgate printed itself."""
    return _whole(text, lambda cursor: _read_label(cursor, order), limit)


def parse_plain_label(text: str, order: LevelOrder | None = None) -> Label | None:
    """Reads a label in the plain form, many times faster; None for any other text, valid or not."""
    match = _PLAIN.fullmatch(text) if len(text) <= MAX_TEXT else None
    if match is None:
        return None
    roles, levels, sources = match.groups()
    terms = [term.split("&") for term in _bare(roles).split("|")]
    names = _bare(levels).split(",") if levels else []
    if len(terms) > MAX_TERMS or (order is not None and not all(name in order for name in names)):
        return None
    return _label(RoleExpression.of(terms), map(Level, names), _bare(sources).split(",") if sources else (), order)


def _bare(part: str) -> str:
    """A part without spaces and parentheses, which have no meaning in the plain form."""
    return "".join(part.split()).replace("(", "").replace(")", "")


def _label(roles: RoleExpression, levels: Iterable[Level], sources: Iterable[str], order: LevelOrder | None) -> Label:
    written = set(levels)
    if len(written - {LEAST}) > MAX_LEVELS:
        raise LabelError(f"a label must not have more than {MAX_LEVELS} levels")
    kept = (order or LevelOrder()).maximal(written)
    return Label(Conjunction.of(roles), kept, frozenset(sources))


def _whole(text: str, read: Callable[[Cursor], T], limit: int = MAX_TEXT) -> T:
    """Reads a text; every error becomes a LabelError with a position."""
    if len(text) > limit:
        message = f"a label text must not be longer than {limit} characters"
        raise LabelError(message, position=Position.of(text, limit))
    try:
        return read(Cursor(text))
    except (TextError, LabelError) as error:
        position = error.position or Position.of(text, 0)
        raise LabelError(error.message, position=position, hint=error.hint) from None


def _end(cursor: Cursor, *or_else: str) -> None:
    if cursor.token.kind != "end":
        raise cursor.expected(*or_else, "the end of the text")


def _only_roles(cursor: Cursor) -> RoleExpression:
    roles = read_roles(cursor)
    _end(cursor, "`&`", "`|`")
    return roles


def _only_level(cursor: Cursor, order: LevelOrder | None) -> Level:
    level = read_level(cursor, order)
    _end(cursor)
    return level


def _read_label(cursor: Cursor, order: LevelOrder | None) -> Label:
    roles = read_roles(cursor)
    levels: list[Level] = []
    sources: list[str] = []
    follow = ["`&`", "`|`", "`AT`", "`FROM`"]
    if cursor.take_word("AT"):
        levels.append(read_level(cursor, order))
        while cursor.take_symbol(","):
            levels.append(read_level(cursor, order))
        follow = ["`,`", "`FROM`"]
    if cursor.take_word("FROM"):
        sources.append(cursor.expect_name("a source", RESERVED))
        while cursor.take_symbol(","):
            sources.append(cursor.expect_name("a source", RESERVED))
        follow = ["`,`"]
    _end(cursor, *follow)
    return _label(roles, levels, sources, order)


def read_roles(cursor: Cursor, depth: int = 0) -> RoleExpression:
    """Reads a role expression; `&` binds stronger than `|`, as usual."""
    start = cursor.token.offset
    try:
        alternatives = [_read_conjunction(cursor, depth)]
        while cursor.take_symbol("|"):
            alternatives.append(_read_conjunction(cursor, depth))
        return RoleExpression.any_of(alternatives)
    except LabelError as error:
        raise fail(cursor.text, start, error.message) from None


def _read_conjunction(cursor: Cursor, depth: int) -> RoleExpression:
    value = _read_role(cursor, depth)
    while cursor.take_symbol("&"):
        value = value & _read_role(cursor, depth)
    return value


def _read_role(cursor: Cursor, depth: int) -> RoleExpression:
    if cursor.at_symbol("("):
        if depth >= MAX_DEPTH:
            raise fail(cursor.text, cursor.token.offset, f"parentheses are nested deeper than {MAX_DEPTH}")
        cursor.next()
        value = read_roles(cursor, depth + 1)
        if not cursor.take_symbol(")"):
            raise cursor.expected("`&`", "`|`", "`)`")
        return value
    if cursor.take_word("TRUE"):
        return TRUE
    if cursor.take_word("FALSE"):
        return FALSE
    if cursor.token.kind == "quoted" or (cursor.token.kind == "name" and cursor.token.text.upper() not in RESERVED):
        return RoleExpression.role(cursor.next().text)
    raise cursor.expected("a role", "`(`", "`TRUE`", "`FALSE`")


def read_level(cursor: Cursor, order: LevelOrder | None) -> Level:
    start = cursor.token.offset
    name = cursor.expect_name("a level", RESERVED)
    if order is not None and name not in order:
        raise fail(cursor.text, start, f"unknown level `{name}`")
    compartments = []
    if cursor.take_symbol("{"):
        compartments.append(cursor.expect_name("a compartment"))
        while cursor.take_symbol(","):
            compartments.append(cursor.expect_name("a compartment"))
        if not cursor.take_symbol("}"):
            raise cursor.expected("`,`", "`}`")
    return Level(name, frozenset(compartments))
