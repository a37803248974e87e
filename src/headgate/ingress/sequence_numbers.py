"""The sequence numbers of senders: which requests were taken already, and which one comes next.

They are kept in a SQLite database beside the ingress log; the log says when they count.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field

import pyarrow as pa

from headgate.clock import Clock
from headgate.errors import Conflict, HeadgateError

MOST_PRODUCERS = 10_000
"""Producers of one user in one stream. If there are more, those that sent nothing for a while are forgotten."""
REMEMBERED_SECONDS = 3600
"""How long a producer that sends nothing is remembered at least: no client sends a request again after that."""
_SETUP = """
CREATE TABLE IF NOT EXISTS producers (
  stream TEXT, user TEXT, level TEXT, producer TEXT, last INTEGER, used INTEGER DEFAULT 0,
  PRIMARY KEY (stream, user, level, producer));
"""


@dataclass(frozen=True)
class Producer:
    """A sender of a stream as sequence numbers know it: a user at a level, and a name that the user chose."""

    user: str
    level: str
    name: str = ""


Numbers = dict[tuple[str, Producer], int]
"""The last number of each producer, by stream."""


@dataclass(frozen=True)
class Acknowledged:
    """`is_repeat`: the tuples were in the log already."""

    rows: int
    is_repeat: bool = False


@dataclass(frozen=True, eq=False)
class PublishRequest:
    """Tuples that a sender published. With `for_ever` no producer of the stream is forgotten, so that nothing it ever
    sent is taken again."""

    stream: str
    table: pa.Table
    producer: Producer
    sequence: int | None
    for_ever: bool
    answer: Future[Acknowledged] = field(default_factory=Future)


class OutOfOrder(Conflict):
    """A sequence number that does not follow the last one."""


class SequenceNumbers:
    def __init__(self, store: sqlite3.Connection, clock: Clock) -> None:
        self._store, self._clock = store, clock
        store.executescript(_SETUP)
        if "used" not in [x[1] for x in store.execute("PRAGMA table_info(producers)")]:
            store.execute("ALTER TABLE producers ADD COLUMN used INTEGER DEFAULT 0")

    def judge(self, request: PublishRequest, last: Numbers) -> Acknowledged | HeadgateError:
        """Sequence numbers follow one another; one that was taken already is acknowledged again. `last` has the numbers
        that count soon, and gets this one."""
        rows = request.table.num_rows
        if request.sequence is None:
            return Acknowledged(rows)
        key = (request.stream, request.producer)
        known = last[key] if key in last else self.last(*key)
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

    def last(self, stream: str, producer: Producer) -> int:
        query = "SELECT last FROM producers WHERE stream = ? AND user = ? AND level = ? AND producer = ?"
        known = self._store.execute(query, (stream, producer.user, producer.level, producer.name)).fetchone()
        return int(known[0]) if known else 0

    def record(self, last: Mapping[tuple[str, Producer], int]) -> None:
        """As part of the transaction of the caller."""
        now = int(self._clock.now())
        self._store.executemany(
            "INSERT INTO producers VALUES (?, ?, ?, ?, ?, ?)"
            " ON CONFLICT (stream, user, level, producer) DO UPDATE SET last = excluded.last, used = excluded.used",
            [(stream, x.user, x.level, x.name, sequence, now) for (stream, x), sequence in last.items()],
        )

    def keep(self, streams: Collection[str]) -> None:
        """Forgets all other streams."""
        known = [name for (name,) in self._store.execute("SELECT DISTINCT stream FROM producers").fetchall()]
        gone = [(name,) for name in known if name not in streams]
        self._store.executemany("DELETE FROM producers WHERE stream = ?", gone)

    def _has_room(self, request: PublishRequest) -> bool:
        """Whether there is room for another producer; forgets old ones for it."""
        whose = request.stream, request.producer.user
        query = "SELECT count(*) FROM producers WHERE stream = ? AND user = ?"
        if int(self._store.execute(query, whose).fetchone()[0]) < MOST_PRODUCERS:
            return True
        if request.for_ever:
            return False
        old = "DELETE FROM producers WHERE stream = ? AND user = ? AND used < ?"
        return self._store.execute(old, (*whose, int(self._clock.now()) - REMEMBERED_SECONDS)).rowcount > 0
