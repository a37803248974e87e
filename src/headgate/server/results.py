"""The answer to `GET .../results`: sends results as they come, until the reader leaves, its session or its subscription
ends."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress

from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from headgate.errors import AuthenticationFailed
from headgate.server.dispatch import SESSION_ENDED, Chunk, Connection, Dispatcher
from headgate.server.settings import Settings

TOUCH_SECONDS = 20.0
"""How often an open connection counts as use of its session."""


class ResultStream(Response):
    """`use` marks the session of the connection as used; without `follow` the answer ends where the results end."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        connection: Connection,
        settings: Settings,
        use: Callable[[], None],
        *,
        follow: bool,
    ) -> None:
        super().__init__(media_type=connection.rendering.media_type)
        del self.headers["content-length"]
        self._dispatcher, self._connection, self._settings = dispatcher, connection, settings
        self._use, self._follow = use, follow

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        connection = self._connection
        connection.link = scope.get("state", {}).get("link")
        if connection.link is not None:
            connection.link.narrow()
        self._dispatcher.connections.add(connection)
        leaving = asyncio.ensure_future(_left(receive, connection.woken))
        try:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            with suppress(TimeoutError):
                await self._send_all(send, leaving)
                await self._write(send, connection.rendering.end(), last=True)
                return
            if connection.link is not None:  # it takes nothing for too long
                connection.link.reset()
        finally:
            leaving.cancel()
            self._dispatcher.connections.discard(connection)

    async def _send_all(self, send: Send, leaving: asyncio.Future[None]) -> None:
        connection, rendering, used = self._connection, self._connection.rendering, time.monotonic()
        await self._write(send, rendering.begin() + self._dispatcher.lost(connection))
        while not (leaving.done() or connection.is_reset):
            connection.woken.clear()
            if time.monotonic() - used > TOUCH_SECONDS:
                used = time.monotonic()
                try:
                    await asyncio.to_thread(self._use)
                except AuthenticationFailed:
                    await self._write(send, rendering.notice({"closed": SESSION_ENDED}, ""))
                    return
            chunk = await self._dispatcher.next(connection)
            if connection.is_reset:
                return
            if chunk.content:
                await self._write(send, chunk.content, chunk)
            if chunk.ended:
                await self._write(send, rendering.notice({"closed": chunk.ended}, ""))
                return
            if chunk.more:
                continue
            if not self._follow:
                return
            try:
                async with asyncio.timeout(self._settings.heartbeat_seconds):
                    await connection.woken.wait()
            except TimeoutError:
                await self._write(send, rendering.heartbeat())

    async def _write(self, send: Send, content: bytes, chunk: Chunk | None = None, *, last: bool = False) -> None:
        """Waits until the connection takes more, but not for ever."""
        if content or last:
            self._connection.sent += len(content)
            async with asyncio.timeout(self._settings.stall_seconds):
                await send({"type": "http.response.body", "body": content, "more_body": not last})
        if chunk is not None and chunk.flight is not None:
            chunk.flight.end = self._connection.sent


async def _left(receive: Receive, woken: asyncio.Event) -> None:
    """Ends when the client has left."""
    while True:
        message: Message = await receive()
        if message["type"] == "http.disconnect":
            woken.set()
            return
