"""The delivery log: results wait here until their readers fetch them, each reader at its own pace and from its own
position.

Results are written before rights are held and become readable by one step while they are held. Rights are applied again
when results are read. The log is limited: the oldest segments are removed, and readers who had not read them are told.

"""

from __future__ import annotations

import json
import os
import secrets
import threading
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

from headgate.clock import Clock, SystemClock
from headgate.egress.log_records import (
    AFTER,
    BEFORE,
    DeliveryRecord,
    decode,
    encode,
    ordinals_of,
    record_of,
    records_in,
)
from headgate.egress.sinks import Sink, Verify
from headgate.egress.version_results import is_for_subscriber, placed
from headgate.errors import StoreError
from headgate.model.rejected import RejectedRows
from headgate.model.results import ResultBatch
from headgate.model.snapshot import CatalogSnapshot

SEGMENT = 32 << 20
"""Bytes after which a new segment begins."""
MOST = 1 << 30
"""Bytes that are kept, unless the operator chooses another number; the newest segment always is."""
LONGEST = 7 * 86_400.0
"""Seconds that results are kept, unless the operator chooses another time."""
_PARTS = 24
"""A segment holds this part of what is kept, or less."""
_MOST_DECODED = 16 << 20
"""Bytes of records that are kept as batches for the next reader. Readers who keep up read the same few."""
_DECODED = 16 << 10
"""Bytes that a record takes in memory beyond those that it has in the file."""
_TRIMMED = "trimmed.json"
NONE_YET = ""
"""The history of a log that nothing was delivered to yet: a position in it comes before everything that will be."""


@dataclass(frozen=True, order=True)
class LogPosition:
    """A place in what one reader receives: the version of the state, and the place among its results."""

    version: int = 0
    place: int = BEFORE


@dataclass(frozen=True)
class Entry:
    """Results or a notice for one reader. `positions` has the position of each result, or the one of the notice.
    `lost` is for the first that is read: the last position before it whose result was removed, if this reader had not
    read that."""

    batch: ResultBatch
    version: int
    notice: int | None
    lost: LogPosition | None = None

    @property
    def positions(self) -> list[LogPosition]:
        if self.notice is not None:
            return [LogPosition(self.version, self.notice)]
        return [LogPosition(self.version, place) for place in ordinals_of(self.batch).tolist()]


