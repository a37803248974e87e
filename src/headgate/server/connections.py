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
from asyncio import sslproto
from contextlib import suppress
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.exceptions import InvalidState

from headgate.errors import StoreError

HANDSHAKE_SECONDS = 20.0
"""How long it may take until a connection is encrypted."""
HEADER_SECONDS = 10.0
"""How long the head of a request may take to arrive."""
KEPT_SECONDS = 60
"""How long a connection is kept for the next request. Clients give theirs up earlier (httpx, and so ours, after 5): one
that both give up at the same moment would be closed under a request that is on its way."""
RECEIVE_BUFFER = 16 << 10
"""Bytes that an encrypted connection reads at once, for which it holds a buffer from its first moment on."""
SEND_BUFFER = 64 << 10
"""Bytes that wait in this process, and in the kernel, for a reader that does not take them."""
_UNSENT = 0x894B
"""SIOCOUTQNSD of Linux: bytes that the kernel has not sent once."""


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


class SocketProtocol(WebSocketsSansIOProtocol):
    """A WebSocket of uvicorn's, which ends with the server whatever state it is in."""

    def shutdown(self) -> None:
        try:
            super().shutdown()
        except InvalidState:  # it is being closed, and the client does not answer
            self.stop_keepalive()
            self.app_state["link"].reset()


def hold_little() -> None:
    """Encrypted connections of this process hold small buffers. asyncio's own take 256 KiB before anybody has shown who
    it is: a few thousand connections that say nothing would take a gigabyte."""
    sslproto.SSLProtocol.max_size = RECEIVE_BUFFER


def limited(most: int) -> type[LimitedProtocol]:
    """The protocol of a server with this many connections at the same time."""

    class Limited(LimitedProtocol):
        pass

    Limited.most = most
    return Limited


def _beneath(transport: asyncio.Transport) -> asyncio.Transport:
    """What an encrypted transport stands on, where encrypted bytes wait. It forgets that when it is closed twice, and
    could not be aborted any more. asyncio has no public name for it. INVARIANT: where it cannot be found no connection
    is served, for results that were sent could not be counted and taken back."""
    if transport.get_extra_info("sslcontext") is None:
        return transport
    found = getattr(getattr(transport, "_ssl_protocol", None), "_transport", None)
    if not isinstance(found, asyncio.Transport):
        transport.abort()
        raise StoreError("cannot serve: this version of Python hides what an encrypted connection stands on")
    return found


class Link:
    """One connection: what it still holds of what was written to it, and how to discard that."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._raw = _beneath(transport)
        self._socket: socket.socket | None = transport.get_extra_info("socket")

    @property
    def peer(self) -> dict[str, Any] | None:
        """The certificate that the other side has shown and TLS has verified."""
        encrypted = self._transport.get_extra_info("ssl_object")
        return encrypted.getpeercert() if encrypted is not None else None

    def narrow(self) -> None:
        """The kernel keeps little for a reader that does not read."""
        if self._socket is not None:
            with suppress(OSError):
                self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER)

    def unacknowledged(self) -> int:
        """Bytes that the other machine has not acknowledged yet."""
        return self._waiting_here() + (self._ask(termios.TIOCOUTQ) or 0)

    def unsent(self) -> int:
        """Bytes that have not left this machine; where that is not known, those that are not acknowledged."""
        found = self._ask(_UNSENT)
        return self.unacknowledged() if found is None else self._waiting_here() + found

    def _waiting_here(self) -> int:
        """Bytes that this process has not given to the kernel."""
        waiting = self._raw.get_write_buffer_size()
        if self._transport is not self._raw:
            with suppress(AttributeError):  # it was closed twice, and has nothing left
                waiting += self._transport.get_write_buffer_size()
        return waiting

    def _ask(self, what: int) -> int | None:
        """A number that the kernel has for the connection."""
        if self._socket is None or self._socket.fileno() < 0:
            return None
        try:
            found = fcntl.ioctl(self._socket.fileno(), what, b"\0\0\0\0")
        except OSError:
            return None
        return int(struct.unpack("i", found)[0])

    def reset(self) -> None:
        """Discards everything that was not acknowledged, and the connection."""
        if self._socket is not None:
            with suppress(OSError):
                self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._raw.abort()

    @property
    def closed(self) -> bool:
        return self._socket is None or self._socket.fileno() < 0
