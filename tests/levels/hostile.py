"""A processor that was replaced by an attacker: it reads whatever it can reach and looks for texts that it should not
find. It runs where the program of a processor runs: after `headgate.levels.enter`."""

from __future__ import annotations

import ctypes
import os
import socket
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from headgate.levels.wire import Channel

_SKIPPED = {"proc", "sys", "usr", "lib", "lib64", "opt", "boot", ".git", ".venv", "node_modules", "__pycache__"}
_RECENT = 3600.0
_MOST = 64 << 20
_libc = ctypes.CDLL(None, use_errno=True)


def prepare() -> None:
    "".encode("idna")  # the resolver loads this when a socket is first used


def main(channel: Channel) -> None:
    asked = channel.receive().facts
    found: dict[str, set[str]] = {}

    def look(way: str, content: bytes) -> None:
        for canary in asked["canaries"]:
            if canary.encode() in content:
                found.setdefault(canary, set()).add(way)

    for search in (files, neighbours, processes, sockets):
        search(asked, look)
    channel.send("found", found={canary: sorted(ways) for canary, ways in found.items()}, user=os.getuid())


Look = Callable[[str, bytes], None]


def files(asked: Mapping[str, Any], look: Look) -> None:
    """Every file of the machine that was changed lately, and every one of the home folder."""
    for top in ("/", asked["home"]):
        for folder, folders, names in os.walk(top):
            folders[:] = [x for x in folders if x not in _SKIPPED]
            for name in names:
                _read(Path(folder) / name, look, "file", asked["now"] - _RECENT)
    for folder in ("/tmp", "/var/tmp", "/dev/shm"):  # noqa: S108
        for path in _below(Path(folder)):
            _read(path, look, "shared folder", 0.0)


def neighbours(_: Mapping[str, Any], look: Look) -> None:
    """Folders beside the own one, by their names, which are no secret."""
    up = [Path(*[".."] * n) for n in range(5)]
    names = [f"{n:015}.arrow" for n in range(10)]
    guesses = [x / str(n) / y for x in (*up, *(x / "logs" for x in up)) for n in range(8) for y in ("", "own", "queue")]
    for folder in (*up, *guesses, *(x / "outlet" / "state" for x in guesses), *(x / "own" / "engine" for x in guesses)):
        for path in [*_below(folder), *(folder / name for name in names)]:
            _read(path, look, "neighbour", 0.0)


def processes(asked: Mapping[str, Any], look: Look) -> None:
    """Environment, arguments, open files and memory of the server and of other processors."""
    for pid in asked["pids"]:
        for name in ("environ", "cmdline", "comm", "cwd", "root"):
            _read(Path(f"/proc/{pid}/{name}"), look, f"process {name}", 0.0)
        with suppress(OSError):
            for descriptor in os.listdir(f"/proc/{pid}/fd"):
                _read(Path(f"/proc/{pid}/fd/{descriptor}"), look, "open file", 0.0)
        attached = _libc.ptrace(16, pid, 0, 0) == 0
        with suppress(OSError):
            _memory(pid, look)
        if attached:
            os.waitpid(pid, 0x40000000)
            _libc.ptrace(17, pid, 0, 0)
    for pid in (x for x in os.listdir("/proc") if x.isdigit() and int(x) != os.getpid()):
        with suppress(OSError):
            look("arguments of others", Path(f"/proc/{pid}/cmdline").read_bytes())


def sockets(asked: Mapping[str, Any], look: Look) -> None:
    for address in (("127.0.0.1", asked["port"]), asked["unix"], f"\0{asked['abstract']}"):
        family = socket.AF_INET if isinstance(address, (tuple, list)) else socket.AF_UNIX
        with suppress(OSError), socket.socket(family) as client:
            client.settimeout(2)
            client.connect(tuple(address) if isinstance(address, list) else address)
            look("socket", client.recv(1000))


def _memory(pid: int, look: Look) -> None:
    with open(f"/proc/{pid}/maps") as maps, open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
        for line in maps:
            span, rights, *_ = line.split()
            begin, end = (int(x, 16) for x in span.split("-"))
            if rights.startswith("rw") and end - begin < _MOST:
                with suppress(OSError, OverflowError):
                    memory.seek(begin)
                    look("memory", memory.read(end - begin))


def _below(folder: Path) -> Iterator[Path]:
    for here, _, names in os.walk(folder):
        if here.count("/") > 40:
            return
        yield from (Path(here) / name for name in names)


def _read(path: Path, look: Look, way: str, since: float) -> None:
    with suppress(OSError):
        found = os.stat(path)
        if stat.S_ISREG(found.st_mode) and found.st_size < _MOST and found.st_mtime >= since:
            descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
            try:
                look(way, os.read(descriptor, _MOST))
            finally:
                os.close(descriptor)
