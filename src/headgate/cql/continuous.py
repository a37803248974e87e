"""Statements about continuous queries: CREATE QUERY, START, STOP, SUBSCRIBE, EXPLAIN."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from headgate.cql.deadline_clauses import read_deadline
from headgate.cql.deadlines import Deadline
from headgate.cql.names import Limit, Name, Target
from headgate.cql.queries import QuerySyntax, read_blocks, read_query
from headgate.cql.reading import Reader, limits, listed, name, names, object_name
from headgate.cql.statements import Statement
from headgate.errors import Position
from headgate.lexing import Cursor, fail


@dataclass(frozen=True)
class OperatorUse:
    name: Name
    parameters: Mapping[str, Limit] = field(repr=False)


@dataclass(frozen=True)
class CreateQuery(Statement):
    """A query as its boxes: what it reads, which operators it uses, which stream it fills (paper 000, Figure 5)."""

    name: Name
    inputs: tuple[Target, ...]
    operators: tuple[OperatorUse, ...]
    output: Name


@dataclass(frozen=True)
class CreateQueryAs(Statement):
    """A query in CQL; `text` is its own text, from the first SELECT on. The output is called like the query unless
    another name is given. With `replaces`, a query of this name is changed and keeps its output, grants and
    subscriptions."""

    name: Name
    output: Name | None
    cumulative: bool
    query: QuerySyntax
    text: str = field(repr=False)
    replaces: bool = False
    deadline: Deadline | None = None


@dataclass(frozen=True)
class SetQueryStatus(Statement):
    target: Target
    running: bool


@dataclass(frozen=True)
class Subscribe(Statement):
    target: Target
    ends: bool


@dataclass(frozen=True)
class ExplainQuery(Statement):
    """A query of the catalog by its name, or any query by its text; neither: all that run."""

    target: Target | None
    query: QuerySyntax | None
    analyzes: bool = False


def _create_query(c: Cursor, at: Position) -> CreateQuery | CreateQueryAs:
    query = name(c, "the name of a query")
    if c.take_word("READING"):
        inputs = listed(c, lambda c: object_name(c, "STREAM"))
        operators = listed(c, _operator_use) if c.take_word("USING") else ()
        c.expect_word("OUTPUT")
        return CreateQuery(at, query, inputs, operators, name(c, "the name of a stream"))
    output = name(c, "the name of a stream") if c.take_word("OUTPUT") else None
    cumulative = c.take_word("CUMULATIVE")
    chosen = cumulative or c.take_word("EXACT")
    deadline = read_deadline(c) if c.take_word("DEADLINE") else None
    if not c.take_word("AS"):
        before = [] if output or chosen or deadline else ["`READING`", "`OUTPUT`"]
        modes = [] if chosen or deadline else ["`EXACT`", "`CUMULATIVE`"]
        versions = ["`QOS`"] if deadline and not deadline.lower else [] if deadline else ["`DEADLINE`"]
        raise c.expected(*before, *modes, *versions, "`AS`")
    roles = () if c.at_word("SELECT") else names(c, "`SELECT` or the name of a role")
    first = c.token.offset
    syntax = QuerySyntax(c.position, roles, read_blocks(c))
    text = c.text[first : c.tokens[c.index - 1].end]
    return CreateQueryAs(at, query, output, cumulative, syntax, text, deadline=deadline)


def _replace_query(c: Cursor, at: Position) -> Statement:
    found = _create_query(c, at)
    if isinstance(found, CreateQuery):
        raise fail(
            c.text, at.offset, "cannot replace a query by boxes", "write it in CQL: CREATE OR REPLACE QUERY q AS"
        )
    return replace(found, replaces=True)


def _operator_use(c: Cursor) -> OperatorUse:
    return OperatorUse(name(c, "the name of an operator"), limits(c) if c.at_symbol("(") else {})


def _query_status(running: bool) -> Reader:
    return lambda c, at: SetQueryStatus(at, object_name(c, "QUERY"), running)


def _subscribe(ends: bool) -> Reader:
    return lambda c, at: Subscribe(at, object_name(c, "STREAM"), ends)


def _explain(c: Cursor, at: Position) -> Statement:
    if c.take_word("ANALYZE"):
        if not c.take_word("QUERY"):
            raise c.expected("`QUERY`")
        return ExplainQuery(at, object_name(c, "QUERY"), None, analyzes=True)
    if c.take_word("QUERY"):
        return ExplainQuery(at, object_name(c, "QUERY"), None)
    if c.take_word("QUERIES"):
        return ExplainQuery(at, None, None)
    if not (c.at_word("SELECT") or c.at_word("AS")):
        raise c.expected("`ANALYZE`", "`QUERY`", "`QUERIES`", "`SELECT`", "`AS`")
    return ExplainQuery(at, None, read_query(c))


READERS: dict[tuple[str, ...], Reader] = {
    ("CREATE", "QUERY"): _create_query,
    ("CREATE", "OR", "REPLACE", "QUERY"): _replace_query,
    ("START", "QUERY"): _query_status(running=True),
    ("STOP", "QUERY"): _query_status(running=False),
    ("SUBSCRIBE", "TO"): _subscribe(ends=False),
    ("UNSUBSCRIBE", "FROM"): _subscribe(ends=True),
    ("EXPLAIN",): _explain,
}
