"""Sinks: where results go. After a crash a sink writes interrupted results again and no result twice, because its state
from before the batch is saved with the batch. Slow work is done before and after publishing, never during it."""

from __future__ import annotations

import datetime as dt
import hashlib
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import quote

from headgate.egress.folder import ResultFolder
from headgate.ingress.validation import plain_value
from headgate.labels import Label, source_shown
from headgate.model.rejected import MALFORMED, RejectedRows
from headgate.model.results import Recipient, ResultBatch
from headgate.model.snapshot import CatalogSnapshot
from headgate.plain import json_line

Verify = Callable[[], None]
"""Raises LeaseLost unless the decision still holds."""


class Sink(ABC):
    """`name` identifies the sink's saved state: no two destinations have the same. `keeps`: the sink itself keeps
    staged results, so they need not be saved with the batch. `place` is the destination as shown to people."""

    keeps: bool
    place: str = ""

    @property
    @abstractmethod
    def name(self) -> str: ...

    def claim(self, owner: str, epoch: int = 0) -> None:  # noqa: B027
        """Binds the sink to the state of this name, and to the process of this epoch, from now on, or refuses."""

    def let_go(self) -> None:  # noqa: B027
        """Releases the sink."""

    def warnings(self) -> list[str]:
        """Warnings for the operator, since the last call."""
        return []

    @abstractmethod
    def state(self, results: Sequence[ResultBatch] = (), rejected: Sequence[RejectedRows] = ()) -> Mapping[str, Any]:
        """The state the sink needs to write these results and no others, as plain JSON, by its name (and by those of
        other sinks that write to the same place). Empty if the sink loses everything when the process ends. Such a
        sink is given nothing again after a restart: what it got would depend on whose batch was the last."""

    @abstractmethod
    def restore(self, states: Mapping[str, Any], *, out: bool) -> None:
        """Returns to this state. Removes what was written of the results that were to be written, unless they were
        `out`."""

    @abstractmethod
    def stage(self, version: int, results: Sequence[ResultBatch], rejected: Sequence[RejectedRows] = ()) -> None:
        """Stages the results that are delivered once the batch is committed; no reader sees them yet."""

    @abstractmethod
    def staged(self, version: int) -> list[ResultBatch]:
        """After a restart: the results staged for a committed batch; empty if the sink keeps none."""

    @abstractmethod
    def prepare(self, results: Sequence[ResultBatch], rejected: Sequence[RejectedRows], *, as_staged: bool) -> None:
        """Prepares publishing: everything that was staged, or only these results. No reader sees them yet. It may be
        called again for the same batch; results published before are then not published again."""

    @abstractmethod
    def publish(self, verify: Verify) -> None:
        """Publishes what was prepared while no right can change: nothing outside the process is waited for. Calls
        `verify` before each step."""

    def complete(self) -> None:  # noqa: B027
        """Makes published results durable; slow work belongs here."""

    @abstractmethod
    def retain(self, now: CatalogSnapshot) -> None:
        """Drops what is held for subscribers who have left and whose results are all out."""


@dataclass(frozen=True)
class Address:
    """Where the results of a query go for a subscriber: the place of a file below the folder, the names of the columns,
    the stream and the level."""

    path: tuple[str, ...]
    columns: tuple[str, ...]
    stream: str = ""
    level: str = ""
    named: frozenset[str] | None = None
    """The sources that labels may name; None: all."""

    @classmethod
    def of(cls, out: Recipient) -> Address:
        return cls(out.path, out.columns, out.stream, out.level, out.named)


def address_of(addresses: Addresses, result_batch: ResultBatch, subscriber: str) -> Address:
    return Address.of(result_batch.outgoing) if result_batch.outgoing else addresses.of(subscriber, result_batch.query)


