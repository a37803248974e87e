"""The home of a state: a folder that one process at a time works in, and the identity of the state in it."""

from __future__ import annotations

import fcntl
import os
import re
import secrets
import shutil
from pathlib import Path

from headgate.errors import Conflict, StoreError

_LOCK = "lock"


class Home:
    """A folder, locked for this process: two would write the same state."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._folder = folder
        self._lock = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._lock)
            raise Conflict(
                f"cannot run: another process works in `{folder}`", hint="end it first, or use another home"
            ) from None

    def close(self) -> None:
        os.close(self._lock)

    def check(self) -> None:
        """Checks the lock: if the folder was removed or replaced, another process may work there by now."""
        mine = os.fstat(self._lock)
        try:
            there = os.stat(self._folder / _LOCK)
            same = (there.st_dev, there.st_ino) == (mine.st_dev, mine.st_ino)
        except OSError:
            same = False
        if not same:
            raise StoreError(
                f"cannot continue: the state in `{self._folder}` was removed or replaced during the run",
                hint="start again",
            )

    @property
    def identity(self) -> str:
        """The identity of the state, which outlives its content: it is stored in the lock file."""
        found = os.pread(self._lock, 64, 0).decode(errors="replace")
        if not re.fullmatch("[0-9a-f]{32}", found):
            found = secrets.token_hex(16)
            os.pwrite(self._lock, found.encode(), 0)
            os.fsync(self._lock)
        return found

    def clear(self) -> None:
        """Deletes everything but the lock file, which holds the identity."""
        for path in self._folder.iterdir():
            if path.is_dir():
                shutil.rmtree(path)
            elif path.name != _LOCK:
                path.unlink()


def forget(folder: Path) -> None:
    """Deletes the state in a folder, unless a process uses it."""
    if folder.exists():
        home = Home(folder)
        try:
            home.clear()
        finally:
            home.close()
