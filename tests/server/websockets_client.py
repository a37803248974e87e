"""A WebSocket for tests. The client of its library that needs no event loop reads and writes one TLS connection in two
threads, which OpenSSL does not allow: from time to time a request never leaves it. Here one thread does both."""

from __future__ import annotations

import asyncio
import ssl
import threading
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosedOK

T = TypeVar("T")
SECONDS = 30


class Socket:
    def __init__(self, loop: asyncio.AbstractEventLoop, connection: ClientConnection) -> None:
        self._loop, self._connection = loop, connection

    @property
    def subprotocol(self) -> str | None:
        return self._connection.subprotocol

    @property
    def close_code(self) -> int | None:
        return self._connection.close_code

    def send(self, text: str) -> None:
        _run(self._loop, self._connection.send(text))

    def recv(self, seconds: float) -> str:
        return str(_run(self._loop, asyncio.wait_for(self._connection.recv(), seconds)))

    def __iter__(self) -> Iterator[str]:
        try:
            while True:
                yield self.recv(SECONDS)
        except ConnectionClosedOK:
            return


def _run(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run_coroutine_threadsafe(work, loop).result(SECONDS)


@contextmanager
def socket_at(address: str, context: ssl.SSLContext, headers: dict[str, str], **more: Any) -> Iterator[Socket]:
    async def enter() -> ClientConnection:
        return await connect(address, ssl=context, additional_headers=headers, compression=None, **more)

    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        connection = _run(loop, enter())
        try:
            yield Socket(loop, connection)
        finally:
            _run(loop, connection.close())
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(SECONDS)
        loop.close()
