"""CREATE, ALTER and DROP: how each is read (queries apart: see `continuous`)."""

from __future__ import annotations

from collections.abc import Callable

from headgate.cql import statements as s
from headgate.cql.expressions import read_type
from headgate.cql.names import Name, Target
from headgate.cql.overload import read_overload
from headgate.cql.queries import duration
from headgate.cql.reading import (
    Reader,
    level,
    listed,
    name,
    names,
    object_name,
    secret,
    string,
    whole_number,
)
from headgate.errors import LabelError, Position
from headgate.labels.label import PUBLIC, Label, Semantics
from headgate.labels.levels import Level
from headgate.labels.text import parse_label
from headgate.lexing import Cursor, fail

_ROLE_LIMITS = {"MAX QUERIES": 1_000_000, "MAX STATE": 2_000_000_000, "MAX RESULTS": 2_000_000_000}
"""What roles limit, and how much they can allow: of state and results not more than any view may have."""


def _create_user(c: Cursor, at: Position) -> s.Statement:
    user = name(c, "the name of a user")
    password = secret(c, "a password in single quotes") if c.take_word("PASSWORD") else None
    clearance = level(c) if c.take_word("CLEARANCE") else None
    return s.CreateUser(at, user, password, clearance)


_USER_CHANGES: dict[str, Callable[[Cursor], str | Level | None]] = {
    "PASSWORD": lambda c: secret(c, "a password in single quotes"),
    "CLEARANCE": level,
    "ADD KEY": lambda c: string(c, "a public key in single quotes"),
    "DROP KEY": lambda c: string(c, "a public key in single quotes"),
    "LOCK": lambda _: None,
    "UNLOCK": lambda _: None,
    "END SESSIONS": lambda _: None,
}


def _alter_user(c: Cursor, at: Position) -> s.Statement:
    user = name(c, "the name of a user")
    changes: dict[str, str | Level | None] = {}
    while True:
        start = c.token.offset
        what = next((words for words in _USER_CHANGES if c.take_word(*words.split())), None)
        if what is None:
            break
        if what in changes:
            raise fail(c.text, start, f"`{what}` is given twice")
        changes[what] = _USER_CHANGES[what](c)
    if not changes:
        raise c.expected(*(f"`{words}`" for words in _USER_CHANGES))
    return s.AlterUser(at, user, tuple(changes.items()))


def _drop_user(c: Cursor, at: Position) -> s.Statement:
    user = name(c, "the name of a user")
    if c.take_word("REASSIGN", "TO"):
        return s.DropUser(at, user, name(c, "the name of a user"), cascade=False)
    return s.DropUser(at, user, None, cascade=c.take_word("CASCADE"))


def _create_key(c: Cursor, at: Position) -> s.Statement:
    key, user = name(c, "the name of an API key"), _for_user(c)
    roles = names(c, "the name of a role") if c.take_word("ROLES") else None
    at_level = level(c) if c.take_word("LEVEL") else None
    c.expect_word("VALID")
    return s.CreateApiKey(at, key, user, roles, at_level, duration(c))


def _drop_key(c: Cursor, at: Position) -> s.Statement:
    key, user = name(c, "the name of an API key"), _for_user(c)
    return s.DropApiKey(at, key, user, level(c) if c.take_word("LEVEL") else None)


def _for_user(c: Cursor) -> Name | None:
    return name(c, "the name of a user") if c.take_word("FOR", "USER") else None


def _role_limits(c: Cursor) -> tuple[tuple[str, int | None], ...]:
    limits: dict[str, int | None] = {}
    while True:
        start = c.token.offset
        what = next((words for words in _ROLE_LIMITS if c.take_word(*words.split())), None)
        if what is None:
            return tuple(limits.items())
        if what in limits:
            raise fail(c.text, start, f"`{what}` is given twice")
        most = _ROLE_LIMITS[what]
        limits[what] = None if c.take_word("NONE") else whole_number(c, "a whole number or `NONE`", most)


def _create_role(c: Cursor, at: Position) -> s.Statement:
    return s.CreateRole(at, name(c, "the name of a role"), _role_limits(c))


def _alter_role(c: Cursor, at: Position) -> s.Statement:
    role = name(c, "the name of a role")
    if c.take_word("OWNER", "TO"):
        return s.AlterRole(at, role, (), name(c, "the name of a user"))
    limits = _role_limits(c)
    if not limits:
        raise c.expected(*(f"`{words}`" for words in _ROLE_LIMITS), "`OWNER TO`")
    return s.AlterRole(at, role, limits, None)


def _create_separation(c: Cursor, at: Position) -> s.Statement:
    separation = name(c, "the name of a separation")
    dynamic = c.take_word("DYNAMIC")
    if not dynamic and not c.take_word("STATIC"):
        raise c.expected("`STATIC`", "`DYNAMIC`")
    c.expect_word("OF")
    roles = names(c, "the name of a role")
    at_most = whole_number(c, "a whole number") if c.take_word("AT", "MOST") else 1
    return s.CreateSeparation(at, separation, dynamic, roles, at_most)


