"""Pieces that several statements share: names, lists, targets, limits."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from headgate.cql.names import Limit, Name, Target
from headgate.errors import Position
from headgate.labels.levels import Level
from headgate.labels.text import read_level
from headgate.lexing import Cursor, fail, name_fault

if TYPE_CHECKING:
    from headgate.cql.statements import Statement

Reader: TypeAlias = "Callable[[Cursor, Position], Statement]"
T = TypeVar("T")

OBJECT_KINDS = ("SCHEMA", "STREAM", "QUERY", "OPERATOR")
MAX_LIST = 1000


def name(cursor: Cursor, what: str) -> Name:
    position = cursor.position
    return Name(cursor.expect_name(what), position)


def all_of(text: str, read: Callable[[Cursor], T]) -> T:
    """What a text holds that holds nothing else."""
    cursor = Cursor(text)
    found = read(cursor)
    if not cursor.ended:
        raise cursor.expected("the end of the text")
    return found


def listed(cursor: Cursor, read: Callable[[Cursor], T]) -> tuple[T, ...]:
    items = [read(cursor)]
    while cursor.take_symbol(","):
        items.append(read(cursor))
        if len(items) > MAX_LIST:
            raise fail(cursor.text, cursor.token.offset, f"a list must not have more than {MAX_LIST} members")
    return tuple(items)


def names(cursor: Cursor, what: str) -> tuple[Name, ...]:
    return listed(cursor, lambda c: name(c, what))


def level(cursor: Cursor) -> Level:
    return read_level(cursor, None)


def string(cursor: Cursor, what: str) -> str:
    return cursor.expect_kind("string", what).text


def secret(cursor: Cursor, what: str) -> str:
    """A string that no error repeats, not even where it stands in the wrong quotes."""
    if cursor.token.kind in ("symbol", "end"):
        raise cursor.expected(what)
    if cursor.token.kind != "string":
        raise fail(cursor.text, cursor.token.offset, f"expected {what}")
    return cursor.next().text


def whole_number(cursor: Cursor, what: str, most: int | None = None) -> int:
    token = cursor.token
    if token.kind != "number" or not token.text.isdigit():
        raise cursor.expected(what)
    if most is not None and int(token.text) > most:
        raise fail(cursor.text, token.offset, f"the limit must not be more than {most}")
    cursor.next()
    return int(token.text)


def object_name(cursor: Cursor, kind: str) -> Target:
    """`name` or `owner.name`."""
    position = cursor.position
    first = cursor.expect_name(f"the name of a {kind.lower()}")
    if cursor.take_symbol("."):
        return Target(kind, cursor.expect_name(f"the name of a {kind.lower()}"), first, position)
    return Target(kind, first, None, position)


def target(cursor: Cursor) -> Target:
    """`SYSTEM`, or a kind and a name."""
    position = cursor.position
    if cursor.take_word("SYSTEM"):
        return Target("SYSTEM", "SYSTEM", None, position)
    for kind in OBJECT_KINDS:
        if cursor.take_word(kind):
            return object_name(cursor, kind)
    raise cursor.expected("`SYSTEM`", *(f"`{kind}`" for kind in OBJECT_KINDS), hint=table_hint(cursor))


def targets(cursor: Cursor) -> tuple[Target, ...]:
    """A target, and after it the names of more objects of its kind."""
    first = target(cursor)
    if first.kind == "SYSTEM" or not cursor.take_symbol(","):
        return (first,)
    return (first, *listed(cursor, lambda c: object_name(c, first.kind)))


def table_hint(cursor: Cursor) -> str:
    """For whoever writes TABLE where there is no such word."""
    found = cursor.token.text.upper().startswith("TABLE")
    return "a table is a STREAM in every statement but CREATE TABLE" if found else ""


def limits(cursor: Cursor) -> dict[str, Limit]:
    """`(rows = 100, functions = ('AVG', 'COUNT'))`, after its opening parenthesis was seen."""
    found: dict[str, Limit] = {}
    cursor.expect_symbol("(")
    while True:
        position = cursor.token.offset
        key = cursor.expect_name("the name of a limit").lower()
        if key in found:
            raise fail(cursor.text, position, f"`{key}` is given twice")
        cursor.expect_symbol("=")
        found[key] = _limit(cursor)
        if not cursor.take_symbol(","):
            break
    cursor.expect_symbol(")")
    return found


def _word(cursor: Cursor) -> str:
    """A string that may be shown to others."""
    start = cursor.token.offset
    text = string(cursor, "a string")
    if fault := name_fault(text):
        raise fail(cursor.text, start, fault.replace("a name", "a limit"))
    return text


def _limit(cursor: Cursor) -> Limit:
    if cursor.take_symbol("("):
        values = listed(cursor, _word)
        cursor.expect_symbol(")")
        return values
    if cursor.token.kind == "string":
        return (_word(cursor),)
    if cursor.token.kind != "number":
        raise cursor.expected("a number", "a string", "`(`")
    text = cursor.next().text
    return int(text) if text.isdigit() else float(text)
