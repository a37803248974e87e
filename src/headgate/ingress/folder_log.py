"""The ingress log as files that Spark reads and removes: a folder of Parquet files for each stream.

Requests that arrive together become one file for each stream. INVARIANT: tuples count when the transaction is committed
that records their file and the sequence numbers of their senders. After a crash recorded files get their names, and
files that are not recorded are removed.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import sqlite3
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from headgate.clock import Clock
from headgate.ingress.ingress_log import IngressLog, PublishedSource, open_store
from headgate.ingress.sequence_numbers import Numbers
from headgate.logs import event

STORE = "ingress.db"
_SETUP = """
PRAGMA journal_mode = WAL;
PRAGMA synchronous = FULL;
CREATE TABLE IF NOT EXISTS recorded (number INTEGER PRIMARY KEY, folder TEXT);
CREATE TABLE IF NOT EXISTS latest (one INTEGER PRIMARY KEY CHECK (one = 1), number INTEGER, stamp INTEGER);
INSERT OR IGNORE INTO latest VALUES (1, 0, 0);
"""


class FolderLog(IngressLog):
    """`folder_of` is where Spark reads the tuples of a stream."""

    def __init__(self, folder: Path, most_bytes: int = 256 << 20, clock: Clock | None = None) -> None:
        self._folder, self._most_bytes = folder, most_bytes
        self._new = folder / ".new"
        for place in (folder, self._new):
            place.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._sizes: dict[str, tuple[float, int]] = {}
        self._named: list[int] = []
        super().__init__(open_store(folder / STORE, _SETUP), clock)
        self._recover()
        self._thread.start()

    def folder_of(self, stream: str) -> Path:
        return self._folder / folder_name(stream)

    def is_full(self, stream: str) -> bool:
        return self.waiting(stream) >= self._most_bytes

    def keep(self, streams: Collection[str]) -> None:
        folders = {folder_name(stream) for stream in streams}
        for place in [x for x in self._folder.iterdir() if x.is_dir() and x != self._new and x.name not in folders]:
            shutil.rmtree(place)
        self._numbers.keep(streams)

    def make_room(self, stream: str) -> None:
        """To refuse new tuples would tell senders that nobody reads the stream, at whatever level: a reader who begins
        while this happens begins with the tuples that are left."""
        left, removed = self.waiting(stream), 0
        for path in sorted(self.folder_of(stream).glob("*.parquet")):
            if left <= self._most_bytes // 2:
                break
            with suppress(FileNotFoundError):
                left -= path.stat().st_size
                path.unlink()
                removed += 1
        self._sizes.pop(stream, None)
        self.removed += removed
        event("ingress", "tuples that nobody reads were removed", stream=stream, files=removed)

    def waiting(self, stream: str) -> int:
        looked, size = self._sizes.get(stream, (0.0, 0))
        if time.monotonic() - looked > 0.2:
            size = 0
            with suppress(FileNotFoundError), os.scandir(self.folder_of(stream)) as entries:
                for entry in entries:
                    with suppress(FileNotFoundError):
                        size += entry.stat().st_size
            self._sizes[stream] = time.monotonic(), size
        return size

    def _write(self, tables: Mapping[str, Sequence[pa.Table]], last: Numbers) -> None:
        number, stamp = self._store.execute("SELECT number, stamp FROM latest").fetchone()
        written: list[tuple[int, str]] = []
        for stream, some in tables.items():
            if any(table.num_rows for table in some):
                number, stamp = number + 1, max(stamp + 1, time.time_ns() // 1_000_000)
                self._write_file(number, stamp, pa.concat_tables(some))
                written.append((number, folder_name(stream)))
        _sync(self._new)
        self._commit(written, last, number, stamp)
        for number, folder in written:
            self._name(number, folder)
        self._named += [number for number, _ in written]

    def _commit(self, written: Sequence[tuple[int, str]], last: Numbers, number: int, stamp: int) -> None:
        store = self._store
        store.execute("BEGIN IMMEDIATE")
        try:
            store.executemany("DELETE FROM recorded WHERE number = ?", [(x,) for x in self._named])
            store.executemany("INSERT INTO recorded VALUES (?, ?)", written)
            self._numbers.record(last)
            store.execute("UPDATE latest SET number = ?, stamp = ?", (number, stamp))
            store.execute("COMMIT")
        except BaseException:
            with suppress(sqlite3.Error):
                store.execute("ROLLBACK")
            raise
        self._named = []

    # Files ------------------------------------------------------------------------------------------------------------

    def _write_file(self, number: int, stamp: int, table: pa.Table) -> None:
        """The modification time, by which Spark orders files, never goes back, even if the clock does."""
        path = self._new / _file_name(number)
        path.unlink(missing_ok=True)
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            pq.write_table(table, file, compression="zstd")
            file.flush()
            os.utime(file.fileno(), ns=(stamp * 1_000_000, stamp * 1_000_000))
            os.fsync(file.fileno())

    def _name(self, number: int, folder: str) -> None:
        place = self._folder / folder
        place.mkdir(exist_ok=True, mode=0o700)
        (self._new / _file_name(number)).rename(place / _file_name(number))
        _sync(place)

    def _recover(self) -> None:
        for number, folder in self._store.execute("SELECT number, folder FROM recorded").fetchall():
            if (self._new / _file_name(number)).exists():
                self._name(number, folder)
            self._named.append(number)
        shutil.rmtree(self._new)
        self._new.mkdir(mode=0o700)
        _sync(self._folder)


def folder_name(stream: str) -> str:
    """The folder of a stream: its name for people, and a digest that tells apart names that look the same."""
    readable = re.sub(r"[^A-Za-z0-9_-]", "_", stream)[:60].lstrip("_")
    return f"{readable}-{hashlib.sha256(stream.encode()).hexdigest()[:32]}"


def folder_source(log: Path) -> PublishedSource:
    """Files of the log in a folder, in order; Spark removes what was processed."""

    def source(stream: str) -> tuple[str, dict[str, str]]:
        folder = log / folder_name(stream)
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        return "parquet", {"path": str(folder), "cleanSource": "delete", "maxFilesPerTrigger": "400"}

    return source


def _file_name(number: int) -> str:
    return f"{number:020}.parquet"


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
