"""Schemas and streams: CREATE, ALTER, DROP."""

from __future__ import annotations

import json
from typing import Any

from headgate.access import objects
from headgate.access.authorizer import shown
from headgate.access.permissions import Kind, Permission
from headgate.access.request import Handler, Request, Result
from headgate.cql import statements as s
from headgate.errors import Conflict, NotFound
from headgate.lexing import quote
from headgate.plan.binding import LEVEL, is_reserved


def _columns(q: Request, columns: tuple[s.Column, ...]) -> list[dict[str, str]]:
    """Columns as they are stored; names differ even if case is ignored, and none may be the name of a tuple's level."""
    seen: set[str] = set()
    stored = []
    for column in columns:
        if column.name.text.casefold() in seen:
            raise Conflict(f"column `{column.name.text}` is given twice", position=column.name.position)
        if column.name.text == LEVEL:
            hint = "that is the level of every tuple: queries could not tell them apart"
            raise Conflict(f"a column must not be called `{LEVEL}`", position=column.name.position, hint=hint)
        if is_reserved(column.name.text):
            hint = "such names stand beside columns in files; choose another"
            raise Conflict(
                f"a column must not be called `{column.name.text}`", position=column.name.position, hint=hint
            )
        seen.add(column.name.text.casefold())
        stored.append({"name": column.name.text, "type": column.type})
        if column.label is not None:
            stored[-1]["label"] = str(q.check_label(column.label))
    return stored


def _create_schema(q: Request, x: s.CreateSchema) -> Result:
    q.need_system(Permission.ADD)
    thing = q.add(Kind.SCHEMA, x.name.text, {"columns": _columns(q, x.columns)})
    return q.done(f"{shown(thing)} created")


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
    return q.done(f"{shown(thing)} altered")


def _create_stream(q: Request, x: s.StreamDefinition) -> Result:
    """A stream copies the columns of its schema, so that neither depends on the other."""
    q.need_system(Permission.ADD)
    columns = json.loads(q.find(x.schema).definition)["columns"] if x.schema else _columns(q, x.columns)
    label = str(q.check_label(x.label)) if x.label else "TRUE"
    definition: dict[str, Any] = {"columns": columns, "label": label, "semantics": x.semantics.value}
    if x.event_time:
        definition["event_time"] = _typed_column(columns, x.event_time, "TIMESTAMP", "the event time")
    if x.label_columns:
        definition["labels"] = {
            kind: _typed_column(columns, name, "STRING", "a label") for kind, name in x.label_columns
        }
    if x.source:
        q.need_system(Permission.CHANGE_SYSTEM)  # it reads with the service's rights, not the caller's
        definition["input"] = {"format": x.source.format.text, "options": dict(x.source.options)}
    table = isinstance(x, s.CreateTable) or None
    choices = {"lateness": x.lateness or None, "skew": x.skew, "cumulative": x.cumulative or None, "table": table}
    definition |= {key: value for key, value in choices.items() if value is not None}
    thing = q.add(Kind.STREAM, x.name.text, definition)
    return q.done(f"{shown(thing)} created")


def _typed_column(columns: list[dict[str, str]], name: s.Name, type_: str, what: str) -> str:
    """The column that holds the event time or a label: one of the stream's own, of the right type, without a label."""
    found = next((c for c in columns if c["name"].casefold() == name.text.casefold()), None)
    if found is None:
        raise NotFound(f"there is no column `{name.text}`", position=name.position)
    if found["type"] != type_:
        raise Conflict(f"{what} is a {type_}, column `{name.text}` is {found['type']}", position=name.position)
    if "label" in found:
        raise Conflict(f"column `{name.text}` has a label, so it cannot hold {what}", position=name.position)
    return found["name"]


def _alter_stream(q: Request, x: s.AlterStream) -> Result:
    thing = q.find(x.target)
    q.need_owner(thing)
    if x.semantics:
        objects.redefine(q.state, thing, semantics=x.semantics.value)
    elif x.cumulative is not None:
        objects.redefine(q.state, thing, cumulative=x.cumulative)
    elif x.label:
        objects.redefine(q.state, thing, label=str(q.check_label(x.label)))
    return q.done(f"{shown(thing)} altered")


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
    s.CreateTable: _create_stream,
    s.AlterStream: _alter_stream,
    s.DropObject: _drop,
}
