"""The ingress log: published tuples, durable before they are acknowledged, as files that Spark reads and removes.

Requests that arrive together become one Parquet file for each stream. INVARIANT: tuples count when the transaction is
committed that records their file and the sequence numbers of their senders; not before, and not twice. After a crash
recorded files get their names, and files that are not recorded are removed.
"""

from __future__ import annotations

import hashlib
import os
import queue
import re
import shutil
import sqlite3
import threading
import time
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from headgate.clock import Clock, SystemClock
from headgate.errors import Conflict, HeadgateError, StoreError
from headgate.logs import event, failure
from headgate.protocol import PUBLISH as PUBLISH

MOST_PRODUCERS = 10_000
"""Producers of one user in one stream. If there are more, those that sent nothing for a while are forgotten."""
REMEMBERED_SECONDS = 3600
"""How long a producer that sends nothing is remembered at least: no client sends a request again after that."""
_GROUP = 256
_SETUP = """
PRAGMA journal_mode = WAL;
PRAGMA synchronous = FULL;
CREATE TABLE IF NOT EXISTS producers (
  stream TEXT, user TEXT, level TEXT, producer TEXT, last INTEGER, used INTEGER DEFAULT 0,
  PRIMARY KEY (stream, user, level, producer));
CREATE TABLE IF NOT EXISTS recorded (number INTEGER PRIMARY KEY, folder TEXT);
CREATE TABLE IF NOT EXISTS latest (one INTEGER PRIMARY KEY CHECK (one = 1), number INTEGER, stamp INTEGER);
INSERT OR IGNORE INTO latest VALUES (1, 0, 0);
"""


@dataclass(frozen=True)
class Producer:
    """A sender of a stream as sequence numbers know it: a user at a level, and a name that the user chose."""

    user: str
    level: str
    name: str = ""


@dataclass(frozen=True)
class Acknowledged:
    """`is_repeat`: the tuples were in the log already."""

    rows: int
    is_repeat: bool = False


@dataclass(frozen=True, eq=False)
class _Request:
    stream: str
    table: pa.Table
    producer: Producer
    sequence: int | None
    for_ever: bool
    answer: Future[Acknowledged] = field(default_factory=Future)


class OutOfOrder(Conflict):
    """A sequence number that does not follow the last one."""


