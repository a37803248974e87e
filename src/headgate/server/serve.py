"""The process of `headgate serve`: opens everything, listens, and ends between two batches when it is asked to."""

from __future__ import annotations

import asyncio
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import uvicorn

from headgate.egress.delivery_log import DeliveryLog
from headgate.egress.owner_files import OwnerFiles
from headgate.errors import StoreError
from headgate.ingress.ingress_log import IngressLog
from headgate.logs import event
from headgate.server.app import Parts, make_app
from headgate.server.certificates import tls_context
from headgate.server.connections import LimitedProtocol, limited
from headgate.server.engine import SparkEngine
from headgate.server.home import check_private, secret
from headgate.server.positions import Positions
from headgate.server.settings import Settings
from headgate.service import Headgate
from headgate.service.runs import Folders

_GRACE = 5
"""Seconds that open requests get when the server is asked to end."""


@contextmanager
def opened(home: Path, headgate: Headgate, settings: Settings) -> Iterator[Parts]:
    """Everything that the server holds. Nobody else may be able to open the home folder."""
    check_private(home)
    engine_home = home / "engine"
    engine_home.mkdir(exist_ok=True, mode=0o700)
    owners = engine_home / "owners"
    log = DeliveryLog(engine_home / "delivery", most=settings.log_bytes)
    with ExitStack() as stack:
        ingress = IngressLog(home / "ingress", settings.ingress_bytes)
        stack.callback(ingress.close)
        engine = SparkEngine(
            headgate,
            engine_home,
            lambda: [OwnerFiles(owners, Folders(headgate)), log],
            master=settings.master,
            ingress=home / "ingress",
        )
        positions = Positions(secret(home / "positions.key"))
        token = secret(home / "metrics.token").hex()
        yield Parts(headgate, engine, log, ingress, positions, settings, owners, token)


class _Server(uvicorn.Server):
    """`told` is called with the address as soon as the server listens."""

    def __init__(self, config: uvicorn.Config, told: Callable[[str], None]) -> None:
        super().__init__(config)
        self._told = told

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started and sockets:
            host, port = sockets[0].getsockname()[:2]
            scheme = "https" if self.config.ssl is not None else "http"
            self._told(f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}")

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
    """A server that listens; `run` serves until `stop`, or until the process is asked to end (SIGINT, SIGTERM)."""

    def __init__(self, parts: Parts, home: Path, told: Callable[[str], None]) -> None:
        settings = parts.settings
        context = tls_context(home, settings) if settings.tls else None
        config = uvicorn.Config(
            make_app(parts),
            http=limited(settings.connections),
            ws="none",
            lifespan="on",
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=_GRACE,
            h11_max_incomplete_event_size=64 << 10,
            ssl_context_factory=(lambda _, __: context) if context is not None else None,
        )
        self._server = _Server(config, told)
        self._socket = _listening(settings)
        event("server", "serving", host=settings.host, port=self._socket.getsockname()[1], tls=settings.tls)

    def run(self) -> None:
        try:
            asyncio.run(self._server.serve([self._socket]))
        finally:
            self._socket.close()
        event("server", "ended")

    def stop(self) -> None:
        self._server.should_exit = True


def _listening(settings: Settings) -> socket.socket:
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((settings.host, settings.port))
    except OSError as error:
        listening.close()
        raise StoreError(f"cannot listen at {settings.host}:{settings.port}: {error.strerror}") from None
    return listening
