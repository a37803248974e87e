"""What clients send and receive, whether they wait or not: the forms of requests and answers."""

from __future__ import annotations

import base64
import datetime as dt
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from headgate.errors import Conflict, HeadgateError
from headgate.protocol import (
    ARROW_STREAM,
    BEGINNING,
    JSON_LINES,
    POSITION,
    PRODUCER,
    SEQUENCE,
    SIGNATURE,
    signed_message,
)

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

FIRST_PAUSE, LONGEST_PAUSE = 0.1, 2.0
"""Seconds before a request is sent again, or a stream of results opened again; the pause doubles each time."""


@dataclass(frozen=True)
class Answer:
    """The answer to a statement: a text, or a table."""

    text: str
    columns: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()


@dataclass(frozen=True)
class Reasons:
    """Whether somebody is granted a permission on an object, and why."""

    granted: bool
    object: str
    reason: str
    details: tuple[str, ...]


@dataclass(frozen=True)
class Received:
    """A result, with its time, label and values; or a notice, which has none of these (`ended`, `waits`, `suspended`,
    `lost`). One goes on after it with its position."""

    position: str
    time: dt.datetime | None = None
    label: str = ""
    values: Mapping[str, Any] | None = None
    notice: Mapping[str, str] | None = None

    @property
    def time_text(self) -> str:
        """The time as the server wrote it; empty for a notice."""
        return self.time.isoformat() if self.time is not None else ""


# Statements -----------------------------------------------------------------------------------------------------------


def login(user: str, password: str, roles: Sequence[str] | None, level: str | None) -> dict[str, Any]:
    return {"user": user, "password": password, "roles": None if roles is None else list(roles), "level": level}


def answers(found: Iterable[Mapping[str, Any]]) -> list[Answer]:
    return [Answer(x["text"], tuple(x["columns"]), tuple(map(tuple, x["rows"]))) for x in found]


# Results --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ResultsRequest:
    """Results of a stream, as one asks for them."""

    stream: str
    form: str
    after: str = ""
    begin: str = "oldest"
    follow: bool = True

    @property
    def path(self) -> str:
        return f"/v1/streams/{quote(self.stream, safe='')}/results"

    @property
    def parameters(self) -> dict[str, str]:
        return {"begin": self.begin, "follow": str(self.follow).lower()}

    @property
    def headers(self) -> dict[str, str]:
        return {"Accept": self.form} | ({POSITION: self.after} if self.after else {})


class Events:
    """Server-sent events, line by line, over one connection after the other. `position` is where to go on: after the
    last that came, or where the first connection began."""

    def __init__(self, stream: str, position: str) -> None:
        self._stream, self.position = stream, position
        self._found: dict[str, str] = {}

    def begin(self, headers: Mapping[str, str]) -> None:
        """A connection was opened; an event that the one before did not complete is forgotten."""
        self._found = {}
        self.position = self.position or headers.get(BEGINNING, "")

    def take(self, line: str) -> Received | None:
        """What a line completes. Raises if nothing more will come."""
        if line:
            name, _, value = line.partition(": ")
            self._found[name] = value
            return None
        found, self._found = self._found, {}
        if "data" not in found:
            return None
        data = json.loads(found["data"])
        self.position = found.get("id", self.position)
        if found.get("event") != "notice":
            time = dt.datetime.fromisoformat(data["time"])
            return Received(found.get("id", ""), time, data["label"], data["values"])
        if "closed" in data:
            raise Conflict(f"results of {self._stream} have ended: {data['closed']}")
        return Received(found.get("id", ""), notice=data)


# Publishing -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PublisherIdentity:
    """Who publishes to a stream: the name under which requests are numbered, and the user's key if they are signed."""

    stream: str
    producer: str
    user: str = ""
    key: Ed25519PrivateKey | None = None

    @property
    def path(self) -> str:
        return f"/v1/streams/{quote(self.stream, safe='')}/tuples"

    def headers(self, form: str, body: bytes, sequence: int) -> dict[str, str]:
        found = {"Content-Type": form, PRODUCER: self.producer, SEQUENCE: str(sequence)}
        if self.key is not None:
            message = signed_message(self.stream, self.user, self.producer, found[SEQUENCE], body)
            found[SIGNATURE] = base64.b64encode(self.key.sign(message)).decode()
        return found


def body_of(rows: Any) -> tuple[str, bytes]:
    """Rows as Arrow if they come in columns (Arrow, pandas, polars, Spark), else as JSON lines."""
    if hasattr(rows, "toArrow"):  # a Spark data frame
        rows = rows.toArrow()
    elif hasattr(rows, "to_arrow"):  # a polars data frame
        rows = _plain_columns(rows.to_arrow())
    if hasattr(rows, "columns") or hasattr(rows, "schema"):
        import pyarrow as pa

        table = rows if isinstance(rows, pa.Table) else pa.Table.from_pandas(rows, preserve_index=False)
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        return ARROW_STREAM, bytes(sink.getvalue())
    lines = [json.dumps(row, default=_plain) for row in ([rows] if isinstance(rows, Mapping) else rows)]
    return JSON_LINES, "".join(f"{line}\n" for line in lines).encode()


def _plain_columns(table: Any) -> Any:
    """Polars writes text as views of text, which servers do not read."""
    import pyarrow as pa

    views = {pa.string_view(): pa.string(), pa.large_string(): pa.string()}
    fields = [pa.field(x.name, views.get(x.type, x.type)) for x in table.schema]
    return table.cast(pa.schema(fields))


def _plain(value: Any) -> str:
    if hasattr(value, "isoformat"):
        return str(value.isoformat())
    raise HeadgateError(f"cannot publish a value of type {type(value).__name__}")
