"""A session with a server, from Python: run statements, read results, publish tuples."""

from __future__ import annotations

import secrets
import ssl
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeAlias

import httpx

from headgate.client import forms, trust
from headgate.client.forms import (
    FIRST_PAUSE,
    LONGEST_PAUSE,
    Answer,
    PublisherIdentity,
    Reasons,
    Received,
    ResultsRequest,
)
from headgate.client.local import SCHEME, server_of
from headgate.client.profiles import Profiles
from headgate.client.wire import Busy, Unreachable, Wire, checked
from headgate.errors import StoreError
from headgate.protocol import ARROW_STREAM, EVENTS, JSON_LINES

if TYPE_CHECKING:
    import pandas as pd  # type: ignore[import-untyped]
    import polars as pl
    import pyarrow as pa
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from pyspark.sql import DataFrame

    Rows: TypeAlias = Iterable[Mapping[str, Any]] | pa.Table | pd.DataFrame | pl.DataFrame | DataFrame
    """What can be published: mappings of columns to values, or columns."""

STARTING_SECONDS = 300.0
"""How long results are asked for again while the engine starts."""


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
    """Opens a session: with user and password, or with the token of one that is open. `url` is the address of a server,
    or a home folder on this machine, whose server is started if none runs. `certificate` is a PEM file with the
    server's certificate or its authority; `pin` is the certificate itself; without them the certificate is trusted
    that the command line has accepted for this address."""
    address = address_of(url)
    client = Client(address, context_of(address, certificate, pin), token)
    if user:
        try:
            client.login(user, password, roles=roles, level=level)
        except BaseException:
            client.close()
            raise
    return client


def address_of(url: str) -> str:
    return url if url.startswith(("https://", "http://", SCHEME)) else server_of(Path(url))


def context_of(address: str, certificate: str | Path | None, pin: str) -> ssl.SSLContext | None:
    """None: nothing is known of the server, so one of the authorities that this machine trusts must vouch for it."""
    if certificate and not pin:
        return trust.given(Path(certificate))
    known = pin or (Profiles().certificate_of(address) if address.startswith("https://") else "")
    return trust.pinned(known) if known else None


