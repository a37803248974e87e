"""Schemas, streams and queries: CREATE, ALTER, DROP, START, STOP."""

from __future__ import annotations

import json
from typing import Any

from headgate.access import objects
from headgate.access import rows as r
from headgate.access.authorizer import Principal, shown
from headgate.access.permissions import Kind, Permission
from headgate.access.request import Handler, Request, Result
from headgate.cql import statements as s
from headgate.errors import AccessDenied, Conflict, NotFound
from headgate.lexing import quote


def _add(q: Request, kind: Kind, name: str, definition: dict[str, Any]) -> r.Object:
    thing = objects.create(q.state, q.work.new_object_id(), kind, name, q.principal, definition)
    q.about(shown(thing))
    return thing


def _columns(q: Request, columns: tuple[s.Column, ...]) -> list[dict[str, str]]:
    """Columns as they are stored; names differ even where case is ignored."""
    seen: set[str] = set()
    stored = []
    for column in columns:
        if column.name.text.casefold() in seen:
            raise Conflict(f"column `{column.name.text}` is given twice", position=column.name.position)
        seen.add(column.name.text.casefold())
        stored.append({"name": column.name.text, "type": column.type})
        if column.label is not None:
            stored[-1]["label"] = str(q.check_label(column.label))
    return stored


def _create_schema(q: Request, x: s.CreateSchema) -> Result:
    q.need_system(Permission.ADD)
    thing = _add(q, Kind.SCHEMA, x.name.text, {"columns": _columns(q, x.columns)})
    return Result(f"{shown(thing)} created")


def _alter_schema(q: Request, x: s.AlterSchema) -> Result:
    thing = q.find(x.target)
    q.need_owner(thing)
    columns = json.loads(thing.definition)["columns"]
    if x.add:
        if any(c["name"].casefold() == x.add.name.text.casefold() for c in columns):
            raise Conflict(f"there is already a column `{x.add.name.text}`", position=x.add.name.position)
        objects.redefine(q.state, thing, columns=[*columns, *_columns(q, (x.add,))])
    elif x.drop:
        rest = [c for c in columns if c["name"] != x.drop.text]
        if rest == columns:
            raise NotFound(f"there is no column `{x.drop.text}`", position=x.drop.position)
        if not rest:
            raise Conflict("a schema keeps at least one column", position=x.drop.position)
        objects.redefine(q.state, thing, columns=rest)
    return Result(f"{shown(thing)} altered")


def _create_stream(q: Request, x: s.CreateStream) -> Result:
    """A stream copies the columns of its schema, so that neither depends on the other's fate."""
    q.need_system(Permission.ADD)
    columns = json.loads(q.find(x.schema).definition)["columns"] if x.schema else _columns(q, x.columns)
    label = str(q.check_label(x.label)) if x.label else "TRUE"
    definition = {"columns": columns, "label": label, "semantics": x.semantics.value}
    thing = _add(q, Kind.STREAM, x.name.text, definition)
    return Result(f"{shown(thing)} created")


def _alter_stream(q: Request, x: s.AlterStream) -> Result:
    thing = q.find(x.target)
    q.need_owner(thing)
    if x.semantics:
        objects.redefine(q.state, thing, semantics=x.semantics.value)
    elif x.label:
        objects.redefine(q.state, thing, label=str(q.check_label(x.label)))
    return Result(f"{shown(thing)} altered")


def _create_query(q: Request, x: s.CreateQuery) -> Result:
    """Checked recursively: the right to add, every input, every operator with its parameters (paper 000, 3.1, 5.4)."""
    q.need_system(Permission.ADD)
    inputs = [_readable(q, target) for target in x.inputs]
    for use in x.operators:
        position = use.name.position
        q.need(Permission.USE, q.find(s.Target("OPERATOR", use.name.text, None, position)), use.parameters)
    output = _add(q, Kind.STREAM, x.output.text, {"columns": [], "label": "TRUE", "semantics": "STRONG"})
    query = _add(
        q,
        Kind.QUERY,
        x.name.text,
        {
            "inputs": [thing.id for thing in inputs],
            "operators": [[use.name.text, dict(use.parameters)] for use in x.operators],
            "output": output.id,
            "roles": sorted(q.principal.roles),
            "running": False,
        },
    )
    return Result(f"{shown(query)} created, with output {shown(output)}")


