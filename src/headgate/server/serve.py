"""The process of `headgate serve`: opens everything, listens, and ends between two batches when it is asked to."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import uvicorn

from headgate.egress.delivery_log import DeliveryLog
from headgate.egress.level_logs import LevelLogs
from headgate.egress.owner_files import OwnerFiles
from headgate.errors import StoreError
from headgate.home import SOCKET, socket_path
from headgate.logs import event
from headgate.server.app import Parts, make_app
from headgate.server.architecture import check_architecture
from headgate.server.certificates import tls_context
from headgate.server.connections import (
    HANDSHAKE_SECONDS,
    KEPT_SECONDS,
    LimitedProtocol,
    SocketProtocol,
    hold_little,
    limited,
)
from headgate.server.engine import SparkEngine
from headgate.server.home import check_private, secret
from headgate.server.ingress import open_log
from headgate.server.positions import Positions
from headgate.server.settings import Settings
from headgate.service import Headgate
from headgate.service.folders import Folders

if TYPE_CHECKING:
    from headgate.service.runs import LevelsApart

_LARGEST_MESSAGE = 4096
"""Bytes of a message over a WebSocket: clients send none."""
_GRACE = 5
"""Seconds that open requests get when the server is asked to end."""


@contextmanager
def opened(home: Path, headgate: Headgate, settings: Settings) -> Iterator[Parts]:
    """Everything that the server holds. Nobody else may be able to open the home folder."""
    check_private(home)
    engine_home = home / "engine"
    engine_home.mkdir(exist_ok=True, mode=0o700)
    check_architecture(engine_home, settings.architecture)
    owners = engine_home / "owners"

    def made(folder: Path) -> DeliveryLog:
        return DeliveryLog(folder, most=settings.log_bytes, longest=3600.0 * settings.log_hours)

    log = made(engine_home / "delivery")
    logs = LevelLogs(lambda level: made(engine_home / "level-delivery" / level.encode().hex()))

    def apart() -> LevelsApart:
        from headgate.levels.child import Resources
        from headgate.server.apart import levels_apart

        usual = Resources(memory=settings.level_memory, backlog=settings.level_backlog)
        return levels_apart(headgate, engine_home, owners, logs, settings.architecture, usual, settings.levels)

    together = settings.architecture == "trusted"
    with ExitStack() as stack:
        ingress, source = open_log(home / "ingress", settings)
        stack.callback(ingress.close)
        ingress.keep(headgate.published())
        engine = SparkEngine(
            headgate,
            engine_home,
            lambda: [OwnerFiles(owners, Folders(headgate)), log],
            master=settings.master,
            ingress=source,
            limits=settings.limits,
            execution=(settings.execution, settings.partitions),
            levels=None if together else apart,
        )
        positions = Positions(secret(home / "positions.key"))
        token = secret(home / "metrics.token").hex()
        yield Parts(headgate, engine, log, ingress, positions, settings, owners, token, None if together else logs)


class _Server(uvicorn.Server):
    """`told` is called with the address as soon as the server listens. With `idle_seconds` it ends when nobody was
    connected for so long, or when its home folder is gone."""

    def __init__(
        self, config: uvicorn.Config, home: Path, told: Callable[[str], None], idle_seconds: float | None
    ) -> None:
        super().__init__(config)
        self._home, self._told, self._idle_seconds = home, told, idle_seconds
        self._used = time.monotonic()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """What comes through the socket of the home folder is not encrypted: it does not leave this user. Whoever does
        not begin to encrypt in time is cut off."""
        given = sockets or []
        beyond = [x for x in given if x.family != socket.AF_UNIX]
        await super().startup([])
        for listening in given if self.started else []:
            encrypted: dict[str, Any] = {}
            if listening in beyond and self.config.is_ssl:
                encrypted = {"ssl": self.config.ssl, "ssl_handshake_timeout": HANDSHAKE_SECONDS}
            loop, backlog = asyncio.get_running_loop(), self.config.backlog
            server = await loop.create_server(self._protocol, sock=listening, backlog=backlog, **encrypted)
            self.servers.append(server)
        if self.started:
            self._used = time.monotonic()
            self._told(_address(beyond[0], self.config.is_ssl) if beyond else f"unix:{self._home.absolute() / SOCKET}")

    def _protocol(self) -> asyncio.Protocol:
        kind = self.config.http_protocol_class
        return kind(config=self.config, server_state=self.server_state, app_state=self.lifespan.state)  # type: ignore[call-arg]

    async def on_tick(self, counter: int) -> bool:
        now = time.monotonic()
        if self._idle_seconds is None or self.server_state.connections:
            self._used = now
        elif now - self._used > self._idle_seconds or not (self._home / SOCKET).exists():
            self.should_exit = True
        return await super().on_tick(counter)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """A signal ends the server; the process itself ends as it would without one."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self.handle_exit) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Streams of results have no end of their own: their connections are closed first."""
        for connection in list(self.server_state.connections):
            if isinstance(connection, LimitedProtocol) and connection.cycle and not connection.cycle.response_complete:
                connection.transport.close()
        await super().shutdown(sockets)


