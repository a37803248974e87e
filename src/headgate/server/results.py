"""Sends results as they come, until the reader leaves, its session or its subscription ends: as the answer to
`GET .../results`, or over a WebSocket. Both send what the dispatcher has decided about, and nothing else."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress

from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send
from starlette.websockets import WebSocketDisconnect

from headgate.protocol import BEGINNING
from headgate.server.dispatch import Chunk, Connection, Dispatcher
from headgate.server.settings import Settings

LOOK_SECONDS = 0.02
ONE_WAY = 1008
"""The code with which a WebSocket is closed whose client sends something: results go one way."""

Write = Callable[[bytes], Awaitable[None]]


class Results:
    """The results of one connection. Without `follow` they end where they end now."""

    def __init__(self, dispatcher: Dispatcher, connection: Connection, settings: Settings, *, follow: bool) -> None:
        self.connection = connection
        self._dispatcher, self._settings, self._follow = dispatcher, settings, follow

    @contextmanager
    def on(self, scope: Scope) -> Iterator[None]:
        """While this lasts, a change of rights finds the connection."""
        link = self.connection.link = scope.get("state", {}).get("link")
        if link is not None:
            link.narrow()
        self._dispatcher.connections.add(self.connection)
        try:
            yield
        finally:
            self._dispatcher.connections.discard(self.connection)

    async def send(self, write: Write, finish: Callable[[], Awaitable[None]], leaving: asyncio.Future[None]) -> None:
        """Sends all there is, and finishes. A reader that takes nothing for too long is cut off."""
        with suppress(TimeoutError):
            await self._send_all(write, leaving)
            async with asyncio.timeout(self._settings.stall_seconds):
                if not self.connection.is_reset:
                    await finish()
                    await self._arrival()
                if self.connection.is_reset:  # until it is closed, the web server takes the answer for a forgotten one
                    await asyncio.wait([leaving])
            return
        if self.connection.link is not None:
            self.connection.link.reset()

    async def _send_all(self, write: Write, leaving: asyncio.Future[None]) -> None:
        """Signs of life come at a time that only what was sent to this reader decides: a connection is woken by changes
        of rights too, and must not show it."""
        connection, rendering = self.connection, self.connection.rendering
        await self._write(write, rendering.begin() + self._dispatcher.lost(connection))
        quiet_until = time.monotonic() + self._settings.heartbeat_seconds
        while not (leaving.done() or connection.is_reset):
            connection.woken.clear()
            chunk = await self._dispatcher.next(connection)
            if connection.is_reset:
                return
            if chunk.content:
                await self._write(write, chunk.content, chunk)
                quiet_until = time.monotonic() + self._settings.heartbeat_seconds
            if chunk.ended:
                await self._write(write, rendering.notice({"closed": chunk.ended}, ""))
                return
            if chunk.more:
                continue
            if not self._follow:
                return
            with suppress(TimeoutError):
                async with asyncio.timeout(quiet_until - time.monotonic()):
                    await connection.woken.wait()
            if time.monotonic() >= quiet_until:
                await self._write(write, rendering.heartbeat())
                quiet_until = time.monotonic() + self._settings.heartbeat_seconds

    async def _arrival(self) -> None:
        """Waits until the reader's machine has everything: until then a change of rights must find the connection."""
        while not self.connection.is_reset:
            self.connection.forget_arrived()
            if not self.connection.flights:
                return
            await asyncio.sleep(LOOK_SECONDS)

    async def _write(self, write: Write, content: bytes, chunk: Chunk | None = None) -> None:
        """Waits until the connection takes more, but not for ever."""
        if content:
            self.connection.sent += len(content)
            async with asyncio.timeout(self._settings.stall_seconds):
                await write(content)
        if chunk is not None and chunk.flight is not None:
            chunk.flight.end = self.connection.sent


class ResultStream(Response):
    """The results as the body of an answer that has no end. A header says after which position they begin, so that a
    reader of what comes from now on loses nothing if the connection breaks before anything came."""

    def __init__(self, results: Results, position: str) -> None:
        super().__init__(headers={BEGINNING: position}, media_type=results.connection.rendering.media_type)
        del self.headers["content-length"]
        self._results = results

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def write(content: bytes) -> None:
            await send({"type": "http.response.body", "body": content, "more_body": True})

        async def finish() -> None:
            await send({"type": "http.response.body", "body": connection.rendering.end()})

        connection = self._results.connection
        leaving = asyncio.ensure_future(_left(receive, connection.woken))
        try:
            with self._results.on(scope):
                await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
                await self._results.send(write, finish, leaving)
        finally:
            leaving.cancel()


async def send_over_socket(results: Results, scope: Scope, receive: Receive, send: Send, *, chosen: str) -> None:
    """The results as messages of a WebSocket, each some JSON lines; an empty message is a sign of life. `chosen` is the
    subprotocol, empty if the client named none."""

    async def write(content: bytes) -> None:
        await send({"type": "websocket.send", "text": content.decode().rstrip("\n")})

    async def finish() -> None:
        await send({"type": "websocket.close", "code": ONE_WAY if leaving.done() else 1000})

    connection = results.connection
    await receive()  # that it wants to connect
    leaving = asyncio.ensure_future(_left(receive, connection.woken))
    try:
        with results.on(scope):
            await send({"type": "websocket.accept", "subprotocol": chosen or None})
            await results.send(write, finish, leaving)
    except WebSocketDisconnect:
        return  # the client has left while something was sent
    finally:
        leaving.cancel()


async def _left(receive: Receive, woken: asyncio.Event) -> None:
    """Ends when the client has left, or sends over a WebSocket what nobody asked for."""
    while True:
        message: Message = await receive()
        if message["type"] in ("http.disconnect", "websocket.disconnect", "websocket.receive"):
            woken.set()
            return
