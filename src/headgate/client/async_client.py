"""The same session for programs with an event loop: `await headgate.aconnect(url)`."""

from __future__ import annotations

import asyncio
import secrets
import ssl
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Self

import httpx

from headgate.client import forms
from headgate.client.client import STARTING_SECONDS, address_of, context_of
from headgate.client.forms import (
    FIRST_PAUSE,
    LONGEST_PAUSE,
    Answer,
    PublisherIdentity,
    Reasons,
    Received,
    ResultsRequest,
)
from headgate.client.wire import AsyncWire, Busy, Unreachable, acheck
from headgate.errors import StoreError
from headgate.protocol import ARROW_STREAM, EVENTS

if TYPE_CHECKING:
    import pandas as pd  # type: ignore[import-untyped]
    import polars as pl
    import pyarrow as pa
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    from headgate.client.client import Rows


async def aconnect(
    url: str,
    user: str = "",
    password: str = "",
    *,
    roles: Sequence[str] | None = None,
    level: str | None = None,
    token: str = "",
    certificate: str | Path | None = None,
    pin: str = "",
) -> AsyncClient:
    """As `connect`."""
    address = await asyncio.to_thread(address_of, url)
    client = AsyncClient(address, context_of(address, certificate, pin), token)
    if user:
        try:
            await client.login(user, password, roles=roles, level=level)
        except BaseException:
            await client.close()
            raise
    return client


class AsyncClient:
    """Every operation means what the one of the same name means in `Client`."""

    def __init__(self, url: str, context: ssl.SSLContext | None = None, token: str = "") -> None:
        self._wire = AsyncWire(url, context, token)
        self._idle: dict[str, list[AsyncPublisher]] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        await self._wire.close()

    @property
    def token(self) -> str:
        return self._wire.token

    async def user(self) -> str:
        return str((await self._wire.get("/v1/session"))["user"])

    # Sessions and statements ------------------------------------------------------------------------------------------

    async def login(
        self, user: str, password: str, *, roles: Sequence[str] | None = None, level: str | None = None
    ) -> str:
        found = await self._wire.post("/v1/login", forms.login(user, password, roles, level))
        self._wire.token = str(found["token"])
        return self._wire.token

    async def logout(self) -> None:
        await self._wire.post("/v1/logout", {})
        self._wire.token = ""

    async def execute(self, script: str) -> list[Answer]:
        return forms.answers(await self._wire.post("/v1/statements", {"script": script}))

    async def explain(self, query: str, *, picture: bool = False) -> tuple[str, str]:
        found = await self._wire.post("/v1/explain", {"query": query, "picture": picture})
        return found["text"], found["picture"]

    async def why(self, user: str, permission: str, thing: str) -> Reasons:
        found = await self._wire.post("/v1/why", {"user": user, "permission": permission, "object": thing})
        return Reasons(found["granted"], found["object"], found["reason"], tuple(found["details"]))

    async def metrics(self) -> str:
        return await self._wire.text("/metrics")

    # Results ----------------------------------------------------------------------------------------------------------

    async def subscribe(
        self, stream: str, *, after: str = "", begin: str = "oldest", follow: bool = True
    ) -> AsyncIterator[Received]:
        await self._ensure_subscribed(stream)
        events, pause = forms.Events(stream, after), FIRST_PAUSE
        while True:
            try:
                async for received in self._events(
                    ResultsRequest(stream, EVENTS, events.position, begin, follow), events
                ):
                    pause = FIRST_PAUSE
                    yield received
                if not follow:
                    return
            except (Unreachable, StoreError):
                if not follow:
                    raise
            await asyncio.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)

    async def _ensure_subscribed(self, stream: str) -> None:
        until = time.monotonic() + STARTING_SECONDS
        while True:
            try:
                async with self._opened(ResultsRequest(stream, EVENTS, "", "now", follow=False)) as answer:
                    if answer.status_code != 409:
                        await acheck(answer)
                        return
                    await answer.aread()
                await self.execute(f"SUBSCRIBE TO {stream}")
            except StoreError:
                if time.monotonic() > until:
                    raise
                await asyncio.sleep(FIRST_PAUSE)

    @asynccontextmanager
    async def _opened(self, wanted: ResultsRequest) -> AsyncIterator[httpx.Response]:
        headers = self._wire.headers(wanted.headers)
        with self._wire.reaching():
            async with self._wire.http.stream("GET", wanted.path, params=wanted.parameters, headers=headers) as answer:
                yield answer

    async def _events(self, wanted: ResultsRequest, events: forms.Events) -> AsyncIterator[Received]:
        async with self._opened(wanted) as answer:
            events.begin((await acheck(answer)).headers)
            async for line in answer.aiter_lines():
                if (found := events.take(line)) is not None:
                    yield found

    async def arrow(self, stream: str, *, after: str = "", begin: str = "oldest") -> pa.Table:
        import pyarrow as pa

        await self._ensure_subscribed(stream)
        async with self._opened(ResultsRequest(stream, ARROW_STREAM, after, begin, follow=False)) as answer:
            await acheck(answer)
            return pa.ipc.open_stream(await answer.aread()).read_all()

    async def pandas(self, stream: str, *, after: str = "") -> pd.DataFrame:
        found: pd.DataFrame = (await self.arrow(stream, after=after)).to_pandas()
        return found

    async def polars(self, stream: str, *, after: str = "") -> pl.DataFrame:
        import polars as pl

        found = pl.from_arrow(await self.arrow(stream, after=after))
        assert isinstance(found, pl.DataFrame)  # noqa: S101
        return found

    # Publishing -------------------------------------------------------------------------------------------------------

    async def publish(self, stream: str, rows: Rows) -> int:
        idle = self._idle.setdefault(stream, [])
        publisher = idle.pop() if idle else await self.publisher(stream)
        count = await publisher.send(rows)
        idle.append(publisher)
        return count

    async def publisher(
        self, stream: str, *, producer: str = "", begin: int = 1, key: Ed25519PrivateKey | None = None
    ) -> AsyncPublisher:
        user = await self.user() if key else ""
        return AsyncPublisher(self._wire, PublisherIdentity(stream, producer or secrets.token_hex(8), user, key), begin)


class AsyncPublisher:
    """Sends rows to one stream, one request after the other."""

    def __init__(self, wire: AsyncWire, sender: PublisherIdentity, begin: int) -> None:
        self._wire, self._sender = wire, sender
        self.sequence = begin

    async def send(self, rows: Rows, *, seconds: float = 60) -> int:
        form, body = await asyncio.to_thread(forms.body_of, rows)
        headers = self._sender.headers(form, body, self.sequence)
        until, pause = time.monotonic() + seconds, FIRST_PAUSE
        while True:
            try:
                found = await self._wire.send(self._sender.path, body, headers)
                self.sequence += 1
                return int(found["rows"])
            except (Unreachable, Busy, StoreError) as error:
                if time.monotonic() + pause > until:
                    raise
                await asyncio.sleep(error.seconds if isinstance(error, Busy) else pause)
                pause = min(2 * pause, LONGEST_PAUSE)
