"""One principal as a process of its own: signed tuples over TCP, commands over standard input.

`headgate sendlog node CONFIG` runs it. The network side believes nothing that the node does not verify; the control
side
is the pipe to whoever started the process, so tables are never served to the network. Messages are repeated until
they are
acknowledged; `loss` and `delay` make the network worse on purpose.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import socket
import sys
import time
from pathlib import Path
from random import Random
from typing import Any

from cryptography.hazmat.primitives.asymmetric import ed25519

from headgate.errors import HeadgateError
from headgate.sendlog.check import load
from headgate.sendlog.compiled import compile_program
from headgate.sendlog.keys import KeyRing, private_key
from headgate.sendlog.node import Node
from headgate.sendlog.packets import MAX_PACKET
from headgate.sendlog.settings import Settings
from headgate.sendlog.values import Row, canonical

RESEND = 0.25
_ASK = 2.0


def frame(data: bytes) -> bytes:
    return len(data).to_bytes(4, "big") + data


async def read_frame(reader: asyncio.StreamReader) -> bytes | None:
    """The next frame; None at the end, or for one that is too long to be a message."""
    try:
        size = int.from_bytes(await reader.readexactly(4), "big")
        return await reader.readexactly(size) if size <= MAX_PACKET else None
    except (asyncio.IncompleteReadError, ConnectionError):
        return None


def ask_authority(address: tuple[str, int], principal: str) -> bytes | None:
    """A certificate, from the authority's process; None where it has none or does not answer."""
    try:
        with socket.create_connection(address, timeout=_ASK) as connection:
            connection.sendall(frame(principal.encode()))
            with connection.makefile("rb") as stream:
                size = int.from_bytes(stream.read(4), "big")
                return stream.read(size) if 0 < size <= MAX_PACKET else None
    except OSError:
        return None


def key_ring(config: dict[str, Any]) -> KeyRing:
    """From the configuration: the own key, the authority's public key and address, the keys shared for MACs."""
    authority = ed25519.Ed25519PublicKey.from_public_bytes(base64.b64decode(config["authority_key"]))
    host, port = config["authority"]
    shared = {peer: base64.b64decode(key) for peer, key in config["mac_keys"].items()}

    def mac_key(peer: str) -> bytes:
        if peer not in shared:
            raise HeadgateError(f"there is no key shared with `{peer}`")
        return shared[peer]

    own = private_key(base64.b64decode(config["key"]))
    return KeyRing(config["principal"], own, authority, lambda name: ask_authority((host, port), name), mac_key)


class Process:
    """The node, and the loops around it."""

    def __init__(self, config: dict[str, Any]) -> None:
        settings = Settings(
            config["scheme"], batch=config.get("batch", 0), provenance=config.get("provenance", "none"), keep=True
        )
        program = compile_program(load(config["program"]), tracing=settings.provenance != "none")
        self.node = Node(program, key_ring(config), settings, epoch=time.time_ns() // 1000)
        self.peers: dict[str, tuple[str, int]] = {name: (h, p) for name, (h, p) in config["peers"].items()}
        self.listen: tuple[str, int] = tuple(config["listen"])
        self.loss, self.delay = float(config.get("loss", 0)), float(config.get("delay", 0))
        self._random = Random(config.get("seed", 1))  # noqa: S311 - bad weather is not secret
        self._writers: dict[str, asyncio.StreamWriter] = {}
        self._wake = asyncio.Event()

    async def run(self) -> None:
        server = await asyncio.start_server(self._serve, *self.listen)
        tasks = [asyncio.create_task(self._send()), asyncio.create_task(self._resend())]
        print(json.dumps({"ready": self.node.principal}), flush=True)
        try:
            await self._control()
        finally:
            for task in tasks:
                task.cancel()
            server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while (data := await read_frame(reader)) is not None:
            try:
                self.node.receive(data)
            except HeadgateError:
                self.node.traffic.rejected["failed"] += 1
            self._wake.set()
        writer.close()

    async def _send(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            for to, data in self.node.outgoing():
                await self._deliver(to, data)

    async def _resend(self) -> None:
        while True:
            await asyncio.sleep(RESEND)
            for to, data in self.node.channels.resend():
                await self._deliver(to, data)

    async def _deliver(self, to: str, data: bytes) -> None:
        if to not in self.peers or self._random.random() < self.loss:
            return
        if self.delay:
            await asyncio.sleep(self._random.uniform(0, self.delay))
        with contextlib.suppress(OSError):  # it is repeated until it is acknowledged
            writer = self._writers.get(to)
            if writer is None or writer.is_closing():
                _, writer = await asyncio.open_connection(*self.peers[to])
                self._writers[to] = writer
            writer.write(frame(data))
            try:
                await writer.drain()
            except OSError:
                self._writers.pop(to, None)

    async def _control(self) -> None:
        """Commands, one JSON object a line, until the pipe closes."""
        reader = asyncio.StreamReader(limit=MAX_PACKET)
        loop = asyncio.get_running_loop()
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        while line := await reader.readline():
            print(json.dumps(self._command(json.loads(line))), flush=True)
            self._wake.set()

    def _command(self, command: dict[str, Any]) -> Any:
        match command:
            case {"insert": facts}:
                self.node.change(insert=[(name, _row(row)) for name, row in facts])
            case {"delete": facts}:
                self.node.change(delete=[(name, _row(row)) for name, row in facts])
            case {"rows": name}:
                return sorted(self.node.rows(name), key=repr)
            case {"status": _}:
                waiting = len(self.node.channels.resend())
                traffic = self.node.traffic
                return {
                    "waiting": waiting,
                    "statements": traffic.statements,
                    "bytes": traffic.bytes,
                    "rejected": traffic.rejected,
                }
        return None


def _row(data: Any) -> Row:
    row = canonical(data)
    return row if isinstance(row, tuple) else ()


def run_node(config: Path) -> None:
    asyncio.run(Process(json.loads(config.read_text())).run())
