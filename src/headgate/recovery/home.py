"""The home of a state: a folder that one process at a time works in, the epoch of that process, and the identity of the
state.

The lock keeps a second process out that was started by mistake. It proves nothing: a process that was stopped keeps it,
and one on another machine does not see it. What may be written is decided by the epoch (`headgate.fencing`).
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
from pathlib import Path

from headgate.errors import Conflict, StoreError
from headgate.fencing import Fence
from headgate.recovery.state import StateFolder
from headgate.storage import LocalStorage
from headgate.stores import StateLocation

STATE, CHECKPOINTS = "state", "checkpoints"
"""Folders in a home, or at a place."""
_LOCK, _EPOCHS = "lock", "epochs"


class Home:
    """A folder, locked for this process. `place` is where the state is, if it is elsewhere. With `take_over` the
    process goes on although another one has the lock, which then ends as soon as it continues."""

    def __init__(self, folder: Path, place: StateLocation | None = None, *, take_over: bool = False) -> None:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._folder = folder
        self._lock = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            self._take_lock(take_over=take_over)
            self._fence = self._raised(place)
        except BaseException:
            os.close(self._lock)
            raise

    def _raised(self, place: StateLocation | None) -> Fence:
        if place is None:
            return Fence(LocalStorage(self._folder / _EPOCHS), str(self._folder), self._identity_of_old())
        try:
            return Fence(place.below(_EPOCHS).storage(), str(place))
        except OSError as error:
            raise StoreError(f"cannot reach the state at `{place}`: {error.strerror}") from None

    def _take_lock(self, *, take_over: bool) -> None:
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            if not take_over:
                raise Conflict(
                    f"cannot run: another process works in `{self._folder}`",
                    hint="end it first, use another home, or continue in its place with --take-over",
                ) from None

    def close(self) -> None:
        os.close(self._lock)

    def check(self) -> None:
        """Checks that no other process has taken over, and that the folder was not removed or replaced."""
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
        try:
            self._fence.check()
        except OSError as error:
            raise StoreError(
                f"cannot look who works in `{self._folder}`: {error.strerror}",
                hint="solve this and run again: nothing is lost",
            ) from None

    @property
    def epoch(self) -> int:
        return self._fence.epoch

    @property
    def identity(self) -> str:
        """The identity of the state, which outlives its content."""
        return self._fence.identity

    def _identity_of_old(self) -> str:
        """Before there were epochs, the identity was in the lock file."""
        found = os.pread(self._lock, 64, 0).decode(errors="replace")
        return found if re.fullmatch("[0-9a-f]{32}", found) else ""

    def clear(self) -> None:
        """Deletes everything but the lock file and the epochs, which hold the identity."""
        for path in self._folder.iterdir():
            if path.name in (_LOCK, _EPOCHS):
                continue
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()


def forget(folder: Path, place: StateLocation | None = None) -> None:
    """Deletes the state in a folder, and at the place where it is, unless a process uses the folder."""
    if folder.exists() or place is not None:
        home = Home(folder, place)
        try:
            home.clear()
            if place is not None:
                StateFolder(place.below(STATE).storage(), home.epoch, home.check).clear()
        finally:
            home.close()
