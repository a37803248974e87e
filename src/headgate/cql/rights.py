"""GRANT, REVOKE, SET, SHOW and DESCRIBE: how each is read."""

from __future__ import annotations

from headgate.cql import statements as s
from headgate.cql.reading import (
    Reader,
    limits,
    listed,
    name,
    names,
    object_name,
    table_hint,
    target,
    targets,
    whole_number,
)
from headgate.errors import Position, TextError
from headgate.lexing import Cursor, fail

MOST_RECORDS = 10_000
PERMISSIONS = (
    "VIEW CATALOG",
    "VIEW OBJECT",
    "VIEW AUDIT",
    "ADD",
    "SET QUERY STATUS",
    "SUBSCRIBE",
    "READ TUPLE",
    "AGGREGATE READ",
    "PUBLISH",
    "CHANGE PERM",
    "CHANGE SYSTEM",
    "USE",
)
SHOWN = (
    "CATALOG",
    "SCHEMAS",
    "STREAMS",
    "QUERIES",
    "OPERATORS",
    "USERS",
    "ROLES",
    "SEPARATIONS",
    "LEVELS",
    "COMPARTMENTS",
    "GRANTS",
    "PERMISSIONS",
    "POLICIES",
    "STATEMENTS",
    "SESSION",
    "SESSIONS",
    "SUBSCRIPTIONS",
    "DEADLINES",
    "SYSTEM",
    "AUDIT",
)


DESCRIBED = ("SCHEMA", "STREAM", "QUERY")


def permission(c: Cursor) -> str:
    for known in PERMISSIONS:
        if c.take_word(*known.split()):
            return known
    raise _no_permission(c)


def _no_permission(c: Cursor, *others: str) -> TextError:
    meant = c.at_word("SELECT") or c.at_word("ALL") or c.at_word("READ")
    hint = "did you mean READ TUPLE?" if meant else ""
    return c.expected(*others, *(f"`{known}`" for known in PERMISSIONS), hint=hint)


def _grant(revoke: bool) -> Reader:
    preposition = "FROM" if revoke else "TO"

    def roles(c: Cursor, at: Position) -> s.Statement:
        granted = names(c, "the name of a role")
        c.expect_word(preposition)
        if c.take_word("USER"):
            return s.GrantRoles(at, granted, names(c, "the name of a user"), (), revoke)
        if c.take_word("ROLE"):
            return s.GrantRoles(at, granted, (), names(c, "the name of a role"), revoke)
        raise c.expected("`USER`", "`ROLE`")

    def grant(c: Cursor, at: Position) -> s.Statement:
        if c.take_word("ROLE"):
            return roles(c, at)
        if not any(c.at_word(*known.split()) for known in PERMISSIONS):
            raise _no_permission(c, "`ROLE`")
        permissions = listed(c, permission)
        c.expect_word("ON")
        on = targets(c)
        c.expect_word(preposition)
        if c.at_word("USER") and c.tokens[c.index + 1].kind in ("name", "quoted") and not c.at_word("USER", "WITH"):
            hint = "write the name of a role, and GRANT ROLE ... TO USER ... who shall have it"
            raise fail(c.text, c.token.offset, "roles hold permissions, users do not", hint)
        c.take_word("ROLE")
        grantees = names(c, "the name of a role")
        limited = limits(c) if not revoke and c.take_word("WITH") else {}
        return s.GrantPermissions(at, permissions, on, grantees, limited, revoke)

    return grant


def _set(c: Cursor, at: Position) -> s.Statement:
    if c.take_word("ROLE"):
        if c.take_word("ALL"):
            return s.SetRoles(at, None)
        if c.take_word("NONE"):
            return s.SetRoles(at, ())
        return s.SetRoles(at, names(c, "the name of a role, `ALL` or `NONE`"))
    if c.take_word("SYSTEM"):
        parameter = name(c, "the name of a system parameter")
        c.expect_symbol("=")
        if c.token.kind not in ("number", "string"):
            raise c.expected("a number", "a string")
        return s.SetSystem(at, parameter, c.next().text)
    raise c.expected("`ROLE`", "`SYSTEM`")


def _show(c: Cursor, at: Position) -> s.Statement:
    for what in SHOWN:
        if c.take_word(what):
            on = target(c) if what == "GRANTS" and c.take_word("ON") else None
            limit = (
                whole_number(c, "a whole number", MOST_RECORDS) if what == "AUDIT" and c.take_word("LIMIT") else None
            )
            return s.Show(at, what, on, limit)
    raise c.expected(*(f"`{what}`" for what in SHOWN), hint=table_hint(c))


def _describe(c: Cursor, at: Position) -> s.Statement:
    """The kind need not be given: a query and its output have the same name most often, and both are described."""
    kind = next((x for x in DESCRIBED if c.take_word(x)), None)
    found = object_name(c, kind or "STREAM")
    return s.Describe(at, (kind,) if kind else DESCRIBED, found.name, found.owner)


READERS: dict[tuple[str, ...], Reader] = {
    ("GRANT",): _grant(revoke=False),
    ("REVOKE",): _grant(revoke=True),
    ("SET",): _set,
    ("SHOW",): _show,
    ("DESCRIBE",): _describe,
}
