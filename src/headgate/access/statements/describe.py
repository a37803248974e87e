"""DESCRIBE: what an object is, as far as the caller may know it.

INVARIANT: an object that the caller may not see is described like one that does not exist. Of an object that it may
see, nothing is told that names what it may not see: the inputs and the output of a query, and its text, only where all
of them are visible; where a stream's tuples come from only to its owner.
"""

from __future__ import annotations

from collections.abc import Iterator

from headgate.access import rows as r
from headgate.access.authorizer import shown, shown_source
from headgate.access.definitions import Damaged, StreamDefinition
from headgate.access.objects import queries
from headgate.access.permissions import Kind, Permission
from headgate.access.request import Handler, Request, Result
from headgate.access.statements.objects import column_text
from headgate.cql import statements as s
from headgate.cql.deadlines import time_text
from headgate.cql.overload import REFUSE
from headgate.errors import NotFound
from headgate.labels import Semantics
from headgate.lexing import quote

DAMAGED = "damaged"
"""Shown for a definition that the store holds but nobody can read."""
HIDDEN = "it reads streams that you may not see"
LOST = "a stream that it reads was dropped"
_PLAIN = frozenset(
    {
        "cleansource",
        "delimiter",
        "endingoffsets",
        "escape",
        "header",
        "ignorecorruptfiles",
        "maxbytespertrigger",
        "maxfilespertrigger",
        "maxoffsetspertrigger",
        "multiline",
        "path",
        "pathglobfilter",
        "quote",
        "recursivefilelookup",
        "rowspersecond",
        "sep",
        "signed",
        "sourcearchivedir",
        "startingoffsets",
        "subscribe",
    }
)
"""Options whose values are shown; any other may be a password, or hold one."""

Property = tuple[str, str]


def _describe(q: Request, x: s.Describe) -> Result:
    found = []
    for kind in x.kinds:
        try:
            found.append(q.catalog.find(q.principal, Kind(kind), x.name, x.owner))
        except NotFound:
            continue
    if not found:
        name = f"{quote(x.owner)}.{quote(x.name)}" if x.owner else quote(x.name)
        what = x.kinds[0].lower() if len(x.kinds) == 1 else "object"
        raise NotFound(f"there is no {what} {name}")
    q.about(", ".join(map(shown, found)))
    rows = [(shown(thing), *row) for thing in found for row in _properties(q, thing)]
    return Result("object", ("object", "property", "value"), tuple(rows))


def _properties(q: Request, thing: r.Object) -> Iterator[Property]:
    yield "level", thing.level
    if isinstance(thing.definition, Damaged):
        yield "definition", DAMAGED
    elif thing.kind == Kind.SCHEMA:
        yield from (("column", column_text(x)) for x in thing.schema.columns)
    elif thing.kind == Kind.STREAM:
        yield from _stream(q, thing)
    else:
        yield from _query(q, thing)


def _stream(q: Request, thing: r.Object) -> Iterator[Property]:
    definition = thing.stream
    yield "name in labels", shown_source(thing)
    yield from (("column", column_text(x)) for x in definition.columns)
    yield from clauses(q, thing)
    maker = next((x for x, d in queries(q.state, thing.owner) if d.output == thing.id), None)
    if maker is not None and q.may(Permission.VIEW_OBJECT, maker):
        yield "output of", shown(maker)


def clauses(q: Request, thing: r.Object) -> Iterator[Property]:
    """The clauses of CREATE STREAM that it was created with, or that ALTER STREAM has set since."""
    definition = thing.stream
    if definition.event_time:
        yield "event time", quote(definition.event_time)
    yield from ((kind.lower() + " from", quote(name)) for kind, name in definition.labels)
    for word, milliseconds in (
        ("lateness", definition.lateness or None),
        ("skew", definition.skew),
        ("delay", definition.delay),
    ):
        if milliseconds is not None:
            yield word, time_text(milliseconds)
    if definition.overload != REFUSE:
        yield "overload", str(definition.overload)
    if definition.label != "TRUE":
        yield "label", definition.label
    if definition.semantics != Semantics.STRONG:
        yield "semantics", definition.semantics.value
    if definition.cumulative:
        yield "cumulative queries", "allowed"
    if definition.input is not None:
        yield "source", _source(q, thing, definition)


def _source(q: Request, thing: r.Object, definition: StreamDefinition) -> str:
    given = definition.input
    if given is None or thing.owner != q.user or not given.options:
        return quote(given.format) if given is not None else ""
    known = (f"{quote(name)} = {_value(name, value)}" for name, value in given.options)
    return f"{quote(given.format)} ({', '.join(known)})"


def _value(name: str, value: str) -> str:
    """An address can have a password before an `@`."""
    doubled = value.replace("'", "''")
    return f"'{doubled}'" if name.lower() in _PLAIN and "@" not in value else "…"


def _query(q: Request, thing: r.Object) -> Iterator[Property]:
    definition = thing.query
    yield "status", status(thing)
    yield from (("input", shown(x)) for x in _seen(q, definition.inputs))
    yield from (("output", shown(x)) for x in _seen(q, (definition.output,)))
    yield "mode", "cumulative" if definition.cumulative else "exact"
    if definition.deadline is not None:
        yield "deadline", str(definition.deadline)
    if definition.narrowed:
        yield "as", ", ".join(map(quote, definition.roles))
    for name, parameters in definition.operators:
        words = ", ".join(f"{k} = {' '.join(v) if isinstance(v, tuple) else v}" for k, v in parameters)
        yield "operator", f"{name} ({words})" if words else name
    if definition.text:
        yield "text", text(q, thing)


def text(q: Request, query: r.Object) -> str:
    """The CQL of a query, for whoever may see all that it reads. Its owner is no exception: an heir may not. Nobody can
    say who may see a stream that was dropped."""
    definition = query.query
    if definition.broken:
        return LOST
    return definition.text if len(_seen(q, definition.inputs)) == len(definition.inputs) else HIDDEN


def status(query: r.Object) -> str:
    definition = query.query
    return "broken" if definition.broken else "running" if definition.running else "stopped"


def _seen(q: Request, numbers: tuple[int, ...]) -> list[r.Object]:
    found = (q.state.objects.get(number) for number in numbers)
    return [x for x in found if x is not None and q.may(Permission.VIEW_OBJECT, x)]


HANDLERS: dict[type[s.Statement], Handler] = {s.Describe: _describe}
