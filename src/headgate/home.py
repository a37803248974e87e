"""Who has a home folder open: one server alone, or commands beside each other; never both.

A lock of the operating system on a file in the folder decides, and ends with the process that holds it. A server
listens at a socket in the folder, so whoever finds the folder taken asks there. Nobody else can reach the socket: only
the folder's own user can open the folder.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from headgate.errors import StoreError

SOCKET, LOCK = "server.sock", "server.lock"
_LONGEST = 100
"""Bytes that the path of a socket may have on every system."""
_PATIENCE, _PAUSE = 20.0, 0.02
"""Seconds that a server waits for commands to end, and between two looks."""


@contextmanager
def shared(home: Path) -> Iterator[bool]:
    """Keeps servers out of a home folder; false if one has it already."""
    descriptor = _lock_file(home)
    if descriptor is None:  # no folder, so nothing to keep anybody out of
        yield True
        return
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True
    finally:
        os.close(descriptor)


@contextmanager
def alone(home: Path, seconds: float = _PATIENCE) -> Iterator[None]:
    """Takes a home folder for a server, or for work that no other process may see half done; waits for commands that
    work in it."""
    descriptor = _lock_file(home)
    if descriptor is None:
        raise StoreError(f"there is no Headgate in `{home}`", hint="run `headgate init` first")
    try:
        _wait(descriptor, home, seconds)
        yield
    finally:
        os.close(descriptor)


def _wait(descriptor: int, home: Path, seconds: float) -> None:
    until = time.monotonic() + seconds
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > until or is_served(home):
                raise StoreError(
                    f"cannot take `{home}`: another process works in it", hint="end the server or the command first"
                ) from None
            time.sleep(_PAUSE)
        else:
            return


def is_served(home: Path) -> bool:
    """Whether a server has the folder at this moment."""
    with shared(home) as free:
        return not free


def _lock_file(home: Path) -> int | None:
    with suppress(FileNotFoundError, NotADirectoryError):
        return os.open(home / LOCK, os.O_RDWR | os.O_CREAT, 0o600)
    return None


@contextmanager
def socket_path(home: Path) -> Iterator[str]:
    """The path of the socket; short also if the folder's own path is too long for a socket."""
    path = str(home.absolute() / SOCKET)
    if len(os.fsencode(path)) <= _LONGEST:
        yield path
        return
    folder = os.open(home, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{folder}/{SOCKET}"
    finally:
        os.close(folder)