class Client:
    def __init__(self, url: str, context: ssl.SSLContext | None = None, token: str = "") -> None:
        self._wire = Wire(url, context, token)
        self.told: Callable[[str], None] = lambda _: None
        """Called with what a person who waits for results wants to know: that it subscribed, why nothing comes."""
        self._idle: dict[str, list[Publisher]] = {}
        """Publishers of `publish`, by stream: their names are used again, by one thread at a time."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes connections; the session stays open until `logout` or until it expires."""
        self._wire.close()

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
        self._wire.token = str(self._wire.post("/v1/login", forms.login(user, password, roles, level))["token"])
        return self._wire.token

    def logout(self) -> None:
        self._wire.post("/v1/logout", {})
        self._wire.token = ""

    def execute(self, script: str) -> list[Answer]:
        """Runs a script of statements, as a whole or not at all."""
        return forms.answers(self._wire.post("/v1/statements", {"script": script}))

    def explain(self, query: str, *, picture: bool = False) -> tuple[str, str]:
        """The plan of a query as text, and as SVG if asked for."""
        found = self._wire.post("/v1/explain", {"query": query, "picture": picture})
        return found["text"], found["picture"]

    def why(self, user: str, permission: str, thing: str) -> Reasons:
        """Why a user has or lacks a permission, such as `READ TUPLE` on `STREAM joe.pulse`."""
        found = self._wire.post("/v1/why", {"user": user, "permission": permission, "object": thing})
        return Reasons(found["granted"], found["object"], found["reason"], tuple(found["details"]))

    def metrics(self) -> str:
        """What the server counts, as Prometheus reads it: for those who may CHANGE SYSTEM."""
        return self._wire.text("/metrics")

    # Results ----------------------------------------------------------------------------------------------------------

    def subscribe(
        self, stream: str, *, after: str = "", begin: str = "oldest", follow: bool = True
    ) -> Iterator[Received]:
        """The results of a stream, from the oldest that is kept, from `now`, or after a position. Subscribes if that
        was not done. A connection that breaks is opened again, and goes on where it was; without `follow` the results
        end where they end now."""
        self._ensure_subscribed(stream)
        events, pause = forms.Events(stream, after), FIRST_PAUSE
        while True:
            try:
                for received in self._events(ResultsRequest(stream, EVENTS, events.position, begin, follow), events):
                    pause = FIRST_PAUSE
                    yield received
                if not follow:
                    return
            except (Unreachable, StoreError) as error:
                if not follow:
                    raise
                if pause == FIRST_PAUSE:
                    self.told(f"{error.message}; trying again")
            time.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)

    def _ensure_subscribed(self, stream: str) -> None:
        """Also waits while the engine starts: it does so when the first one subscribes."""
        until, said = time.monotonic() + STARTING_SECONDS, False
        while True:
            try:
                with (
                    self._wire.reaching(),
                    self._opened(ResultsRequest(stream, EVENTS, "", "now", follow=False)) as answer,
                ):
                    if answer.status_code != 409:
                        checked(answer)
                        return
                    answer.read()
                for done in self.execute(f"SUBSCRIBE TO {stream}"):
                    self.told(done.text)
            except StoreError as error:
                if time.monotonic() > until:
                    raise
                if not said:
                    self.told(f"{error.message}; waiting for it")
                said = True
                time.sleep(FIRST_PAUSE)

    @contextmanager
    def _opened(self, wanted: ResultsRequest) -> Iterator[httpx.Response]:
        headers = self._wire.headers(wanted.headers)
        with self._wire.http.stream("GET", wanted.path, params=wanted.parameters, headers=headers) as answer:
            yield answer

    def _events(self, wanted: ResultsRequest, events: forms.Events) -> Iterator[Received]:
        with self._wire.reaching(), self._opened(wanted) as answer:
            events.begin(checked(answer).headers)
            for line in answer.iter_lines():
                if (found := events.take(line)) is not None:
                    yield found

    def arrow(self, stream: str, *, after: str = "", begin: str = "oldest") -> pa.Table:
        """All results that there are now, as an Arrow table, each with its position, time and label."""
        import pyarrow as pa

        self._ensure_subscribed(stream)
        wanted = ResultsRequest(stream, ARROW_STREAM, after, begin, follow=False)
        with self._wire.reaching(), self._opened(wanted) as answer:
            return pa.ipc.open_stream(checked(answer).read()).read_all()

    def pandas(self, stream: str, *, after: str = "") -> pd.DataFrame:
        """As `arrow`, as a pandas data frame."""
        found: pd.DataFrame = self.arrow(stream, after=after).to_pandas()
        return found

    def polars(self, stream: str, *, after: str = "") -> pl.DataFrame:
        """As `arrow`, as a polars data frame (`pip install headgate[polars]`)."""
        import polars as pl

        found = pl.from_arrow(self.arrow(stream, after=after))
        assert isinstance(found, pl.DataFrame)  # noqa: S101
        return found

    # Publishing -------------------------------------------------------------------------------------------------------

    def publish(self, stream: str, rows: Rows) -> int:
        """Publishes rows, all or none; returns how many, when they are durable at the server."""
        idle = self._idle.setdefault(stream, [])
        try:
            publisher = idle.pop()
        except IndexError:
            publisher = self.publisher(stream)
        count = publisher.send(rows)
        idle.append(publisher)  # not after a failure: nobody knows whether its number was taken
        return count

    def publisher(
        self, stream: str, *, producer: str = "", begin: int = 1, key: Ed25519PrivateKey | None = None
    ) -> Publisher:
        """For many requests: they are numbered, so that what is sent again after a failure is not taken twice."""
        sender = PublisherIdentity(stream, producer or secrets.token_hex(8), self.user if key else "", key)
        return Publisher(self._wire, sender, begin)


class Publisher:
    """Sends rows to one stream. A request that fails is sent again, with the same number, until the server answers."""

    def __init__(self, wire: Wire, sender: PublisherIdentity, begin: int) -> None:
        self._wire, self._sender = wire, sender
        self.sequence = begin
        """The number of the next request."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Everything was acknowledged when `send` returned."""

    def send(self, rows: Rows, *, seconds: float = 60) -> int:
        """Sends rows in one request; tries for so many seconds. Returns how many rows there were."""
        return self._send(*forms.body_of(rows), seconds)

    def send_lines(self, lines: bytes, *, seconds: float = 60) -> int:
        """Sends rows that are JSON lines already."""
        return self._send(JSON_LINES, lines, seconds)

    def _send(self, form: str, body: bytes, seconds: float) -> int:
        headers = self._sender.headers(form, body, self.sequence)
        until, pause = time.monotonic() + seconds, FIRST_PAUSE
        while True:
            try:
                found = self._wire.send(self._sender.path, body, headers)
                self.sequence += 1
                return int(found["rows"])
            except (Unreachable, Busy, StoreError) as error:
                if time.monotonic() + pause > until:
                    raise
                time.sleep(error.seconds if isinstance(error, Busy) else pause)
                pause = min(2 * pause, LONGEST_PAUSE)
