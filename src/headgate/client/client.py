"""A session with a server, from Python: run statements, read results, publish tuples."""

from __future__ import annotations

import base64
import json
import secrets
import ssl
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import quote

import httpx

from headgate.client import trust
from headgate.client.wire import Busy, Unreachable, Wire, checked
from headgate.errors import Conflict, HeadgateError, StoreError
from headgate.protocol import ARROW_STREAM, EVENTS, JSON_LINES, POSITION, PRODUCER, SEQUENCE, SIGNATURE, signed_message

if TYPE_CHECKING:
    import pandas as pd  # type: ignore[import-untyped]
    import pyarrow as pa
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
class Received:
    """A result, with its time, label and values; or a notice, which has none of these (`ended`, `waits`, `suspended`,
    `lost`). One goes on after it with its position."""

    position: str
    time: str = ""
    label: str = ""
    values: Mapping[str, Any] | None = None
    notice: Mapping[str, str] | None = None


def connect(
    url: str,
    user: str = "",
    password: str = "",
    *,
    roles: Sequence[str] | None = None,
    level: str | None = None,
    token: str = "",
    certificate: str | Path | None = None,
    pin: str = "",
) -> Client:
    """Opens a session: with user and password, or with the token of one that is open. `certificate` is a PEM file with
    the server's certificate or its authority; `pin` is the certificate itself."""
    context = trust.pinned(pin) if pin else trust.given(Path(certificate)) if certificate else None
    client = Client(url, context, token)
    if user:
        try:
            client.login(user, password, roles=roles, level=level)
        except BaseException:
            client.close()
            raise
    return client


