"""A folder for results. Below it no link is followed and no file is shared with others: a link could lead anywhere,
disclose results to anyone, or have foreign files truncated or removed.

A process that was replaced by another of a later epoch changes nothing here any more. While it changes a file it holds
a shared lock on the mark file, in which it has found its own epoch; a successor writes its epoch there under an
exclusive lock. So no change is cut in two, and none comes after the successor has begun.
"""

from __future__ import annotations

import fcntl
import os
import re
import secrets
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from headgate.errors import Conflict, Fenced, StoreError

_FOLDER = os.O_RDONLY | os.O_DIRECTORY
_FILE = os.O_NOFOLLOW | os.O_NONBLOCK


_MARK = ".headgate"
_HEX = "[0-9a-f]{32}"
_PATIENCE, _PAUSE = 10.0, 0.01
"""Seconds to wait for a process that changes a file at this moment, and between two tries."""


class ResultFolder:
    """Places in the folder are paths with `/` between plain names. A mark file holds the folder's identity, that of the
    state whose results it holds, and the process that writes here. INVARIANT: no other state writes here, and of all
    processes only the last one that claimed the folder, unless a later epoch had it before."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._owner, self._writer = "", (0, "")
        self._claimed: int | None = None
        self.name = self.mark()
        self.warnings: list[str] = []

    # Ownership --------------------------------------------------------------------------------------------------------

    def claim(self, owner: str, epoch: int = 0) -> None:
        """Assigns the folder to this owner, and to the process of this epoch until there is a later one."""
        self.name = self.mark()
        with self.reporting(_MARK), self.inside("") as here:
            descriptor = os.open(_MARK, os.O_RDWR | _FILE, dir_fd=here)
            try:
                self._lock_alone(descriptor)
                self._own(descriptor, owner, epoch)
                fcntl.flock(descriptor, fcntl.LOCK_UN)
            except BaseException:
                os.close(descriptor)
                raise
        self._owner, self._claimed = owner, descriptor

    def _lock_alone(self, descriptor: int) -> None:
        until = time.monotonic() + _PATIENCE
        while True:
            try:
                return fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > until:
                    raise Conflict(
                        f"cannot write results to `{self.path}`: another process was stopped while it wrote there",
                        hint="end that process, or use another folder",
                    ) from None
                time.sleep(_PAUSE)

    def _own(self, descriptor: int, owner: str, epoch: int) -> None:
        """Records the owner and the epoch. One that is missing, or half written because of a crash, counts as none."""
        mark, known, (last, _) = _marked(descriptor)
        if known and known != owner:
            raise Conflict(
                f"cannot write results to `{self.path}`: it holds the results of another engine",
                hint="use another folder: each engine would truncate or remove the files of the other",
            )
        if last > epoch:
            raise self._fenced()
        self._writer = epoch, secrets.token_hex(4)
        content = f"{mark} {owner} {epoch:06}-{self._writer[1]}".encode()
        os.pwrite(descriptor, content, 0)
        os.ftruncate(descriptor, len(content))
        os.fsync(descriptor)

    @contextmanager
    def change(self) -> Iterator[None]:
        """The time in which this process changes files. It is short: a successor waits for it."""
        if self._claimed is None:
            yield
            return
        fcntl.flock(self._claimed, fcntl.LOCK_SH)
        try:
            if _marked(self._claimed)[2] != self._writer:
                raise self._fenced()
            yield
        finally:
            fcntl.flock(self._claimed, fcntl.LOCK_UN)

    def _fenced(self) -> Fenced:
        return Fenced(
            f"cannot write results to `{self.path}`: another process has taken over",
            hint="nothing is lost: it goes on where this one was",
        )

    def let_go(self) -> None:
        if self._claimed is not None:
            os.close(self._claimed)
            self._claimed = None

    def was_replaced(self) -> bool:
        """Whether the folder is no longer the one that was claimed. If it was removed or moved away, a new folder with
        a new mark is made in its place, with a warning."""
        if self._claimed is None:
            return False
        mine = os.fstat(self._claimed)
        try:
            there = os.stat(self.path / _MARK, follow_symlinks=False)
            if (there.st_dev, there.st_ino) == (mine.st_dev, mine.st_ino):
                return False
        except OSError:
            pass
        self.warnings.append(f"the folder of results `{self.path}` was removed or replaced: results go on in a new one")
        self.let_go()
        self.claim(self._owner, self._writer[0])
        return True

    def mark(self) -> str:
        """The folder's identity, which moves with it. Recorded sizes and numbers of files hold for this folder only."""
        with self.reporting(_MARK), self.inside("") as here:
            if _MARK not in os.listdir(here):
                self._name(secrets.token_hex(16), here)
            with os.fdopen(known_file(_MARK, here), errors="replace") as file:
                found = file.read(100)
        if not re.fullmatch(f"{_HEX}( [0-9a-f]{{0,32}}( [0-9a-f-]*)?)?", found):
            raise StoreError(
                f"cannot write results to `{self.path}`: `{_MARK}` in it was changed", hint="use another folder"
            )
        return found[:32]

    def _name(self, mark: str, here: int) -> None:
        own = f"{_MARK}.{secrets.token_hex(16)}"
        with os.fdopen(new_file(own, here), "w") as file:
            file.write(mark)
            file.flush()
            os.fsync(file.fileno())
        with suppress(FileExistsError):  # another process was faster
            os.link(own, _MARK, src_dir_fd=here, dst_dir_fd=here, follow_symlinks=False)
        os.unlink(own, dir_fd=here)

    @contextmanager
    def reporting(self, place: str) -> Iterator[None]:
        """Turns any OSError into one line that names the place."""
        try:
            yield
        except OSError as error:
            if self._claimed is not None and _marked(self._claimed)[2] != self._writer:
                raise self._fenced() from None  # a successor removes what this process has not finished
            raise StoreError(
                f"cannot write results to `{place}` in `{self.path}`: {error.strerror}",
                hint="remove what is not a plain folder or file, and run again: nothing is lost",
            ) from None

    @contextmanager
    def inside(self, place: str, *, make: bool = True) -> Iterator[int]:
        """A folder below this one, as a descriptor; it is created with access for this user only, unless `make` is
        false."""
        if make:
            self.path.mkdir(parents=True, exist_ok=True, mode=0o700)
        here = os.open(self.path, _FOLDER)
        try:
            for name in filter(None, place.split("/")):
                if make:
                    with suppress(FileExistsError):
                        os.mkdir(name, 0o700, dir_fd=here)
                inner = os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=here)
                os.close(here)
                here = inner
            yield here
        finally:
            os.close(here)

    @contextmanager
    def file(self, place: str, *, make: bool = True) -> Iterator[int]:
        """A regular file with one link, opened for writing, which only this user may read. Whoever writes to it does so
        in a `change`."""
        folder, _, name = place.rpartition("/")
        with self.inside(folder, make=make) as here:
            descriptor = os.open(name, os.O_RDWR | _FILE | (os.O_CREAT if make else 0), 0o600, dir_fd=here)
        try:
            found = os.fstat(descriptor)
            if not stat.S_ISREG(found.st_mode) or found.st_nlink > 1:
                raise StoreError(
                    f"cannot write to `{place}` in `{self.path}`: it is not a plain file", hint="remove it"
                )
            os.fchmod(descriptor, 0o600)
            yield descriptor
        finally:
            os.close(descriptor)


def _marked(descriptor: int) -> tuple[str, str, tuple[int, str]]:
    """What a mark file holds: the identity of the folder, that of its owner, and who writes: an epoch and a name that
    tells processes with copies of one state apart."""
    mark, owner, writer, *_ = [*os.pread(descriptor, 100, 0).decode(errors="replace").split(" "), "", ""]
    found = re.fullmatch("([0-9]{6,})-([0-9a-f]{8})", writer)
    return mark, owner if re.fullmatch(_HEX, owner) else "", (int(found[1]), found[2]) if found else (0, "")


def new_file(name: str, folder: int) -> int:
    """Creates a file to write to; removes any that had this name."""
    with suppress(FileNotFoundError):
        os.unlink(name, dir_fd=folder)
    return os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600, dir_fd=folder)


def known_file(name: str, folder: int) -> int:
    """Opens a file that this sink wrote, for reading."""
    return os.open(name, os.O_RDONLY | _FILE, dir_fd=folder)