class FileSink(Sink):
    """JSON lines, one file for each subscriber and query. A file grows only with batches that have lines for it, so
    neither names nor sizes reveal anything but its own lines."""

    keeps = False

    def __init__(self, folder: Path | ResultFolder, addresses: Addresses) -> None:
        self._folder = folder if isinstance(folder, ResultFolder) else ResultFolder(folder)
        self.place = str(self._folder.path)
        self._addresses = addresses
        self._sizes: dict[str, int] = {}
        self._ready: dict[str, bytes] = {}
        self._begun: dict[str, int] = {}
        self._published: set[str] = set()

    @property
    def name(self) -> str:
        return f"files {self._folder.name}"

    def claim(self, owner: str, epoch: int = 0) -> None:
        self._folder.claim(owner, epoch)

    def let_go(self) -> None:
        self._folder.let_go()

    def warnings(self) -> list[str]:
        return taken(self._folder.warnings)

    def state(self, results: Sequence[ResultBatch] = (), rejected: Sequence[RejectedRows] = ()) -> dict[str, Any]:
        coming = (self._path(name, result_batch) for result_batch in results for name in result_batch.subscribers)
        beginning = dict.fromkeys((*coming, *(self._path_of_rejected(part) for part in rejected)), 0)
        return {self.name: beginning | self._sizes}

    def restore(self, states: Mapping[str, Any], *, out: bool) -> None:
        """Truncates what a crash left of undelivered results: rights may have changed since, so they may never be
        delivered."""
        self._sizes = dict(states.get(self.name) or {})
        for path, size in list(self._sizes.items()):
            here = self._folder.file(path, make=False)
            left = None
            with self._folder.reporting(path), suppress(FileNotFoundError), here as file, self._folder.change():
                if not out and os.fstat(file).st_size > size:
                    os.ftruncate(file, size)
                left = self._end_of(path, file)
            if left is None and size:
                self._warn(path, "was removed: it begins anew")
            self._sizes[path] = left or 0

    def stage(self, version: int, results: Sequence[ResultBatch], rejected: Sequence[RejectedRows] = ()) -> None:  # noqa: ARG002
        self._check_folder()

    def staged(self, version: int) -> list[ResultBatch]:  # noqa: ARG002
        return []

    def prepare(self, results: Sequence[ResultBatch], rejected: Sequence[RejectedRows], *, as_staged: bool) -> None:  # noqa: ARG002
        self._check_folder()
        self._take_back()
        lines: dict[str, list[str]] = {}
        for result_batch in results:
            written: dict[frozenset[str] | None, list[str]] = {}
            for subscriber in result_batch.subscribers:
                address = address_of(self._addresses, result_batch, subscriber)
                if address.named not in written:
                    written[address.named] = lines_of(result_batch, address)
                lines.setdefault(self._path(subscriber, result_batch), []).extend(written[address.named])
        for part in rejected:
            lines.setdefault(self._path_of_rejected(part), []).extend(rejected_lines(part))
        self._ready = {
            path: "".join(f"{line}\n" for line in new).encode()
            for path, new in lines.items()
            if path not in self._published
        }

    def publish(self, verify: Verify) -> None:
        for path in list(self._ready):
            verify()
            with self._folder.reporting(path):
                self._append(path, verify)
            del self._ready[path]
            self._published.add(path)

    def complete(self) -> None:
        for path in self._published:
            here = self._folder.file(path, make=False)
            with self._folder.reporting(path), suppress(FileNotFoundError), here as file:
                os.fsync(file)
        self._published, self._ready = set(), {}

    def retain(self, now: CatalogSnapshot) -> None:
        """Keeps the sizes of files: a user who subscribes again continues at the end of its file."""

    def _path(self, subscriber: str, result_batch: ResultBatch) -> str:
        return file_name(address_of(self._addresses, result_batch, subscriber).path)

    def _path_of_rejected(self, part: RejectedRows) -> str:
        return file_name(self._addresses.of_rejected(part.stream))

    def _append(self, path: str, verify: Verify) -> None:
        """Appends in pieces, so that a large write stops soon when the lease is lost; it can resume where it
        stopped."""
        content = self._ready[path]
        with self._folder.file(path) as file, self._folder.change():
            if path not in self._begun:
                self._sizes[path] = self._end_of(path, file)
                self._begun[path] = 0
            os.ftruncate(
                file, self._sizes[path] + self._begun[path]
            )  # unknown content is from before the state was deleted
            os.lseek(file, 0, os.SEEK_END)
            while (begin := self._begun[path]) < len(content):
                if begin:
                    verify()
                self._begun[path] += os.write(file, content[begin : begin + _PIECE])
        self._sizes[path] += self._begun.pop(path)

    def _take_back(self) -> None:
        """Removes partly published content, which may no longer be permitted as it is."""
        for path in self._begun:
            with self._folder.reporting(path), self._folder.file(path) as file, self._folder.change():
                os.ftruncate(file, self._sizes[path])
        self._begun = {}

    def _end_of(self, path: str, file: int) -> int:
        """Where writing continues. If the size is not the recorded one, somebody else changed the file, and a warning
        says so: added bytes stay, and the rest of a line that was cut is removed, so that the next line stands
        alone."""
        known, found = self._sizes.get(path, 0), os.fstat(file).st_size
        if path not in self._sizes or found == known:
            return known
        if found > known:
            self._warn(path, f"has {found - known:,} bytes at its end that are not from here: they stay")
            return found
        self._warn(path, f"was cut or removed: {known - found:,} bytes of results are gone")
        whole = _last_line(file, found)
        os.ftruncate(file, whole)
        return whole

    def _check_folder(self) -> None:
        """Starts again if the folder was removed."""
        if self._folder.was_replaced():
            self.begin_anew()

    def begin_anew(self) -> None:
        """For a folder of which nothing is recorded."""
        self._sizes = {}

    def _warn(self, path: str, what: str) -> None:
        self._folder.warnings.append(f"the file of results `{path}` in `{self._folder.path}` {what}")


