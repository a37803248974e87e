"""Storage of state: files by name that are written once, and manifests that make them count.

The interface is small enough for local folders, Hadoop file systems and object stores. Nothing is ever changed or
renamed: a new version is a set of new files and one manifest that names them (and older files that it still needs).
Whoever writes files, driver or task, gives each attempt names of its own, so that an attempt that failed disturbs
nobody. Only the driver commits manifests, and only files that a kept manifest names count: all others are collected.

How a version is written (recovery/state.py):

1. `write` new files, in any order, from any process;
2. `commit` the manifest: the version is there, or, after an interruption at any point, it is not;
3. `delete` files that no kept manifest names.

Names are plain file names without folders. Errors are OSErrors: the caller knows what it was doing.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Protocol, TypeAlias

import pyarrow as pa

Content: TypeAlias = bytes | pa.Buffer
_UNFINISHED = "~"


class Storage(Protocol):
    def write(self, name: str, content: Content, *, durable: bool = True) -> None:
        """Write a new file. It survives a crash once a later `commit` of any process has returned; with `durable`
        False it may be lost, but is never there in part."""
        ...

    def commit(self, name: str, content: Content) -> bool:
        """Make a file appear whole, or not at all, and survive from then on, with everything written before. False,
        and nothing happens, if there is one of this name: somebody else has committed."""
        ...

    def read(self, name: str) -> pa.Buffer:
        """The content of a file; FileNotFoundError if there is none."""
        ...

    def names(self) -> list[str]:
        """The names of all files, whole or not, in order."""
        ...

    def delete(self, names: Iterable[str]) -> None:
        """Remove files; those that are not there are no error."""
        ...


class LocalStorage(Storage):
    """A folder of this machine that only its user may read. With `together`, files wait for the disk when this object
    commits, all at once, which takes the disk about as long as one of them; what it wrote survives only then."""

    def __init__(self, folder: Path, *, together: bool = False) -> None:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._folder = str(folder)  # a batch touches a dozen files: making a Path of each took as long as a fsync
        self._together = together
        self._unflushed: list[str] = []
        """INVARIANT: files that were written durably and that the disk may not have yet."""

    def __str__(self) -> str:
        return self._folder

    def write(self, name: str, content: Content, *, durable: bool = True) -> None:
        later = durable and self._together
        unfinished = self._unfinished(name, content, durable=durable and not later)
        os.rename(unfinished, self._path(name))
        if later:
            self._unflushed.append(self._path(name))

    def commit(self, name: str, content: Content) -> bool:
        unfinished = self._unfinished(name, content, durable=not self._together)
        try:
            self._flush([*self._unflushed, *([unfinished] if self._together else [])])
            self._unflushed.clear()
            os.link(unfinished, self._path(name))
        except FileExistsError:
            return False
        finally:
            os.unlink(unfinished)
        self._sync()
        return True

    def read(self, name: str) -> pa.Buffer:
        with pa.memory_map(self._path(name)) as file:
            return file.read_buffer()

    def names(self) -> list[str]:
        with os.scandir(self._folder) as entries:
            return sorted(entry.name for entry in entries if entry.is_file())

    def delete(self, names: Iterable[str]) -> None:
        for name in names:
            with suppress(FileNotFoundError):
                os.unlink(self._path(name))

    def _path(self, name: str) -> str:
        return f"{self._folder}/{name}"

    def _unfinished(self, name: str, content: Content, *, durable: bool) -> str:
        """Writes the content under another name, which nobody reads. It does not go through a file of the given name,
        which could be a link to elsewhere."""
        path = self._path(f"{name}.{secrets.token_hex(4)}{_UNFINISHED}")
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(content)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        return path

    def _flush(self, paths: Iterable[str]) -> None:
        for path in paths:
            with suppress(FileNotFoundError):  # deleted meanwhile
                _fsync(path)

    def _sync(self) -> None:
        _fsync(self._folder)


def _fsync(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_table(storage: Storage, name: str, table: pa.Table) -> int:
    """Write a table as an Arrow file, compressed; returns its size in bytes."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema, options=_COMPRESSED) as writer:
        writer.write_table(table)
    content = sink.getvalue()
    storage.write(name, content)
    return int(content.size)


def read_table(storage: Storage, name: str) -> pa.Table:
    """Read an Arrow file; ArrowException if it is none."""
    return pa.ipc.open_file(storage.read(name)).read_all()


_COMPRESSED = pa.ipc.IpcWriteOptions(compression="lz4")