def _readable(q: Request, target: s.Target) -> r.Object:
    """An input must be visible, and readable as tuples or at least as aggregates."""
    thing = q.find(target)
    if not q.may(Permission.READ_TUPLE, thing) and q.may(Permission.AGGREGATE_READ, thing):
        q.need(Permission.AGGREGATE_READ, thing)
    else:
        q.need(Permission.READ_TUPLE, thing)
    return thing


def _set_status(q: Request, x: s.SetQueryStatus) -> Result:
    thing = q.find(x.target)
    q.need(Permission.SET_QUERY_STATUS, thing)
    definition = json.loads(thing.definition)
    if x.running and definition.get("broken"):
        raise Conflict(f"{shown(thing)} lost an input", hint="drop it and create it anew")
    if x.running and not definition["running"]:
        _check_rights(q, thing, definition)
        _check_running(q, thing.owner)
    objects.redefine(q.state, thing, running=x.running)
    return Result(f"{shown(thing)} {'started' if x.running else 'stopped'}")


def _check_rights(q: Request, query: r.Object, definition: dict[str, Any]) -> None:
    """A query runs with its owner's rights: with what is left of the roles it was created with."""
    roles = frozenset(definition["roles"]) & q.authorizer.authorised(query.owner)
    owner = Principal(query.owner, roles, q.authorizer.level(query.level))
    streams = [q.state.objects.get(i) for i in definition["inputs"]]
    readable = (Permission.READ_TUPLE, Permission.AGGREGATE_READ)
    allows = q.authorizer.allows
    if not all(
        s and allows(owner, Permission.VIEW_OBJECT, s) and any(allows(owner, p, s) for p in readable) for s in streams
    ):
        raise AccessDenied(f"the owner of {shown(query)} may no longer read all that it reads")
    for name, parameters in definition["operators"]:
        operator = q.catalog.find(owner, Kind.OPERATOR, name)
        if not q.authorizer.decide(owner, Permission.USE, operator, parameters):
            raise AccessDenied(f"the owner of {shown(query)} may no longer use operator {quote(name)} in this way")


def _check_running(q: Request, owner: str) -> None:
    """The largest limit that any role of the owner sets counts, active or not. Only queries at levels that the caller
    may see are counted, so that nothing at a high level takes a place at a low one."""
    roles = (q.state.roles.get(name) for name in q.authorizer.effective(q.authorizer.authorised(owner)))
    limits = [role.max_queries for role in roles if role and role.max_queries is not None]
    levels = set(q.authorizer.visible_levels(q.principal))
    running = sum(d["running"] for thing, d in objects.queries(q.state, owner) if thing.level in levels)
    if limits and running >= max(limits):
        raise AccessDenied(f"the owner's roles allow at most {max(limits)} running queries", hint="stop one first")


def _drop(q: Request, x: s.DropObject) -> Result:
    thing = q.find(x.target)
    q.need_owner(thing)
    if any(definition["output"] == thing.id for _, definition in objects.queries(q.state, thing.owner)):
        raise Conflict(f"{shown(thing)} is the output of a query", hint="drop the query")
    objects.drop(q.state, thing)
    return Result(f"{shown(thing)} dropped")


def column_text(column: dict[str, str]) -> str:
    label = f" LABEL '{column['label']}'" if "label" in column else ""
    return f"{quote(column['name'])} {column['type']}{label}"


HANDLERS: dict[type[s.Statement], Handler] = {
    s.CreateSchema: _create_schema,
    s.AlterSchema: _alter_schema,
    s.CreateStream: _create_stream,
    s.AlterStream: _alter_stream,
    s.CreateQuery: _create_query,
    s.SetQueryStatus: _set_status,
    s.DropObject: _drop,
}
