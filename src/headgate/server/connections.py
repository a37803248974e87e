"""Connections as the operating system has them: limits on what a client may hold open, and how to take back what was
sent.

What a server has sent waits in its own buffer and in the kernel's until the other machine acknowledges it. A connection
that is reset discards both.
"""

from __future__ import annotations

import asyncio
import fcntl
import socket
import struct
import termios
from contextlib import suppress
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

HEADER_SECONDS = 10.0
"""How long the head of a request may take to arrive."""
SEND_BUFFER = 64 << 10
"""Bytes that wait in this process, and in the kernel, for a reader that does not take them."""


class LimitedProtocol(H11Protocol):
    """A connection of uvicorn's. Whoever sends half a request is cut off; there is a limit on connections."""

    most = 4096

    def __init__(self, *given: Any, **more: Any) -> None:
        super().__init__(*given, **more)
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.app_state = {**self.app_state, "link": Link(transport)}
        transport.set_write_buffer_limits(high=SEND_BUFFER)
        if len(self.connections) > self.most:
            transport.abort()
            return
        self._expect()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.conn.their_state is h11.IDLE:
            self._expect()
        elif self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        super().connection_lost(exc)

    def _expect(self) -> None:
        if self._timer is None:
            self._timer = self.loop.call_later(HEADER_SECONDS, self._late)

    def _late(self) -> None:
        self._timer = None
        if self.conn.their_state is h11.IDLE and (self.cycle is None or self.cycle.response_complete):
            self.transport.abort()


def limited(most: int) -> type[LimitedProtocol]:
    """The protocol of a server with this many connections at the same time."""

    class Limited(LimitedProtocol):
        pass

    Limited.most = most
    return Limited


class Link:
    """One connection: what it still holds of what was written to it, and how to discard that."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._socket: socket.socket | None = transport.get_extra_info("socket")

    def narrow(self) -> None:
        """The kernel keeps little for a reader that does not read."""
        if self._socket is not None:
            with suppress(OSError):
                self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER)

    def unacknowledged(self) -> int:
        """Bytes that the other machine has not acknowledged yet."""
        waiting = self._transport.get_write_buffer_size()
        if self._socket is None or self._socket.fileno() < 0:
            return waiting
        try:
            found = fcntl.ioctl(self._socket.fileno(), termios.TIOCOUTQ, b"\0\0\0\0")
        except OSError:
            return waiting
        return waiting + int(struct.unpack("i", found)[0])

    def reset(self) -> None:
        """Discards everything that was not acknowledged, and the connection."""
        if self._socket is not None:
            with suppress(OSError):
                self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._transport.abort()

    @property
    def closed(self) -> bool:
        return self._socket is None or self._socket.fileno() < 0
