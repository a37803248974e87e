"""Schemas and streams: CREATE, ALTER, DROP."""

from __future__ import annotations

from dataclasses import replace

from headgate.access import objects
from headgate.access import rows as r
from headgate.access.authorizer import shown
from headgate.access.definitions import (
    PUBLISH,
    SIGNED,
    ColumnDefinition,
    SchemaDefinition,
    SourceDefinition,
    StreamDefinition,
)
from headgate.access.permissions import Kind, Permission
from headgate.access.request import Handler, Request, Result
from headgate.cql import statements as s
from headgate.cql.names import Name
from headgate.cql.overload import Shed
from headgate.cql.source_options import check_source
from headgate.errors import Conflict, NotFound, SourceError
from headgate.lexing import quote
from headgate.plan.reserved import is_level, is_reserved

_MOST_NAMED = 10
"""Broken queries that an answer names."""
_GROWING = (PUBLISH, "json", "parquet", "orc")
"""Formats whose rows need not have every column."""


def _columns(q: Request, columns: tuple[s.ColumnDeclaration, ...]) -> tuple[ColumnDefinition, ...]:
    """Columns as they are stored; names differ even if case is ignored, and none may be the name of a tuple's level."""
    seen: set[str] = set()
    stored = []
    for column in columns:
        if column.name.text.casefold() in seen:
            raise Conflict(f"column `{column.name.text}` is given twice", position=column.name.position)
        if is_level(column.name.text):
            hint = "that is the level of every tuple: queries could not tell them apart"
            raise Conflict(
                f"a column must not be called `{column.name.text}`", position=column.name.position, hint=hint
            )
        if is_reserved(column.name.text):
            hint = "such names stand beside columns in files; choose another"
            raise Conflict(
                f"a column must not be called `{column.name.text}`", position=column.name.position, hint=hint
            )
        seen.add(column.name.text.casefold())
        label = "" if column.label is None else str(q.check_label(column.label))
        stored.append(ColumnDefinition(column.name.text, column.type, label))
    return tuple(stored)


def _create_schema(q: Request, x: s.CreateSchema) -> Result:
    q.need_system(Permission.ADD)
    thing = q.add(Kind.SCHEMA, x.name.text, SchemaDefinition(_columns(q, x.columns)))
    return q.done(f"{shown(thing)} created")


def _alter_schema(q: Request, x: s.AlterSchema) -> Result:
    thing = q.find(x.target)
    q.need_owner(thing)
    columns = thing.schema.columns
    if x.add:
        if any(c.name.casefold() == x.add.name.text.casefold() for c in columns):
            raise Conflict(f"there is already a column `{x.add.name.text}`", position=x.add.name.position)
        objects.redefine(q.state, thing, SchemaDefinition((*columns, *_columns(q, (x.add,)))))
    elif x.drop:
        rest = tuple(c for c in columns if c.name != x.drop.text)
        if rest == columns:
            raise NotFound(f"there is no column `{x.drop.text}`", position=x.drop.position)
        if not rest:
            raise Conflict("a schema keeps at least one column", position=x.drop.position)
        objects.redefine(q.state, thing, SchemaDefinition(rest))
    return q.done(f"{shown(thing)} altered")


def _create_stream(q: Request, x: s.StreamStatement) -> Result:
    """A stream copies the columns of its schema, so that neither depends on the other."""
    q.need_system(Permission.ADD)
    columns = q.find(x.schema).schema.columns if x.schema else _columns(q, x.columns)
    label = str(q.check_label(x.label)) if x.label else "TRUE"
    event_time = _typed_column(columns, x.event_time, "TIMESTAMP", "the event time") if x.event_time else ""
    labels = {kind: _typed_column(columns, name, "STRING", "a label") for kind, name in x.label_columns}
    given = None
    if x.source:
        if x.source.format.text == PUBLISH:
            _check_published(x, x.source)
        else:
            q.need_system(Permission.CHANGE_SYSTEM)  # it reads with the service's rights, not the caller's
            try:
                check_source(x.source.format.text, dict(x.source.options))
            except SourceError as error:
                raise Conflict(error.message, position=x.source.format.position, hint=error.hint) from None
        given = SourceDefinition(x.source.format.text, tuple(sorted(dict(x.source.options).items())))
    if x.overload.shed is Shed.SAMPLE and not 0 < x.overload.percent < 100:
        raise Conflict(f"cannot take OVERLOAD {x.overload}: a sample is more than 0 and less than 100 percent")
    definition = StreamDefinition(
        columns,
        label=label,
        semantics=x.semantics,
        event_time=event_time,
        labels=tuple(sorted(labels.items())),
        input=given,
        lateness=x.lateness,
        skew=x.skew,
        delay=x.delay,
        overload=x.overload,
        cumulative=x.cumulative,
        table=isinstance(x, s.CreateTable),
    )
    thing = q.add(Kind.STREAM, x.name.text, definition)
    return q.done(f"{shown(thing)} created")