def _create_level(c: Cursor, at: Position) -> s.Statement:
    new = name(c, "the name of a level")
    return s.CreateLevel(at, new, names(c, "the name of a level") if c.take_word("ABOVE") else ())


def _alter_level(c: Cursor, at: Position) -> s.Statement:
    changed = name(c, "the name of a level")
    c.expect_word("ABOVE")
    return s.AlterLevel(at, changed, names(c, "the name of a level"))


def _label(c: Cursor) -> Label:
    """A label in single quotes; a fault inside it is reported at its place in the script."""
    start = c.token.offset + 1
    text = string(c, "a label in single quotes")
    try:
        return parse_label(text)
    except LabelError as error:
        inside = error.position.offset if error.position else 0
        doubled = text.count("'", 0, inside)
        raise fail(c.text, start + inside + doubled, error.message, error.hint) from None


def _column(c: Cursor) -> s.ColumnDeclaration:
    column = name(c, "the name of a column")
    return s.ColumnDeclaration(column, read_type(c), _label(c) if c.take_word("LABEL") else None)


def _columns(c: Cursor) -> tuple[s.ColumnDeclaration, ...]:
    c.expect_symbol("(")
    columns = listed(c, _column)
    c.expect_symbol(")")
    return columns


def _create_schema(c: Cursor, at: Position) -> s.Statement:
    return s.CreateSchema(at, name(c, "the name of a schema"), _columns(c))


def _alter_schema(c: Cursor, at: Position) -> s.Statement:
    changed = object_name(c, "SCHEMA")
    if c.take_word("ADD", "COLUMN"):
        return s.AlterSchema(at, changed, _column(c), None)
    if c.take_word("DROP", "COLUMN"):
        return s.AlterSchema(at, changed, None, name(c, "the name of a column"))
    raise c.expected("`ADD COLUMN`", "`DROP COLUMN`")


def _semantics(c: Cursor) -> Semantics:
    for semantics in Semantics:
        if c.take_word(semantics.value):
            return semantics
    raise c.expected(*(f"`{semantics.value}`" for semantics in Semantics))


def _create_stream(c: Cursor, at: Position) -> s.Statement:
    stream = name(c, "the name of a stream")
    form = _form(c)
    clauses: dict[str, object] = {}
    while not c.ended and not c.at_symbol(";"):
        _clause(c, _STREAM_CLAUSES, clauses, "`;`")
    return s.CreateStream(at, stream, *form, **_with_label_columns(clauses))  # type: ignore[arg-type]


def _create_table(c: Cursor, at: Position) -> s.Statement:
    """Its source comes last, and is always given: nobody publishes tuples to a table."""
    table = name(c, "the name of a table")
    form = _form(c)
    clauses: dict[str, object] = {}
    while "source" not in clauses:
        _clause(c, _TABLE_CLAUSES, clauses)
    return s.CreateTable(at, table, *form, **_with_label_columns(clauses))  # type: ignore[arg-type]


def _form(c: Cursor) -> tuple[tuple[s.ColumnDeclaration, ...], Target | None]:
    """Columns, or the schema that has them."""
    if c.at_symbol("("):
        return _columns(c), None
    if c.take_word("SCHEMA"):
        return (), object_name(c, "SCHEMA")
    raise c.expected("`(`", "`SCHEMA`")


def _clause(
    c: Cursor, known: dict[str, Callable[[Cursor], tuple[str, object]]], clauses: dict[str, object], *others: str
) -> None:
    start = c.token.offset
    found = next((words for words in known if c.take_word(*words.split())), None)
    if found is None:
        hint = "LABEL 'TRUE AT C' gives all tuples the level C" if c.at_word("LEVEL") else ""
        raise c.expected(*(f"`{words}`" for words in known), *others, hint=hint)
    key, value = known[found](c)
    if key in clauses:
        raise fail(c.text, start, f"`{found}` is given twice")
    clauses[key] = value


def _with_label_columns(clauses: dict[str, object]) -> dict[str, object]:
    kinds = ("LABEL", "ROLES", "LEVEL")
    rest = {key: value for key, value in clauses.items() if key not in kinds}
    return rest | {"label_columns": tuple((kind, clauses[kind]) for kind in kinds if kind in clauses)}


def _label_column(kind: str) -> Callable[[Cursor], tuple[str, object]]:
    return lambda c: (kind, name(c, "the name of a column"))


def _option(c: Cursor) -> tuple[str, str]:
    key = c.expect_name("the name of an option")
    c.expect_symbol("=")
    if c.token.kind not in ("string", "number"):
        raise c.expected("a string", "a number")
    return key, c.next().text