class DeliveryLog(Sink):
    """INVARIANT: a record that is in `_records` was permitted to its subscribers when it got there, and is never
    changed."""

    name = "delivery log"
    keeps = False

    def __init__(
        self,
        folder: Path,
        *,
        most: int = MOST,
        longest: float = LONGEST,
        segment: int = SEGMENT,
        clock: Clock | None = None,
        wake: Callable[[set[tuple[str, str]]], None] | None = None,
    ) -> None:
        for place in (folder.parent, folder):
            place.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._folder, self._most, self._longest = folder, most, longest
        self._segment_size = min(segment, max(1, most // _PARTS))
        self._clock = clock or SystemClock()
        self.wake = wake or (lambda _: None)
        """Called with the subscribers and queries that have new records; it must not wait for anything."""
        self._lock = threading.Lock()
        self.history = NONE_YET
        self._version = 0
        self._segment, self._size = "", 0
        self._sizes: dict[str, int] = {}
        self._times: dict[str, tuple[float, float]] = {}
        """When the first and the last record of each segment were written."""
        self._records: dict[str, dict[frozenset[str], list[DeliveryRecord]]] = {}
        """By query and by whom they are for: most records of a query are for one of a few groups of readers."""
        self._groups: dict[tuple[str, str], list[frozenset[str]]] = {}
        """By subscriber and query: the groups that it belongs to."""
        self._trimmed: dict[str, LogPosition] = {}
        """By query and subscriber: the position of the last result that was removed."""
        self._ready: list[tuple[DeliveryRecord, int]] = []
        self._decoded: OrderedDict[tuple[str, int], tuple[ResultBatch, int]] = OrderedDict()
        self._decoded_size = 0
        self._unsynced: set[str] = set()

    # As a sink --------------------------------------------------------------------------------------------------------

    def state(self, results: Sequence[ResultBatch] = (), rejected: Sequence[RejectedRows] = ()) -> dict[str, Any]:  # noqa: ARG002
        known = {"history": self.history, "version": self._version, "segment": self._segment, "size": self._size}
        return {self.name: known}

    def restore(self, states: Mapping[str, Any], *, out: bool) -> None:  # noqa: ARG002
        """Removes what a crash left of undelivered results; they are delivered again under the rights of then."""
        known = states.get(self.name)
        if known is None or (known["segment"] and not (self._folder / known["segment"]).exists()):
            return  # `stage` begins anew
        with self._lock:
            self._records, self._groups, self._sizes, self._times, self._decoded_size = {}, {}, {}, {}, 0
            self._decoded.clear()
            self.history, self._version = known["history"], known["version"]
            self._segment, self._size = known["segment"], known["size"]
            for path in self._segments():
                if path.name > self._segment:
                    path.unlink()
            if self._segment:
                os.truncate(self._folder / self._segment, self._size)
            for path in self._segments():
                self._load(path)
            if (self._folder / _TRIMMED).exists():
                known = json.loads((self._folder / _TRIMMED).read_text())
                self._trimmed = {key: _removed(value) for key, value in known.items()}

    def _load(self, path: Path) -> None:
        self._sizes[path.name] = path.stat().st_size
        for record in records_in(path.name, path.read_bytes()):
            self._add(record)

    def _add(self, record: DeliveryRecord) -> None:
        groups = self._records.setdefault(record.query, {})
        known = groups.get(record.subscribers)
        if known is None:
            known = groups[record.subscribers] = []
            for name in record.subscribers:
                self._groups.setdefault((name, record.query), []).append(record.subscribers)
        else:  # the names are kept once
            record = replace(record, subscribers=known[-1].subscribers, query=known[-1].query)
        known.append(record)
        first, _ = self._times.get(record.segment, (record.written, 0.0))
        self._times[record.segment] = first, record.written

    def stage(self, version: int, results: Sequence[ResultBatch], rejected: Sequence[RejectedRows] = ()) -> None:  # noqa: ARG002
        if self.history == NONE_YET:
            self._begin()
        self._version = version

    def _begin(self) -> None:
        """Begins a new history: nothing that may lie in the folder belongs to it."""
        for path in [*self._segments(), *self._folder.glob(_TRIMMED)]:
            path.unlink()
        self.history = secrets.token_hex(8)

    def staged(self, version: int) -> list[ResultBatch]:  # noqa: ARG002
        return []

    def prepare(self, results: Sequence[ResultBatch], rejected: Sequence[RejectedRows], *, as_staged: bool) -> None:  # noqa: ARG002
        """Writes the results behind what is readable; nobody reads them yet."""
        self._ready = []
        results = [x for x in placed(results) if is_for_subscriber(x)]
        if not results:
            return
        now = self._clock.now()
        first, _ = self._times.get(self._segment, (now, now))
        if not self._segment or self._size >= self._segment_size or now - first > self._longest / _PARTS:
            self._segment, self._size = f"{self._version:015}.log", 0
        try:
            descriptor = os.open(self._folder / self._segment, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
            try:
                os.ftruncate(descriptor, self._size)
                end = os.lseek(descriptor, self._size, os.SEEK_SET)
                for batch in results:
                    frame = encode(self._version, batch, batch.place, now)
                    self._ready.append((record_of(self._segment, end, frame), len(frame)))
                    end += _write(descriptor, frame)
            finally:
                os.close(descriptor)
        except OSError as error:
            raise StoreError(
                f"results cannot be written to `{self._folder}` ({error.strerror})",
                hint="see to that and start again: nothing is lost",
            ) from None

    def publish(self, verify: Verify) -> None:
        verify()
        with self._lock:
            for record, size in self._ready:
                self._add(record)
                self._size += size
            if self._ready:
                self._sizes[self._segment] = self._size
                self._unsynced.add(self._segment)
        readers = {(name, record.query) for record, _ in self._ready for name in record.subscribers}
        self._ready = []
        if readers:
            self.wake(readers)

    def complete(self) -> None:
        for name in self._unsynced:
            descriptor = os.open(self._folder / name, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        self._unsynced.clear()
        self._trim()

    def retain(self, now: CatalogSnapshot) -> None:
        """Keeps all results: the limits of the log remove them, and rights decide who may read them."""
        known = {f"{x.query} {x.name}" for x in now.standings}
        with self._lock:
            self._trimmed = {key: last for key, last in self._trimmed.items() if key in known}

    # For readers ------------------------------------------------------------------------------------------------------

    def of(self, level: str) -> DeliveryLog:  # noqa: ARG002
        """The log that holds the results of subscriptions of this level: this one, for all levels."""
        return self

    def read(self, subscriber: str, query: str, after: LogPosition, most: int, size: int = 1 << 62) -> list[Entry]:
        """What a reader receives after a position, in order: its notices and results of one version, up to `most`
        results and about `size` bytes, but at least one. Readers of the same results get the same batches."""
        with self._lock:
            lost = self.lost(subscriber, query, after)  # at the same moment: what is removed later is not before these
            some = self._next(subscriber, query, after)
        found: list[Entry] = []
        for record in some:
            try:
                batch = self._batch(record)
            except FileNotFoundError:
                if self._holds(record):
                    raise
                return self.read(subscriber, query, after, most, size)  # removed meanwhile
            if record.notice is not None:
                found.append(Entry(batch, record.version, record.notice))
                continue
            places = ordinals_of(batch)
            new = places > after.place if record.version == after.version else places >= 0
            rows = new.nonzero()[0]
            most = max(1, min(most, size * len(places) // record.size))
            if len(rows) > most:
                new[rows[most] :] = False
                found.append(Entry(batch.left(new), record.version, None))
                break
            if len(rows):
                left = batch if len(rows) == len(places) else batch.left(new)
                found.append(Entry(left, record.version, None))
                most -= len(rows)
        if some and not found:  # all of this version was read
            return self.read(subscriber, query, LogPosition(some[0].version, AFTER), most, size)
        if lost is not None and found:
            found[0] = replace(found[0], lost=lost)
        return found

    def passed(self, subscriber: str, query: str, after: LogPosition) -> LogPosition:
        """Where a reader whom nothing waits for may go on looking, so that what is for others is not looked through
        again and again: before the newest version, which an engine that starts again may deliver once more."""
        with self._lock:
            newest = max((x[-1].version for x in self._records.get(query, {}).values()), default=0)
            if not newest or self._next(subscriber, query, after) or self.lost(subscriber, query, after):
                return after
            return max(after, LogPosition(newest - 1, AFTER))

    def waits(self, subscriber: str, query: str, after: LogPosition) -> bool:
        """Whether there is something for a reader after a position."""
        with self._lock:
            return bool(self._next(subscriber, query, after))

    def _next(self, subscriber: str, query: str, after: LogPosition) -> list[DeliveryRecord]:
        """The records for a reader after a position: those of the oldest version that has any, in order."""
        some: list[DeliveryRecord] = []
        for group in self._groups.get((subscriber, query), ()):
            records = self._records[query][group]
            if records[-1].version < after.version:  # most groups that a reader was in are of long ago
                continue
            for record in islice(records, bisect_left(records, after.version, key=_version), None):
                if some and record.version > some[0].version:
                    break
                if self._is_after(record, after):
                    if some and record.version < some[0].version:
                        some = []
                    some.append(record)
        return sorted(some, key=_place) if len(some) > 1 else some

    def _holds(self, record: DeliveryRecord) -> bool:
        with self._lock:
            return record.segment in self._sizes

    @staticmethod
    def _is_after(record: DeliveryRecord, after: LogPosition) -> bool:
        if record.version != after.version:
            return True
        unknown = record.notice is None and record.last == BEFORE  # as earlier versions wrote it
        return after.place < AFTER if unknown else record.last > after.place

    def end(self) -> LogPosition:
        """The position after everything there is."""
        return LogPosition(self._version, AFTER)

    def lost(self, subscriber: str, query: str, after: LogPosition) -> LogPosition | None:
        """The position of the last result that was removed, if this reader had not read it."""
        removed = self._trimmed.get(f"{query} {subscriber}")
        return removed if removed is not None and removed > after else None

    @property
    def size(self) -> int:
        return sum(self._sizes.values())

    def _batch(self, record: DeliveryRecord) -> ResultBatch:
        key = (record.segment, record.offset)
        with self._lock:
            if key in self._decoded:
                self._decoded.move_to_end(key)
                return self._decoded[key][0]
        with open(self._folder / record.segment, "rb") as file:
            frame = os.pread(file.fileno(), record.size, record.offset)
        batch = decode(frame)
        with self._lock:
            if key not in self._decoded:
                self._decoded[key] = batch, record.size + _DECODED
                self._decoded_size += record.size + _DECODED
            while self._decoded_size > _MOST_DECODED and len(self._decoded) > 1:
                _, (_, size) = self._decoded.popitem(last=False)
                self._decoded_size -= size
        return batch

    # Retention --------------------------------------------------------------------------------------------------------

    def _trim(self) -> None:
        """Removes the oldest segments until the rest is within the limits; notes first who loses what."""
        gone: list[str] = []
        left, oldest = self.size, self._clock.now() - self._longest
        for name in sorted(self._sizes)[:-1]:
            if left <= self._most and self._times.get(name, (0.0, 0.0))[1] >= oldest:
                break
            gone.append(name)
            left -= self._sizes[name]
        if not gone:
            return
        with self._lock:
            for groups in self._records.values():
                for group, records in list(groups.items()):
                    self._forget(group, [x for x in records if x.segment in gone])
                    records[:] = [x for x in records if x.segment not in gone]
                    if not records:
                        del groups[group]
            self._records = {query: groups for query, groups in self._records.items() if groups}
            self._groups = {}
            for query, groups in self._records.items():
                for group in groups:
                    for name in group:
                        self._groups.setdefault((name, query), []).append(group)
            new = self._folder / f"{_TRIMMED}~"
            new.touch(mode=0o600)
            new.write_text(json.dumps({key: [x.version, x.place] for key, x in self._trimmed.items()}))
            new.rename(self._folder / _TRIMMED)
            for name in gone:
                del self._sizes[name]
                self._times.pop(name, None)
                (self._folder / name).unlink(missing_ok=True)

    def _forget(self, group: frozenset[str], records: Sequence[DeliveryRecord]) -> None:
        """Notes who loses these records, which are removed."""
        if records:
            last = LogPosition(records[-1].version, max(x.last for x in records if x.version == records[-1].version))
            for name in group:
                key = f"{records[-1].query} {name}"
                self._trimmed[key] = max(last, self._trimmed.get(key, last))

    def _segments(self) -> list[Path]:
        return sorted(self._folder.glob("*.log"))


def _removed(known: int | list[int]) -> LogPosition:
    """As it was written; earlier versions wrote the version alone."""
    return LogPosition(known) if isinstance(known, int) else LogPosition(*known)


def _version(record: DeliveryRecord) -> int:
    return record.version


def _place(record: DeliveryRecord) -> tuple[str, int]:
    return record.segment, record.offset


def _write(descriptor: int, content: bytes) -> int:
    left = memoryview(content)
    while left:
        left = left[os.write(descriptor, left) :]
    return len(content)