def _check_published(x: s.StreamStatement, source: s.Input) -> None:
    if isinstance(x, s.CreateTable):
        raise Conflict("cannot publish to a table", position=source.format.position, hint="create a stream")
    for name, value in source.options:
        if name != SIGNED or value not in ("true", "false"):
            raise Conflict(f"`{PUBLISH}` has no option `{name}` with this value", hint=f"there is {SIGNED} = 'true'")


def _typed_column(columns: tuple[ColumnDefinition, ...], name: Name, type_: str, what: str) -> str:
    """The column that holds the event time or a label: one of the stream's own, of the right type, without a label."""
    found = next((c for c in columns if c.name.casefold() == name.text.casefold()), None)
    if found is None:
        raise NotFound(f"there is no column `{name.text}`", position=name.position)
    if found.type != type_:
        raise Conflict(f"{what} is a {type_}, column `{name.text}` is {found.type}", position=name.position)
    if found.label:
        raise Conflict(f"column `{name.text}` has a label, so it cannot hold {what}", position=name.position)
    return found.name


def _alter_stream(q: Request, x: s.AlterStream) -> Result:
    thing = q.find(x.target)
    q.need_owner(thing)
    but = ""
    if x.add:
        _add_column(q, thing, x.add)
        if readers := _readers(q, thing):
            but = f"; the column is not in what was written before; replace {readers} to use it"
    elif x.semantics:
        objects.redefine(q.state, thing, replace(thing.stream, semantics=x.semantics))
    elif x.cumulative is not None:
        objects.redefine(q.state, thing, replace(thing.stream, cumulative=x.cumulative))
    elif x.label:
        objects.redefine(q.state, thing, replace(thing.stream, label=str(q.check_label(x.label))))
    return q.done(f"{shown(thing)} altered{but}")


def _readers(q: Request, thing: r.Object) -> str:
    """The names of queries over a stream that one may see."""
    readers = [query for query, d in objects.queries(q.state) if thing.kind == Kind.STREAM and thing.id in d.inputs]
    names = sorted(shown(x) for x in readers if q.may(Permission.VIEW_OBJECT, x))
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return f"{', '.join(names[:_MOST_NAMED])}{more}"


def _add_column(q: Request, thing: r.Object, column: s.ColumnDeclaration) -> None:
    """Tuples that came before, and rows without it, have NULL there. Queries keep the columns that they were written
    over: a `*` in them means what it meant, and no name in them becomes ambiguous."""
    columns, source = thing.stream.columns, thing.stream.input
    if thing.stream.made_of is not None:
        raise Conflict(f"cannot add a column to {shown(thing)}: its query makes its columns", hint="replace the query")
    if thing.stream.table or (source is not None and source.format not in _GROWING):
        able = ", ".join(f"`{x}`" for x in _GROWING)
        raise Conflict(
            f"cannot add a column to {shown(thing)}: what is in its source must have all columns",
            hint=f"create it anew; streams of {able} can have rows without the column",
        )
    if any(x.name.casefold() == column.name.text.casefold() for x in columns):
        raise Conflict(f"there is already a column `{column.name.text}`", position=column.name.position)
    objects.keep_columns(q.state, thing)
    objects.redefine(q.state, thing, replace(thing.stream, columns=(*columns, *_columns(q, (column,)))))


def _drop(q: Request, x: s.DropObject) -> Result:
    thing = q.find(x.target)
    q.need_owner(thing)
    if any(definition.output == thing.id for _, definition in objects.queries(q.state, thing.owner)):
        raise Conflict(f"{shown(thing)} is the output of a query", hint="drop the query")
    broken = _readers(q, thing)
    objects.drop(q.state, thing)
    but = f"; this breaks {broken}" if broken else ""
    return Result(f"{shown(thing)} dropped{but}")


def column_text(column: ColumnDefinition) -> str:
    label = f" LABEL '{column.label}'" if column.label else ""
    return f"{quote(column.name)} {column.type}{label}"


HANDLERS: dict[type[s.Statement], Handler] = {
    s.CreateSchema: _create_schema,
    s.AlterSchema: _alter_schema,
    s.CreateStream: _create_stream,
    s.CreateTable: _create_stream,
    s.AlterStream: _alter_stream,
    s.DropObject: _drop,
}
