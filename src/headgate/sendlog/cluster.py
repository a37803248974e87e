"""Principals as separate processes on this machine, with an authority that answers for their keys.

Sets up keys and addresses, starts a process for each, and speaks to each through its pipe. `places` gives principals
addresses of their own and the command that starts a process there, where the machine has several (`ip netns exec`).
"""

from __future__ import annotations

import base64
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from headgate.errors import HeadgateError
from headgate.sendlog.keys import Authority, new_key, private_bytes
from headgate.sendlog.values import Row, canonical

_LOOPBACK = "127.0.0.1"


@dataclass(frozen=True)
class Place:
    """Where a principal's process runs: its address, and what is put before the command that starts it."""

    host: str = _LOOPBACK
    command: tuple[str, ...] = ()


class AuthorityServer:
    """Hands out certificates to whoever asks, one question a connection."""

    def __init__(self, authority: Authority, host: str = _LOOPBACK) -> None:
        self.authority = authority
        self._socket = socket.create_server((host, 0))
        self.address: tuple[str, int] = self._socket.getsockname()[:2]
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join()

    def _run(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            with connection, connection.makefile("rb") as stream:
                connection.settimeout(2.0)
                try:
                    name = stream.read(min(1024, int.from_bytes(stream.read(4), "big"))).decode(errors="replace")
                    answer = self.authority.fetch(name) or b""
                    connection.sendall(len(answer).to_bytes(4, "big") + answer)
                except OSError:
                    continue


class Cluster:
    """The processes of one program. Use as a context: leaving it ends them all."""

    def __init__(
        self,
        folder: Path,
        program: str,
        principals: Iterable[str],
        *,
        scheme: str = "ed25519",
        places: Mapping[str, Place] | None = None,
        authority_host: str = _LOOPBACK,
        **options: Any,
    ) -> None:
        self.folder, self._processes = folder, dict[str, subprocess.Popen[str]]()
        names = list(principals)
        authority = Authority()
        self.server = AuthorityServer(authority, authority_host)
        self._places = places or {}
        keys = {name: new_key(scheme) for name in names}
        for name, key in keys.items():
            authority.certify(name, key.public_key())
        ports = {name: [self._place(name).host, _free_port()] for name in names}
        self._configs: dict[str, Path] = {}
        for name in names:
            config = {
                "principal": name,
                "program": program,
                "scheme": scheme,
                "listen": ports[name],
                "peers": {peer: address for peer, address in ports.items() if peer != name},
                "authority": self.server.address,
                "authority_key": _text(authority.public_key.public_bytes_raw()),
                "key": _text(private_bytes(keys[name])),
                "mac_keys": {peer: _text(authority.mac_key(name, peer)) for peer in names if peer != name},
                **options,
            }
            self._configs[name] = folder / f"{name}.json"
            descriptor = os.open(self._configs[name], os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "w") as file:
                json.dump(config, file)

    def __enter__(self) -> Self:
        for name in self._configs:
            self.start(name)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for name in list(self._processes):
            self.stop(name)
        self.server.close()

    def start(self, name: str) -> None:
        """Starts a process, or starts it again: it has its key, and no memory."""
        command = [*self._place(name).command, sys.executable, "-m", "headgate.sendlog", str(self._configs[name])]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)  # noqa: S603
        self._processes[name] = process
        if not process.stdout or not process.stdout.readline():
            raise HeadgateError(
                f"cannot start `{name}`: its process ended", hint=f"its settings are in `{self.folder}`"
            )

    def _place(self, name: str) -> Place:
        return self._places.get(name, Place())

    def stop(self, name: str) -> None:
        process = self._processes.pop(name)
        process.kill()
        process.communicate()

    def ask(self, name: str, **command: Any) -> Any:
        process = self._processes[name]
        if process.stdin is None or process.stdout is None:
            raise HeadgateError(f"cannot speak to `{name}`")
        process.stdin.write(json.dumps(command) + "\n")
        process.stdin.flush()
        return json.loads(process.stdout.readline())

    def rows(self, name: str, table: str) -> list[Row]:
        found = canonical(self.ask(name, rows=table))
        return [row for row in found if isinstance(row, tuple)] if isinstance(found, tuple) else []

    def settle(self, within: float = 60.0) -> None:
        """Waits until no message is unacknowledged and nothing was said between two looks."""
        before, end = None, time.monotonic() + within
        while time.monotonic() < end:
            now = {name: self.ask(name, status=1) for name in self._processes}
            quiet = all(status["waiting"] == 0 for status in now.values())
            if quiet and now == before:
                return
            before = now
            time.sleep(0.05)
        raise HeadgateError(f"the processes did not settle within {within:.0f} seconds")


def _free_port() -> int:
    with socket.create_server((_LOOPBACK, 0)) as probe:
        port: int = probe.getsockname()[1]
        return port


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()