class IngressLog:
    """One process writes the log; `folder_of` is where Spark reads the tuples of a stream."""

    def __init__(self, folder: Path, most_bytes: int = 256 << 20, clock: Clock | None = None) -> None:
        self._folder, self._most_bytes, self._clock = folder, most_bytes, clock or SystemClock()
        self._new = folder / ".new"
        for place in (folder, self._new):
            place.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._requests: queue.SimpleQueue[_Request | None] = queue.SimpleQueue()
        self._sizes: dict[str, tuple[float, int]] = {}
        self._named: list[int] = []
        self.rows = 0
        self.repeats = 0
        self.removed = 0
        """Files of tuples that were removed because nobody read them."""
        descriptor = os.open(folder / "ingress.db", os.O_RDWR | os.O_CREAT, 0o600)
        os.close(descriptor)
        self._store = sqlite3.connect(folder / "ingress.db", isolation_level=None, check_same_thread=False, timeout=0.5)
        try:
            self._store.execute("PRAGMA locking_mode = EXCLUSIVE")
            self._store.executescript(_SETUP)
            if "used" not in [x[1] for x in self._store.execute("PRAGMA table_info(producers)")]:
                self._store.execute("ALTER TABLE producers ADD COLUMN used INTEGER DEFAULT 0")
        except sqlite3.Error:
            self._store.close()
            raise StoreError(
                f"cannot open the ingress log in `{folder}`: another process uses it, or it is damaged"
            ) from None
        self._recover()
        self._thread = threading.Thread(target=self._work, name="ingress log", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Answers all requests first."""
        self._requests.put(None)
        self._thread.join()
        self._store.close()

    def folder_of(self, stream: str) -> Path:
        return self._folder / folder_name(stream)

    def append(
        self,
        stream: str,
        table: pa.Table,
        producer: Producer,
        sequence: int | None = None,
        *,
        for_ever: bool = False,
    ) -> Future[Acknowledged]:
        """The future is done when the tuples are durable, or fails with the reason why they are not taken. With
        `for_ever` no producer of the stream is forgotten, so that nothing it ever sent is taken again."""
        request = _Request(stream, table, producer, sequence, for_ever)
        self._requests.put(request)
        return request.answer

    def is_full(self, stream: str) -> bool:
        return self.waiting(stream) >= self._most_bytes

    def keep(self, streams: Collection[str]) -> None:
        """Removes what is left of other streams, which were dropped: no stream gets their names again. For the start,
        before anything is published."""
        folders = {folder_name(stream) for stream in streams}
        for place in [x for x in self._folder.iterdir() if x.is_dir() and x != self._new and x.name not in folders]:
            shutil.rmtree(place)
        known = [name for (name,) in self._store.execute("SELECT DISTINCT stream FROM producers").fetchall()]
        gone = [(name,) for name in known if name not in streams]
        self._store.executemany("DELETE FROM producers WHERE stream = ?", gone)

    def make_room(self, stream: str) -> None:
        """Removes the oldest tuples of a stream that nobody reads. To refuse new ones would tell senders that nobody
        does, at whatever level: a reader who begins while this happens begins with the tuples that are left."""
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
        """Bytes that the engine has not read, or has read only just."""
        looked, size = self._sizes.get(stream, (0.0, 0))
        if time.monotonic() - looked > 0.2:
            size = 0
            with suppress(FileNotFoundError), os.scandir(self.folder_of(stream)) as entries:
                for entry in entries:
                    with suppress(FileNotFoundError):
                        size += entry.stat().st_size
            self._sizes[stream] = time.monotonic(), size
        return size

    # The thread -------------------------------------------------------------------------------------------------------

    def _work(self) -> None:
        while (first := self._requests.get()) is not None:
            group, ending = [first], False
            while len(group) < _GROUP and not self._requests.empty():
                request = self._requests.get()
                if request is None:
                    ending = True
                    break
                group.append(request)
            self._take(group)
            if ending:
                return

    def _take(self, group: Sequence[_Request]) -> None:
        try:
            answers = self._record(group)
        except Exception as error:
            failure("ingress", "published tuples could not be written", error)
            fault = StoreError("cannot write published tuples", hint="send them again with the same sequence number")
            answers = dict.fromkeys(group, fault)
        for request in group:
            answer = answers[request]
            if isinstance(answer, HeadgateError):
                request.answer.set_exception(answer)
            else:
                request.answer.set_result(answer)

    def _record(self, group: Sequence[_Request]) -> dict[_Request, Acknowledged | HeadgateError]:
        answers: dict[_Request, Acknowledged | HeadgateError] = {}
        begun: dict[str, list[pa.Table]] = {}
        last: dict[tuple[str, Producer], int] = {}
        for request in group:
            answer = self._judge(request, last)
            answers[request] = answer
            if isinstance(answer, Acknowledged) and not answer.is_repeat and request.table.num_rows:
                begun.setdefault(request.stream, []).append(request.table)
        number, stamp = self._store.execute("SELECT number, stamp FROM latest").fetchone()
        written: list[tuple[int, str]] = []
        for stream, tables in begun.items():
            number, stamp = number + 1, max(stamp + 1, time.time_ns() // 1_000_000)
            self._write(number, stamp, pa.concat_tables(tables))
            written.append((number, folder_name(stream)))
        _sync(self._new)
        self._commit(written, last, number, stamp)
        for number, folder in written:
            self._name(number, folder)
        self._named += [number for number, _ in written]
        done = [x for x in answers.values() if isinstance(x, Acknowledged)]
        self.rows += sum(x.rows for x in done if not x.is_repeat)
        self.repeats += sum(x.is_repeat for x in done)
        return answers

    def _judge(self, request: _Request, last: dict[tuple[str, Producer], int]) -> Acknowledged | HeadgateError:
        """Sequence numbers follow one another; one that was taken already is acknowledged again."""
        rows = request.table.num_rows
        if request.sequence is None:
            return Acknowledged(rows)
        key = (request.stream, request.producer)
        known = last[key] if key in last else self._last(*key)
        if request.sequence <= known:
            return Acknowledged(rows, is_repeat=True)
        if request.sequence > known + 1:
            return OutOfOrder(
                f"cannot take sequence number {request.sequence}: {known + 1} comes next",
                hint="send what is missing first, or use another producer name and begin with 1",
            )
        if not known and not self._has_room(request):
            return Conflict(
                f"cannot take another producer: you have {MOST_PRODUCERS:,} in this stream",
                hint="use the name of one of them again, with the number after its last",
            )
        last[key] = request.sequence
        return Acknowledged(rows)

    def _last(self, stream: str, producer: Producer) -> int:
        query = "SELECT last FROM producers WHERE stream = ? AND user = ? AND level = ? AND producer = ?"
        found = self._store.execute(query, (stream, producer.user, producer.level, producer.name)).fetchone()
        return int(found[0]) if found else 0

    def _has_room(self, request: _Request) -> bool:
        """Whether there is room for another producer; forgets old ones for it."""
        whose = request.stream, request.producer.user
        query = "SELECT count(*) FROM producers WHERE stream = ? AND user = ?"
        if int(self._store.execute(query, whose).fetchone()[0]) < MOST_PRODUCERS:
            return True
        if request.for_ever:
            return False
        old = "DELETE FROM producers WHERE stream = ? AND user = ? AND used < ?"
        return self._store.execute(old, (*whose, int(self._clock.now()) - REMEMBERED_SECONDS)).rowcount > 0

    def _commit(
        self, written: Sequence[tuple[int, str]], last: Mapping[tuple[str, Producer], int], number: int, stamp: int
    ) -> None:
        store, now = self._store, int(self._clock.now())
        store.execute("BEGIN IMMEDIATE")
        try:
            store.executemany("DELETE FROM recorded WHERE number = ?", [(x,) for x in self._named])
            store.executemany("INSERT INTO recorded VALUES (?, ?)", written)
            store.executemany(
                "INSERT INTO producers VALUES (?, ?, ?, ?, ?, ?)"
                " ON CONFLICT (stream, user, level, producer) DO UPDATE SET last = excluded.last, used = excluded.used",
                [(stream, x.user, x.level, x.name, sequence, now) for (stream, x), sequence in last.items()],
            )
            store.execute("UPDATE latest SET number = ?, stamp = ?", (number, stamp))
            store.execute("COMMIT")
        except BaseException:
            with suppress(sqlite3.Error):
                store.execute("ROLLBACK")
            raise
        self._named = []

    # Files ------------------------------------------------------------------------------------------------------------

    def _write(self, number: int, stamp: int, table: pa.Table) -> None:
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


def _file_name(number: int) -> str:
    return f"{number:020}.parquet"


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def spark_options(folder: Path) -> dict[str, str]:
    """How Spark reads the folder of a stream: in order, and removing what was processed."""
    return {"path": str(folder), "cleanSource": "delete", "maxFilesPerTrigger": "400"}