def _input(c: Cursor) -> s.Input:
    format_ = name(c, "the name of a format")
    options: dict[str, str] = {}
    if c.take_symbol("("):
        start = c.token.offset
        for key, value in listed(c, _option):
            if key in options:
                raise fail(c.text, start, f"option `{key}` is given twice")
            options[key] = value
        c.expect_symbol(")")
    return s.Input(format_, tuple(options.items()))


_STREAM_CLAUSES: dict[str, Callable[[Cursor], tuple[str, object]]] = {
    "EVENT TIME": lambda c: ("event_time", name(c, "the name of a column")),
    "LATENESS": lambda c: ("lateness", duration(c)),
    "SKEW": lambda c: ("skew", duration(c)),
    "DELAY": lambda c: ("delay", duration(c)),
    "OVERLOAD": lambda c: ("overload", read_overload(c)),
    "LABEL FROM": _label_column("LABEL"),
    "ROLES FROM": _label_column("ROLES"),
    "LEVEL FROM": _label_column("LEVEL"),
    "LABEL": lambda c: ("label", _label(c)),
    "SEMANTICS": lambda c: ("semantics", _semantics(c)),
    "ALLOW CUMULATIVE": lambda _: ("cumulative", True),
    "SOURCE": lambda c: ("source", _input(c)),
}
_OF_TUPLES_THAT_COME = ("EVENT TIME", "LATENESS", "SKEW", "DELAY", "OVERLOAD")
_TABLE_CLAUSES = {words: read for words, read in _STREAM_CLAUSES.items() if words not in _OF_TUPLES_THAT_COME}


def _alter_stream(c: Cursor, at: Position) -> s.Statement:
    changed = object_name(c, "STREAM")
    if c.take_word("ADD", "COLUMN"):
        return s.AlterStream(at, changed, add=_column(c))
    if c.take_word("LABEL"):
        return s.AlterStream(at, changed, label=_label(c))
    if c.take_word("DROP", "LABEL"):
        return s.AlterStream(at, changed, label=PUBLIC)
    if c.take_word("SEMANTICS"):
        return s.AlterStream(at, changed, semantics=_semantics(c))
    if c.take_word("ALLOW", "CUMULATIVE"):
        return s.AlterStream(at, changed, cumulative=True)
    if c.take_word("FORBID", "CUMULATIVE"):
        return s.AlterStream(at, changed, cumulative=False)
    known = ("ADD COLUMN", "LABEL", "DROP LABEL", "SEMANTICS", "ALLOW CUMULATIVE", "FORBID CUMULATIVE")
    raise c.expected(*(f"`{words}`" for words in known))


def _create_policy(c: Cursor, at: Position) -> s.Statement:
    policy = name(c, "the name of a policy")
    c.expect_word("AS")
    start = c.position
    return s.CreatePolicy(at, policy, c.expect_kind("block", "rules between `$$` and `$$`").text, start)


def _accept(c: Cursor, at: Position) -> s.Statement:
    return s.AcceptStatement(at, secret(c, "a signed statement in single quotes"))


def _by_name(make: type[s.Named], what: str) -> Reader:
    return lambda c, at: make(at, name(c, f"the name of a {what}"))


def _drop_object(kind: str) -> Reader:
    return lambda c, at: s.DropObject(at, object_name(c, kind))


READERS: dict[tuple[str, ...], Reader] = {
    ("CREATE", "USER"): _create_user,
    ("CREATE", "API", "KEY"): _create_key,
    ("CREATE", "ROLE"): _create_role,
    ("CREATE", "LEVEL"): _create_level,
    ("CREATE", "COMPARTMENT"): _by_name(s.CreateCompartment, "compartment"),
    ("CREATE", "SEPARATION"): _create_separation,
    ("CREATE", "SCHEMA"): _create_schema,
    ("CREATE", "STREAM"): _create_stream,
    ("CREATE", "TABLE"): _create_table,
    ("CREATE", "POLICY"): _create_policy,
    ("ALTER", "USER"): _alter_user,
    ("ALTER", "ROLE"): _alter_role,
    ("ALTER", "LEVEL"): _alter_level,
    ("ALTER", "SCHEMA"): _alter_schema,
    ("ALTER", "STREAM"): _alter_stream,
    ("DROP", "USER"): _drop_user,
    ("DROP", "API", "KEY"): _drop_key,
    ("DROP", "ROLE"): _by_name(s.DropRole, "role"),
    ("DROP", "LEVEL"): _by_name(s.DropLevel, "level"),
    ("DROP", "COMPARTMENT"): _by_name(s.DropCompartment, "compartment"),
    ("DROP", "SEPARATION"): _by_name(s.DropSeparation, "separation"),
    ("DROP", "POLICY"): _by_name(s.DropPolicy, "policy"),
    ("DROP", "SCHEMA"): _drop_object("SCHEMA"),
    ("DROP", "STREAM"): _drop_object("STREAM"),
    ("DROP", "QUERY"): _drop_object("QUERY"),
    ("ACCEPT", "STATEMENT"): _accept,
}