class Client:
    def __init__(self, url: str, context: ssl.SSLContext | None = None, token: str = "") -> None:
        self._wire = Wire(url, context, token)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes connections; the session stays open until `logout` or until it expires."""
        self._wire.http.close()

    @property
    def url(self) -> str:
        return self._wire.url

    @property
    def token(self) -> str:
        return self._wire.token

    @property
    def user(self) -> str:
        """Whose session it is."""
        return str(self._wire.get("/v1/session")["user"])

    # Sessions and statements ------------------------------------------------------------------------------------------

    def login(self, user: str, password: str, *, roles: Sequence[str] | None = None, level: str | None = None) -> str:
        body = {"user": user, "password": password, "roles": None if roles is None else list(roles), "level": level}
        self._wire.token = str(self._wire.post("/v1/login", body)["token"])
        return self._wire.token

    def logout(self) -> None:
        self._wire.post("/v1/logout", {})
        self._wire.token = ""

    def execute(self, script: str) -> list[Answer]:
        """Runs a script of statements, as a whole or not at all."""
        found = self._wire.post("/v1/statements", {"script": script})
        return [Answer(x["text"], tuple(x["columns"]), tuple(map(tuple, x["rows"]))) for x in found]

    def explain(self, query: str, *, picture: bool = False) -> tuple[str, str]:
        """The plan of a query as text, and as SVG if asked for."""
        found = self._wire.post("/v1/explain", {"query": query, "picture": picture})
        return found["text"], found["picture"]

    # Results ----------------------------------------------------------------------------------------------------------

    def subscribe(
        self, stream: str, *, after: str = "", begin: str = "oldest", follow: bool = True
    ) -> Iterator[Received]:
        """The results of a stream, from the oldest that is kept, from `now`, or after a position. Subscribes if that
        was not done. A connection that breaks is opened again, and goes on where it was; without `follow` the results
        end where they end now."""
        position, pause, subscribed = after, FIRST_PAUSE, False
        while True:
            try:
                if not subscribed:
                    self._ensure_subscribed(stream)
                    subscribed = True
                for received in self._events(stream, position, begin, follow=follow):
                    position, pause = received.position or position, FIRST_PAUSE
                    if received.notice is not None and "closed" in received.notice:
                        raise Conflict(f"results of {stream} have ended: {received.notice['closed']}")
                    yield received
                if not follow:
                    return
            except (Unreachable, StoreError):
                if not follow:
                    raise
            time.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)

    def _ensure_subscribed(self, stream: str) -> None:
        with self._wire.reaching(), self._opened(stream, EVENTS, "", "now", follow=False) as answer:
            if answer.status_code == 409:
                answer.read()
                self.execute(f"SUBSCRIBE TO {stream}")
            else:
                checked(answer)

    @contextmanager
    def _opened(self, stream: str, form: str, after: str, begin: str, *, follow: bool) -> Iterator[httpx.Response]:
        headers = self._wire.headers({"Accept": form} | ({POSITION: after} if after else {}))
        asked = {"begin": begin, "follow": str(follow).lower()}
        path = f"/v1/streams/{quote(stream, safe='')}/results"
        with self._wire.http.stream("GET", path, params=asked, headers=headers) as answer:
            yield answer

    def _events(self, stream: str, after: str, begin: str, *, follow: bool) -> Iterator[Received]:
        with self._wire.reaching(), self._opened(stream, EVENTS, after, begin, follow=follow) as answer:
            checked(answer)
            found: dict[str, str] = {}
            for line in answer.iter_lines():
                if line:
                    name, _, value = line.partition(": ")
                    found[name] = value
                    continue
                if "data" in found:
                    yield _received(found)
                found = {}

    def arrow(self, stream: str, *, after: str = "") -> pa.Table:
        """All results that there are now, as an Arrow table, each with its position, time and label."""
        import pyarrow as pa

        self._ensure_subscribed(stream)
        with self._wire.reaching(), self._opened(stream, ARROW_STREAM, after, "oldest", follow=False) as answer:
            return pa.ipc.open_stream(checked(answer).read()).read_all()

    def pandas(self, stream: str, *, after: str = "") -> pd.DataFrame:
        """As `arrow`, as a pandas data frame."""
        found: pd.DataFrame = self.arrow(stream, after=after).to_pandas()
        return found

    # Publishing -------------------------------------------------------------------------------------------------------

    def publish(self, stream: str, rows: Iterable[Mapping[str, Any]] | pa.Table | pd.DataFrame) -> int:
        """Publishes rows, all or none; returns how many, when they are durable at the server."""
        with self.publisher(stream) as publisher:
            return publisher.send(rows)

    def publisher(
        self, stream: str, *, producer: str = "", begin: int = 1, key: Ed25519PrivateKey | None = None
    ) -> Publisher:
        """For many requests: they are numbered, so that what is sent again after a failure is not taken twice."""
        return Publisher(self._wire, self.user if key else "", stream, producer or secrets.token_hex(8), begin, key)


class Publisher:
    """Sends rows to one stream. A request that fails is sent again, with the same number, until the server answers."""

    def __init__(
        self, wire: Wire, user: str, stream: str, producer: str, begin: int, key: Ed25519PrivateKey | None
    ) -> None:
        self._wire, self._user, self._stream, self._producer, self._key = wire, user, stream, producer, key
        self.sequence = begin
        """The number of the next request."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Everything was acknowledged when `send` returned."""

    def send(self, rows: Iterable[Mapping[str, Any]] | pa.Table | pd.DataFrame, *, seconds: float = 60) -> int:
        """Sends rows in one request; tries for so many seconds. Returns how many rows there were."""
        return self._send(*_body(rows), seconds)

    def send_lines(self, lines: bytes, *, seconds: float = 60) -> int:
        """Sends rows that are JSON lines already."""
        return self._send(JSON_LINES, lines, seconds)

    def _send(self, form: str, body: bytes, seconds: float) -> int:
        headers = {"Content-Type": form, PRODUCER: self._producer, SEQUENCE: str(self.sequence)}
        if self._key is not None:
            message = signed_message(self._stream, self._user, self._producer, headers[SEQUENCE], body)
            headers[SIGNATURE] = base64.b64encode(self._key.sign(message)).decode()
        path = f"/v1/streams/{quote(self._stream, safe='')}/tuples"
        until, pause = time.monotonic() + seconds, FIRST_PAUSE
        while True:
            try:
                found = self._wire.send(path, body, headers)
                self.sequence += 1
                return int(found["rows"])
            except (Unreachable, Busy, StoreError) as error:
                if time.monotonic() + pause > until:
                    raise
                time.sleep(error.seconds if isinstance(error, Busy) else pause)
                pause = min(2 * pause, LONGEST_PAUSE)


def _received(event: Mapping[str, str]) -> Received:
    data = json.loads(event["data"])
    if event.get("event") == "notice":
        return Received(event.get("id", ""), notice=data)
    return Received(event.get("id", ""), data["time"], data["label"], data["values"])


def _body(rows: Any) -> tuple[str, bytes]:
    """Rows as Arrow if they come in columns, else as JSON lines."""
    if hasattr(rows, "columns") or hasattr(rows, "schema"):
        import pyarrow as pa

        table = rows if isinstance(rows, pa.Table) else pa.Table.from_pandas(rows, preserve_index=False)
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        return ARROW_STREAM, bytes(sink.getvalue())
    lines = [json.dumps(row, default=_plain) for row in ([rows] if isinstance(rows, Mapping) else rows)]
    return JSON_LINES, "".join(f"{line}\n" for line in lines).encode()


def _plain(value: Any) -> str:
    if hasattr(value, "isoformat"):
        return str(value.isoformat())
    raise HeadgateError(f"cannot publish a value of type {type(value).__name__}")
