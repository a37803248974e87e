"""Queries, as written: `[AS role, ...] SELECT ... [WHERE ...] FROM stream [window] [alias], ... [WHERE ...] ...`

WHERE before FROM and WHERE after FROM are kept apart: the first chooses what enters a window, the second what counts of
its content (paper 002, section 4.1).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from headgate.cql.expressions import (
    RESERVED,
    LiteralSyntax,
    NameSyntax,
    Syntax,
    read_expression,
)
from headgate.cql.names import Name, Target
from headgate.cql.reading import listed, names, object_name, whole_number
from headgate.cql.units import UNITS
from headgate.errors import Position
from headgate.lexing import STRINGS, Cursor, fail

MAX_QUERY = 50_000
MAX_SOURCES = 16
MAX_BLOCKS = 16
MAX_ITEMS = 200
LONGEST = 100_000_000 * UNITS["DAY"]
# What other languages have behind a source, by its first word, which may have been taken for a name of that source.
_INSTEAD = {
    "order": "results are ordered by time",
    "limit": "a window such as [ROWS 10] holds the last rows",
    **dict.fromkeys(["except", "intersect", "minus"], "blocks are joined by UNION ALL"),
    **dict.fromkeys(
        ["join", "inner", "left", "right", "full", "outer", "cross", "natural", "on", "using"],
        "a join lists its sources with commas: FROM a, b WHERE a.x = b.x",
    ),
    **dict.fromkeys(
        ["[", "window", "rows", "range", "partitioned"],
        "a window stands in brackets after its stream: FROM s [ROWS 10] AS x",
    ),
}

StreamOperator = Literal["ISTREAM", "DSTREAM", "RSTREAM"]
WindowKind = Literal["ROWS", "RANGE", "NOW", "UNBOUNDED", "PARTITIONED"]


@dataclass(frozen=True)
class WindowSyntax:
    """`rows` for ROWS and PARTITIONED; `range` and `slide` in milliseconds; `level` is the condition `LEVEL = ...`."""

    position: Position
    kind: WindowKind
    rows: int = 0
    range: int = 0
    slide: int = 0
    columns: tuple[NameSyntax, ...] = ()
    level: LiteralSyntax | None = None


@dataclass(frozen=True)
class SourceSyntax:
    target: Target
    window: WindowSyntax | None
    alias: Name | None


@dataclass(frozen=True)
class ItemSyntax:
    """An expression with its name, or all columns of a source (`star`; of all sources if `qualifier` is None)."""

    position: Position
    expression: Syntax | None
    name: Name | None
    star: bool = False
    qualifier: Name | None = None


@dataclass(frozen=True)
class BlockSyntax:
    position: Position
    operator: StreamOperator | None
    distinct: bool
    items: tuple[ItemSyntax, ...]
    before: Syntax | None
    sources: tuple[SourceSyntax, ...]
    after: Syntax | None
    groups: tuple[NameSyntax, ...]
    having: Syntax | None


@dataclass(frozen=True)
class QuerySyntax:
    position: Position
    roles: tuple[Name, ...]
    blocks: tuple[BlockSyntax, ...]


def parse_query(text: str) -> QuerySyntax:
    """One query and nothing else."""
    if len(text) > MAX_QUERY:
        raise fail(text, MAX_QUERY, f"a query must not be longer than {MAX_QUERY} characters")
    cursor = Cursor(text)
    query = read_query(cursor)
    cursor.take_symbol(";")
    if not cursor.ended:
        raise cursor.expected("the end of the text")
    return query


def read_query(c: Cursor) -> QuerySyntax:
    at = c.position
    roles = names(c, "the name of a role") if c.take_word("AS") else ()
    return QuerySyntax(at, roles, read_blocks(c))


def read_blocks(c: Cursor) -> tuple[BlockSyntax, ...]:
    first = c.token.offset
    blocks = [_block(c)]
    while c.take_word("UNION"):
        c.expect_word("ALL")
        if len(blocks) == MAX_BLOCKS:
            raise fail(c.text, c.token.offset, f"a query must not have more than {MAX_BLOCKS} blocks")
        blocks.append(_block(c))
    _check_end(c, first)
    return tuple(blocks)


def _check_end(c: Cursor, first: int) -> None:
    """Whatever goes on as SQL might is told what there is instead."""
    before, found = c.tokens[c.index - 1], c.token
    if before.end - first > MAX_QUERY:
        raise fail(c.text, first + MAX_QUERY, f"a query must not be longer than {MAX_QUERY} characters")
    alias = before.text if before.kind == "name" and found.kind not in ("end", "symbol") else ""
    if hint := _INSTEAD.get(found.text.lower()) or _INSTEAD.get(alias.lower()):
        raise fail(c.text, found.offset, f"expected the end of the query, found {found.shown()}", hint=hint)


def _block(c: Cursor) -> BlockSyntax:
    at = c.position
    c.expect_word("SELECT")
    operator = _stream_operator(c)
    distinct = c.take_word("DISTINCT")
    items = _items(c)
    before = read_expression(c) if c.take_word("WHERE") else None
    if not c.take_word("FROM"):
        raise c.expected(*_before_from(items[-1], before))
    sources = listed(c, _source)
    if len(sources) > MAX_SOURCES:
        offset = sources[MAX_SOURCES].target.position.offset
        raise fail(c.text, offset, f"a query must not read more than {MAX_SOURCES} sources")
    after = read_expression(c) if c.take_word("WHERE") else None
    groups: tuple[NameSyntax, ...] = ()
    if c.take_word("GROUP"):
        c.expect_word("BY")
        groups = listed(c, _column)
    having = read_expression(c) if c.take_word("HAVING") else None
    return BlockSyntax(at, operator, distinct, items, before, sources, after, groups, having)


def _before_from(last: ItemSyntax, before: Syntax | None) -> list[str]:
    """What could have stood where FROM is missing."""
    if before is not None:
        return ["`FROM`"]
    more = [] if last.star and last.qualifier is None else ["`,`"]
    named = ["`AS`"] if last.expression is not None and last.name is None else []
    return [*more, *named, "`WHERE`", "`FROM`"]


def _stream_operator(c: Cursor) -> StreamOperator | None:
    if c.take_word("ISTREAM"):
        return "ISTREAM"
    if c.take_word("DSTREAM"):
        return "DSTREAM"
    return "RSTREAM" if c.take_word("RSTREAM") else None


def _items(c: Cursor) -> tuple[ItemSyntax, ...]:
    at = c.position
    if c.take_symbol("*"):
        return (ItemSyntax(at, None, None, star=True),)
    items = listed(c, _item)
    if len(items) > MAX_ITEMS:
        offset = items[MAX_ITEMS].position.offset
        raise fail(c.text, offset, f"a query must not have more than {MAX_ITEMS} results")
    return items


def _item(c: Cursor) -> ItemSyntax:
    at = c.position
    if [(t.kind, t.text) for t in c.tokens[c.index + 1 : c.index + 3]] == [("symbol", "."), ("symbol", "*")]:
        qualifier = Name(c.expect_column("the name of a source", RESERVED), at)
        c.expect_symbol(".")
        c.expect_symbol("*")
        return ItemSyntax(at, None, None, star=True, qualifier=qualifier)
    expression = read_expression(c)
    name = None
    if c.take_word("AS"):
        position = c.position
        name = Name(c.expect_column("a name for this result", RESERVED), position)
    return ItemSyntax(at, expression, name)


def _source(c: Cursor) -> SourceSyntax:
    target = object_name(c, "STREAM")
    window = _window(c) if c.at_symbol("[") else None
    named = c.take_word("AS")
    position = c.position
    if named or c.token.kind == "backquoted" or _plain_alias(c):
        return SourceSyntax(target, window, Name(c.expect_column("another name for this source", RESERVED), position))
    return SourceSyntax(target, window, None)


def _plain_alias(c: Cursor) -> bool:
    return c.token.kind == "name" and c.token.text.upper() not in RESERVED


def _window(c: Cursor) -> WindowSyntax:
    at = c.position
    c.expect_symbol("[")
    window = _window_kind(c, at)
    level = None
    if c.take_word("LEVEL"):
        c.expect_symbol("=")
        position = c.position
        if c.token.kind not in STRINGS:
            raise c.expected("a level in quotes")
        level = LiteralSyntax(position, c.next().text)
    if not c.take_symbol("]"):
        if level:
            raise c.expected("`]`", hint="a window has one level; write several with WHERE, as LEVEL IN ('S', 'C')")
        raise c.expected("`LEVEL`", "`]`")
    return WindowSyntax(at, window.kind, window.rows, window.range, window.slide, window.columns, level)


def _window_kind(c: Cursor, at: Position) -> WindowSyntax:
    if c.take_word("ROWS"):
        return WindowSyntax(at, "ROWS", rows=_at_least_one(c))
    if c.take_word("RANGE"):
        range_ = duration(c)
        return WindowSyntax(at, "RANGE", range=range_, slide=duration(c) if c.take_word("SLIDE") else 0)
    if c.take_word("NOW"):
        return WindowSyntax(at, "NOW")
    if c.take_word("UNBOUNDED"):
        return WindowSyntax(at, "UNBOUNDED")
    if c.take_word("PARTITIONED"):
        c.expect_word("BY")
        columns = listed(c, _column)
        c.expect_word("ROWS")
        return WindowSyntax(at, "PARTITIONED", rows=_at_least_one(c), columns=columns)
    raise c.expected("`ROWS`", "`RANGE`", "`NOW`", "`UNBOUNDED`", "`PARTITIONED BY`")


def _at_least_one(c: Cursor) -> int:
    at = c.token.offset
    number = whole_number(c, "a number of rows")
    if number < 1:
        raise fail(c.text, at, "a window holds at least one row")
    return number


def duration(c: Cursor) -> int:
    at = c.token.offset
    number = whole_number(c, "a length of time, such as `2 MINUTES`")
    for unit, milliseconds in UNITS.items():
        if c.take_word(unit) or c.take_word(f"{unit}S"):
            if number < 1:
                raise fail(c.text, at, "a length of time is at least 1 MILLISECOND")
            if number * milliseconds > LONGEST:
                raise fail(c.text, at, f"a length of time is at most {LONGEST // UNITS['DAY']} DAYS")
            return number * milliseconds
    raise c.expected(*(f"`{unit}S`" for unit in UNITS))


def _column(c: Cursor) -> NameSyntax:
    at = c.position
    first = c.expect_column("the name of a column", RESERVED)
    if c.take_symbol("."):
        return NameSyntax(at, first, c.expect_column("the name of a column", RESERVED))
    return NameSyntax(at, None, first)
