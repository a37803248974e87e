"""A folder for results. Below it no link is followed and no file is shared with others: a link could lead anywhere,
disclose results to anyone, or have foreign files truncated or removed."""

from __future__ import annotations

import fcntl
import os
import re
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from headgate.errors import Conflict, StoreError

_FOLDER = os.O_RDONLY | os.O_DIRECTORY
_FILE = os.O_NOFOLLOW | os.O_NONBLOCK


_MARK = ".headgate"
_HEX = "[0-9a-f]{32}"


class ResultFolder:
    """Places in the folder are paths with `/` between plain names. A mark file holds the folder's identity and then
    that of the state whose results it holds. INVARIANT: no other state writes here, and only one process at a time
    does."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.name = self.mark()
        self._owner = ""
        self._claimed: int | None = None
        self.warnings: list[str] = []

    # Ownership --------------------------------------------------------------------------------------------------------

    def claim(self, owner: str) -> None:
        """Assigns the folder to this owner, and to this process until `let_go`."""
        self.name = self.mark()
        with self.reporting(_MARK), self.inside("") as here:
            descriptor = os.open(_MARK, os.O_RDWR | _FILE, dir_fd=here)
            try:
                self._lock(descriptor)
                self._own(descriptor, owner)
            except BaseException:
                os.close(descriptor)
                raise
        self._owner, self._claimed = owner, descriptor

    def _lock(self, descriptor: int) -> None:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Conflict(
                f"cannot write results to `{self.path}`: another process writes there",
                hint="end it first, or use another folder",
            ) from None

    def _own(self, descriptor: int, owner: str) -> None:
        """Records the owner. One that is missing, or half written because of a crash, counts as none."""
        mark, _, known = os.pread(descriptor, 100, 0).decode(errors="replace").partition(" ")
        if known == owner:
            return
        if re.fullmatch(_HEX, known):
            raise Conflict(
                f"cannot write results to `{self.path}`: it holds the results of another engine",
                hint="use another folder: each engine would truncate or remove the files of the other",
            )
        os.pwrite(descriptor, f" {owner}".encode(), len(mark))
        os.fsync(descriptor)

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
        self.claim(self._owner)
        return True

    def mark(self) -> str:
        """The folder's identity, which moves with it. Recorded sizes and numbers of files hold for this folder only."""
        with self.reporting(_MARK), self.inside("") as here:
            if _MARK not in os.listdir(here):
                self._name(secrets.token_hex(16), here)
            with os.fdopen(known_file(_MARK, here), errors="replace") as file:
                found = file.read(100)
        if not re.fullmatch(f"{_HEX}( [0-9a-f]{{0,32}})?", found):
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
        """A regular file with one link, opened for writing, which only this user may read."""
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


def new_file(name: str, folder: int) -> int:
    """Creates a file to write to; removes any that had this name."""
    with suppress(FileNotFoundError):
        os.unlink(name, dir_fd=folder)
    return os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600, dir_fd=folder)


def known_file(name: str, folder: int) -> int:
    """Opens a file that this sink wrote, for reading."""
    return os.open(name, os.O_RDONLY | _FILE, dir_fd=folder)
