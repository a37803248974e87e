"""The queue of a level: the records that the shepherd has written for its processor, one file each, in order.

A record counts when the shepherd has committed its number. It is deleted when the processor has taken it, so what lies
in the queue of a level depends on nothing but this level and those below it.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path


class Queue:
    """`shared` lets those read a file who may; `elsewhere` says how many bytes of a record's tuples are in logs.
    Numbers grow; there may be gaps."""

    def __init__(self, folder: Path, shared: Callable[[Path], None], elsewhere: Callable[[Path], int]) -> None:
        self._folder, self._shared = folder, shared
        found = {int(path.name.split(".")[0]): path for path in folder.glob("*.arrow")}
        self._sizes = {number: path.stat().st_size + elsewhere(path) for number, path in found.items()}

    @property
    def size(self) -> int:
        """Bytes that wait."""
        return sum(self._sizes.copy().values())

    def numbers(self) -> list[int]:
        return sorted(self._sizes)

    def write(self, number: int, content: bytes, elsewhere: int = 0) -> None:
        """A file of the same number, of an attempt that was not committed, is replaced. `elsewhere`: how many bytes of
        its tuples are in logs."""
        write_shared(self._folder / file_of(number), content, self._shared)
        self._sizes[number] = len(content) + elsewhere

    def rewrite(self, number: int, content: bytes) -> None:
        """Replaces a record that waits; one that was taken meanwhile stays away."""
        if number in self._sizes:
            self.write(number, content)

    def sync(self) -> None:
        """Everything written so far survives a crash."""
        sync_folder(self._folder)

    def read(self, number: int) -> bytes:
        return (self._folder / file_of(number)).read_bytes()

    def remove(self, number: int) -> None:
        (self._folder / file_of(number)).unlink(missing_ok=True)
        self._sizes.pop(number, None)


def file_of(number: int) -> str:
    return f"{number:015}.arrow"


def write_shared(path: Path, content: bytes, shared: Callable[[Path], None]) -> None:
    new = path.with_name(f"{path.name}~")
    new.unlink(missing_ok=True)
    with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    shared(new)
    new.rename(path)


def sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