def taken(said: list[str]) -> list[str]:
    """Removes and returns all entries, even if others are added meanwhile."""
    return [said.pop(0) for _ in range(len(said))]


def _last_line(file: int, size: int) -> int:
    """Where the last complete line ends."""
    while size:
        begin = max(0, size - _PIECE)
        found = os.pread(file, size - begin, begin).rfind(b"\n")
        if found >= 0:
            return begin + found + 1
        size = begin
    return 0


class Addresses(Protocol):
    def of(self, subscriber: str, query: str) -> Address: ...

    def of_rejected(self, stream: str) -> tuple[str, ...]: ...


_PIECE = 1 << 20
_LONGEST = 200
"""The longest name of a file, in bytes; file systems allow 255."""


def file_path(path: tuple[str, ...]) -> str:
    """A path of which no part leaves its folder, is hidden, or is too long for a name."""
    return "/".join(map(_part, path))


def file_name(path: tuple[str, ...]) -> str:
    return f"{file_path(path)}.jsonl"


def _part(part: str) -> str:
    found = quote(part, safe=" @~=").replace(".", "%2E", part.startswith("."))
    if len(found) <= _LONGEST:
        return found
    return f"{found[: _LONGEST - 66]}%%{hashlib.sha256(part.encode()).hexdigest()}"


def shown_kinds(kinds: Sequence[Label], named: frozenset[str] | None) -> list[str]:
    """Labels as a reader sees them: with the names that sources have for people, and without sources that it may not
    view."""
    return [str(replace(x, sources=_shown(x.sources, named), aggregated=frozenset())) for x in kinds]


def _shown(sources: frozenset[str], named: frozenset[str] | None) -> frozenset[str]:
    return frozenset(map(source_shown, sources if named is None else sources & named))


def lines_of(result_batch: ResultBatch, address: Address) -> list[str]:
    """Each result as one JSON object, or the notice that stands instead of results."""
    if result_batch.word:
        return [json_line(result_batch.word)]
    kinds = shown_kinds(result_batch.kinds, address.named)
    columns = address.columns[: len(result_batch.values)]  # the stream may have got more columns since
    values = zip(*(column.to_pylist() for column in result_batch.values), strict=True)
    return [
        json_line(
            {
                "time": dt.datetime.fromtimestamp(time / 1000, dt.UTC).isoformat(),
                "label": kinds[label],
                "values": dict(zip(columns, map(plain_value, row), strict=True)),
            }
        )
        for time, label, row in zip(result_batch.times.tolist(), result_batch.labels.tolist(), values, strict=True)
    ]


def rejected_lines(part: RejectedRows) -> list[str]:
    """Each rejected row with its most precise reason, as its values or, if it is malformed, as its text; then how many
    more there were."""
    details = part.details or [""] * len(part.rows)
    reasons = [f"{part.reason}: {detail}" if detail else part.reason for detail in details]
    lines: list[dict[str, object]] = [
        {"reason": reason, **({"values": row} if row.get(MALFORMED) is None else _malformed(row))}
        for reason, row in zip(reasons, part.rows, strict=True)
    ]
    if part.more:
        lines.append({"reason": part.reason, "more": part.more})
    return [json_line(line) for line in lines]


def _malformed(row: Mapping[str, object]) -> dict[str, object]:
    """The text of a malformed row, and where it was if that is known."""
    return {"row": row[MALFORMED]} | {name: value for name, value in row.items() if name != MALFORMED}


def plain_rejected(part: RejectedRows) -> list[Any]:
    return [part.stream, part.reason, list(part.rows), part.more, list(part.details)]


def rejected_of(plain: list[Any]) -> RejectedRows:
    return RejectedRows(*plain)
