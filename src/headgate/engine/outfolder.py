"""A folder for results. Below it no link is followed, and nothing is shared with anybody: a link may lead anywhere, and
show results to anyone, or have something cut or removed that is not ours."""

from __future__ import annotations

import os
import re
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from headgate.errors import StoreError

_FOLDER = os.O_RDONLY | os.O_DIRECTORY
_FILE = os.O_NOFOLLOW | os.O_NONBLOCK


_MARK = ".headgate"


class OutFolder:
    """Places are given as paths with `/`, whose parts are plain names."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def mark(self) -> str:
        """What the folder is known by, wherever it is moved to: what is known of its files holds for no other one."""
        with self.said(_MARK), self.inside("") as here:
            if _MARK not in os.listdir(here):
                mark = secrets.token_hex(16)
                with os.fdopen(new_file(f"{_MARK}.{mark}", here), "w") as file:
                    file.write(mark)
                    file.flush()
                    os.fsync(file.fileno())
                with suppress(FileExistsError):  # somebody else was faster
                    os.link(f"{_MARK}.{mark}", _MARK, src_dir_fd=here, dst_dir_fd=here, follow_symlinks=False)
                os.unlink(f"{_MARK}.{mark}", dir_fd=here)
            with os.fdopen(known_file(_MARK, here), errors="replace") as file:
                found = file.read(100)
        if not re.fullmatch("[0-9a-f]{32}", found):
            raise StoreError(f"`{_MARK}` in `{self.path}` is not what stood there", hint="use another folder")
        return found

    @contextmanager
    def said(self, place: str) -> Iterator[None]:
        """What goes wrong there is said in one line."""
        try:
            yield
        except OSError as error:
            raise StoreError(
                f"results cannot be written to `{place}` in `{self.path}` ({error.strerror})",
                hint="there must be plain folders and files, or nothing; see to that and run again: nothing is lost",
            ) from None

    @contextmanager
    def inside(self, place: str, *, make: bool = True) -> Iterator[int]:
        """A folder below this one, as a descriptor; it is made, for nobody but us, unless it must be there."""
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
        """A plain file of its own, to write to, that nobody but us may read."""
        folder, _, name = place.rpartition("/")
        with self.inside(folder, make=make) as here:
            descriptor = os.open(name, os.O_WRONLY | _FILE | (os.O_CREAT if make else 0), 0o600, dir_fd=here)
        try:
            found = os.fstat(descriptor)
            if not stat.S_ISREG(found.st_mode) or found.st_nlink > 1:
                raise StoreError(f"`{place}` in `{self.path}` is no plain file of its own", hint="remove it")
            os.fchmod(descriptor, 0o600)
            yield descriptor
        finally:
            os.close(descriptor)


def new_file(name: str, folder: int) -> int:
    """In place of whatever had that name, to be written to."""
    with suppress(FileNotFoundError):
        os.unlink(name, dir_fd=folder)
    return os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600, dir_fd=folder)


def known_file(name: str, folder: int) -> int:
    """One that we wrote, to be read."""
    return os.open(name, os.O_RDONLY | _FILE, dir_fd=folder)