class Serving:
    """A server that listens; `run` serves until `stop`, or until the process is asked to end (SIGINT, SIGTERM). It
    listens in the home folder, and unless it is `local` at the address of its settings."""

    def __init__(
        self,
        parts: Parts,
        home: Path,
        told: Callable[[str], None],
        *,
        local: bool = False,
        idle_seconds: float | None = None,
    ) -> None:
        settings = parts.settings
        hold_little()
        context = tls_context(home, settings) if settings.tls and not local else None
        config = uvicorn.Config(
            make_app(parts),
            http=limited(settings.connections),
            ws=SocketProtocol,
            ws_max_size=_LARGEST_MESSAGE,
            ws_ping_interval=None,  # results have signs of life of their own
            ws_per_message_deflate=False,  # what is in flight is counted in bytes
            lifespan="on",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,  # who a client is, it does not say itself
            timeout_keep_alive=KEPT_SECONDS,
            timeout_graceful_shutdown=_GRACE,
            h11_max_incomplete_event_size=64 << 10,
            ssl_context_factory=(lambda _, __: context) if context is not None else None,
        )
        self._server = _Server(config, home, told, idle_seconds)
        self._home = home
        self._sockets = [] if local else [_listening(settings)]
        try:
            self._sockets.append(_listening_at_home(home))
        except BaseException:
            for opened in self._sockets:
                opened.close()
            raise
        if not local:
            port = self._sockets[0].getsockname()[1]
            event("server", "serving", host=settings.host, port=port, tls=settings.tls)

    def run(self) -> None:
        try:
            asyncio.run(self._server.serve(self._sockets))
        finally:
            for opened in self._sockets:
                opened.close()
            (self._home / SOCKET).unlink(missing_ok=True)
        event("server", "ended")

    def stop(self) -> None:
        self._server.should_exit = True


def _address(listening: socket.socket, encrypted: bool) -> str:
    host, port = listening.getsockname()[:2]
    return f"{'https' if encrypted else 'http'}://{f'[{host}]' if ':' in host else host}:{port}"


def _listening_at_home(home: Path) -> socket.socket:
    """At a socket that only the user of the home folder can open."""
    (home / SOCKET).unlink(missing_ok=True)  # of a server that was killed
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    mask = os.umask(0o177)
    try:
        with socket_path(home) as path:
            listening.bind(path)
    except OSError as error:
        listening.close()
        raise StoreError(f"cannot listen in `{home}`: {error.strerror or error}") from None
    finally:
        os.umask(mask)
    return listening


def _listening(settings: Settings) -> socket.socket:
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    # With the protocol's number asyncio turns Nagle's algorithm off. Else the body of an answer waits until the client
    # has acknowledged its head, which takes 40 ms.
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((settings.host, settings.port))
    except OSError as error:
        listening.close()
        raise StoreError(f"cannot listen at {settings.host}:{settings.port}: {error.strerror}") from None
    return listening
