"""Definitions of objects as typed values: the store keeps them as JSON text, which is read and written only here.

A text is parsed once, when its row enters memory (`tables.from_columns`), and written once, when the row leaves it. A
text that cannot be read becomes `Damaged`: its object cannot be used, and all others can. Keys that have their default
value are not written, so that texts of earlier versions and of this one are the same.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from headgate.cql.deadlines import Deadline, Version
from headgate.cql.names import Limit
from headgate.cql.overload import REFUSE, Overload, Shed
from headgate.labels import Semantics
from headgate.protocol import PUBLISH as PUBLISH

Parameters = tuple[tuple[str, Limit], ...]
"""Parameters of an operator, or the limits on them, sorted by name."""


SIGNED = "signed"
"""An option of a stream that senders publish to: every request must have a signature."""


@dataclass(frozen=True)
class ColumnDefinition:
    """A column; `label` is the text of its attribute label, empty if it has none."""

    name: str
    type: str
    label: str = ""


@dataclass(frozen=True)
class SourceDefinition:
    """Where the tuples of a stream come from. `repr` leaves the options out: one may be a password."""

    format: str
    options: tuple[tuple[str, str], ...] = field(default=(), repr=False)


@dataclass(frozen=True)
class Nothing:
    """The definition of the system and of operators."""


@dataclass(frozen=True)
class SchemaDefinition:
    columns: tuple[ColumnDefinition, ...]


@dataclass(frozen=True)
class StreamDefinition:
    """A stream, a table, or the output of a query.

    source: its name as a source in labels
    label: the policy of its owner
    event_time: the column that holds the event time; empty: the time of arrival is used
    labels: the columns that hold labels, by kind (LABEL, ROLES, LEVEL)
    lateness: how late tuples may arrive, in milliseconds
    skew: how far ahead of the clock an event time may be, in milliseconds; None: the default
    cumulative: whether its owner allows cumulative queries
    made_of: the inputs of the query whose output it is; None if it is no output
    delay: how long tuples take to arrive at most, in milliseconds; None: not declared
    overload: which tuples a level goes without if too many wait for it
    """

    columns: tuple[ColumnDefinition, ...]
    source: str = ""
    label: str = "TRUE"
    semantics: Semantics = Semantics.STRONG
    event_time: str = ""
    labels: tuple[tuple[str, str], ...] = ()
    input: SourceDefinition | None = None
    lateness: int = 0
    skew: int | None = None
    cumulative: bool = False
    table: bool = False
    made_of: tuple[int, ...] | None = None
    delay: int | None = None
    overload: Overload = REFUSE


@dataclass(frozen=True)
class QueryDefinition:
    """A query, in CQL or declared as boxes.

    inputs: the streams that it reads, each once
    output: the stream of its results
    operators: the operators that it uses, with their parameters
    roles: the roles that it was created with; `narrowed`: by `AS role, ...`
    broken: an input was dropped
    text: its CQL; empty if it was declared as boxes
    sources: the streams that it reads, as often as the text names them
    widths: how many columns each of `sources` had when the text was written; empty: as many as it has now
    revision: how often it was replaced
    deadline: how soon its results are due, and its QoS versions; None: whenever they come
    """

    inputs: tuple[int, ...]
    output: int
    operators: tuple[tuple[str, Parameters], ...] = ()
    roles: tuple[str, ...] = ()
    running: bool = False
    broken: bool = False
    cumulative: bool = False
    narrowed: bool = False
    text: str = ""
    sources: tuple[int, ...] = ()
    widths: tuple[int, ...] = ()
    revision: int = 0
    deadline: Deadline | None = None


@dataclass(frozen=True)
class Damaged:
    """A definition that cannot be read, as it is stored."""

    text: str


Definition = Nothing | SchemaDefinition | StreamDefinition | QueryDefinition | Damaged


def read_definition(kind: str, text: str) -> Definition:
    """The definition of an object of this kind; whatever is wrong with the text, it is `Damaged`."""
    try:
        plain = json.loads(text)
        return _READ[kind](plain) if kind in _READ else Nothing()
    except (ValueError, KeyError, TypeError, AttributeError):
        return Damaged(text)


def write_definition(definition: Definition) -> str:
    match definition:
        case Damaged():
            return definition.text
        case Nothing():
            plain: dict[str, Any] = {}
        case SchemaDefinition():
            plain = {"columns": _plain_columns(definition.columns)}
        case StreamDefinition():
            plain = _plain_stream(definition)
        case QueryDefinition():
            plain = _plain_query(definition)
    return json.dumps(plain, sort_keys=True)


def read_parameters(plain: Mapping[str, Any]) -> Parameters:
    return tuple((name, tuple(x) if isinstance(x, list) else x) for name, x in sorted(plain.items()))


def read_limits(text: str) -> Parameters:
    """The limits of a grant; a text that cannot be read is a limit that nothing meets."""
    try:
        return read_parameters(json.loads(text))
    except (ValueError, TypeError, AttributeError):
        return (("damaged", ()),)


def write_limits(limits: Parameters) -> str:
    return json.dumps(dict(limits), sort_keys=True)


def _columns(plain: Mapping[str, Any]) -> tuple[ColumnDefinition, ...]:
    return tuple(ColumnDefinition(x["name"], x["type"], x.get("label", "")) for x in plain["columns"])


def _plain_columns(columns: tuple[ColumnDefinition, ...]) -> list[dict[str, str]]:
    return [{"name": x.name, "type": x.type} | ({"label": x.label} if x.label else {}) for x in columns]


def _schema(plain: Mapping[str, Any]) -> SchemaDefinition:
    return SchemaDefinition(_columns(plain))


def _stream(plain: Mapping[str, Any]) -> StreamDefinition:
    given, made_of = plain.get("input"), plain.get("made_of")
    return StreamDefinition(
        _columns(plain),
        plain["source"],
        plain["label"],
        Semantics(plain.get("semantics", Semantics.STRONG)),
        plain.get("event_time") or "",
        tuple(sorted((plain.get("labels") or {}).items())),
        None if given is None else SourceDefinition(given["format"], tuple(sorted(given["options"].items()))),
        int(plain.get("lateness", 0)),
        int(plain["skew"]) if plain.get("skew") is not None else None,
        bool(plain.get("cumulative")),
        bool(plain.get("table")),
        None if made_of is None else tuple(map(int, made_of)),
        int(plain["delay"]) if plain.get("delay") is not None else None,
        _overload(plain.get("overload")),
    )


def _overload(plain: Any) -> Overload:
    return REFUSE if plain is None else Overload(Shed(plain[0]), float(plain[1]))


def _plain_stream(x: StreamDefinition) -> dict[str, Any]:
    choices: dict[str, Any] = {
        "event_time": x.event_time or None,
        "labels": dict(x.labels) or None,
        "input": None if x.input is None else {"format": x.input.format, "options": dict(x.input.options)},
        "lateness": x.lateness or None,
        "skew": x.skew,
        "delay": x.delay,
        "overload": None if x.overload == REFUSE else [x.overload.shed.value, x.overload.percent],
        "cumulative": x.cumulative or None,
        "table": x.table or None,
        "made_of": None if x.made_of is None else list(x.made_of),
    }
    always = {
        "columns": _plain_columns(x.columns),
        "source": x.source,
        "label": x.label,
        "semantics": x.semantics.value,
    }
    return always | {key: value for key, value in choices.items() if value is not None}


def _query(plain: Mapping[str, Any]) -> QueryDefinition:
    return QueryDefinition(
        tuple(map(int, plain["inputs"])),
        int(plain["output"]),
        tuple((name, read_parameters(parameters)) for name, parameters in plain["operators"]),
        tuple(plain["roles"]),
        bool(plain["running"]),
        bool(plain.get("broken")),
        bool(plain.get("cumulative")),
        bool(plain.get("narrowed")),
        plain.get("text", ""),
        tuple(map(int, plain.get("sources", ()))),
        tuple(map(int, plain.get("widths", ()))),
        int(plain.get("revision", 0)),
        _deadline(plain["deadline"]) if "deadline" in plain else None,
    )


def _deadline(plain: Mapping[str, Any]) -> Deadline:
    versions = (
        Version(float(x.get("sample", 1)), x.get("slide"), tuple(x["columns"]) if "columns" in x else None)
        for x in plain.get("lower", ())
    )
    return Deadline(int(plain["milliseconds"]), tuple(versions))


def _plain_deadline(x: Deadline) -> dict[str, Any]:
    lower = [
        ({"sample": v.sample} if v.sample != 1 else {})
        | ({"slide": v.slide} if v.slide is not None else {})
        | ({"columns": list(v.columns)} if v.columns is not None else {})
        for v in x.lower
    ]
    return {"milliseconds": x.milliseconds} | ({"lower": lower} if lower else {})


def _plain_query(x: QueryDefinition) -> dict[str, Any]:
    always = {
        "inputs": list(x.inputs),
        "output": x.output,
        "operators": [[name, dict(parameters)] for name, parameters in x.operators],
        "roles": list(x.roles),
        "running": x.running,
    }
    choices = {
        "broken": x.broken,
        "cumulative": x.cumulative,
        "narrowed": x.narrowed,
        "text": x.text,
        "widths": list(x.widths),
        "revision": x.revision,
        "deadline": None if x.deadline is None else _plain_deadline(x.deadline),
    }
    given = {key: value for key, value in choices.items() if value}
    return always | given | ({"sources": list(x.sources)} if x.text else {})


_READ: dict[str, Callable[[Mapping[str, Any]], Definition]] = {"SCHEMA": _schema, "STREAM": _stream, "QUERY": _query}
