"""Where results go. What a crash interrupts is written again, and nothing twice: a sink's own state, from before a
batch, is kept with the batch. What takes time is done before and after results are let out, never meanwhile."""

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
from headgate.model.rejected import RejectedRows
from headgate.model.results import Recipient, ResultBatch
from headgate.model.snapshot import CatalogSnapshot
from headgate.plain import json_line

Verify = Callable[[], None]
"""Raises LeaseLost unless what was decided still holds."""


class Sink(ABC):
    """`name` is what its state is kept by: no two places where results go to have the same. `keeps`: what is staged is
    kept by the sink itself, and need not be kept with the batch. `place` is where that is, for people."""

    keeps: bool
    place: str = ""

    @property
    @abstractmethod
    def name(self) -> str: ...

    def claim(self, owner: str) -> None:  # noqa: B027
        """It is used for the state of this name from now on, or that is refused."""

    def let_go(self) -> None:  # noqa: B027
        """It is not used any more."""

    def warnings(self) -> list[str]:
        """What whoever runs the engine should know, since this was asked the last time."""
        return []

    @abstractmethod
    def state(self, results: Sequence[ResultBatch] = (), refused: Sequence[RejectedRows] = ()) -> Mapping[str, Any]:
        """What it needs to know to write these results, and only those, as plain JSON, by its name (and those of
        others that write to the same place); nothing if it keeps nothing when the process ends. Then the results of the
        last batch do not come again either: whether some would come depends on whose batch was the last."""

    @abstractmethod
    def restore(self, states: Mapping[str, Any], *, out: bool) -> None:
        """Back to where it was then; of the results it was to write nothing is left, unless they were `out`."""

    @abstractmethod
    def stage(self, version: int, results: Sequence[ResultBatch], refused: Sequence[RejectedRows] = ()) -> None:
        """What will go out as soon as the batch counts; nobody sees it yet."""

    @abstractmethod
    def staged(self, version: int) -> list[ResultBatch]:
        """After a restart: what was staged for a batch that counts; nothing if the sink keeps nothing."""

    @abstractmethod
    def prepare(self, results: Sequence[ResultBatch], refused: Sequence[RejectedRows], *, as_staged: bool) -> None:
        """Makes ready what will be let out: all that was staged, or only these results. Nobody sees it yet. It may come
        to be prepared again, and then what was let out before is not let out once more."""

    @abstractmethod
    def publish(self, verify: Verify) -> None:
        """Lets out what was prepared, while no right changes: nothing outside of the process is waited for. `verify` is
        asked before each step."""

    def complete(self) -> None:  # noqa: B027
        """What was let out is out for good: what takes time for that."""

    @abstractmethod
    def keep(self, now: CatalogSnapshot) -> None:
        """Of those who have left, and whose results are all out, nothing need be held any more."""


@dataclass(frozen=True)
class Address:
    """Where the results of a query go for a subscriber: a file's place below the folder, the names of the columns, and
    of which stream and level they are."""

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
    """JSON lines, one file for each subscriber and query, longer with every batch that has something for it: neither
    names nor sizes tell of anything but its own lines."""

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

    def claim(self, owner: str) -> None:
        self._folder.claim(owner)

    def let_go(self) -> None:
        self._folder.let_go()

    def warnings(self) -> list[str]:
        return taken(self._folder.warnings)

    def state(self, results: Sequence[ResultBatch] = (), refused: Sequence[RejectedRows] = ()) -> dict[str, Any]:
        coming = (self._path(name, result_batch) for result_batch in results for name in result_batch.subscribers)
        beginning = dict.fromkeys((*coming, *(self._path_of_refused(part) for part in refused)), 0)
        return {self.name: beginning | self._sizes}

    def restore(self, states: Mapping[str, Any], *, out: bool) -> None:
        """Rights may have changed since, so what a crash left of results may never come again: it goes now."""
        self._sizes = dict(states.get(self.name) or {})
        for path, size in list(self._sizes.items()):
            here = self._folder.file(path, make=False)
            left = None
            with self._folder.reporting(path), suppress(FileNotFoundError), here as file:
                if not out and os.fstat(file).st_size > size:
                    os.ftruncate(file, size)
                left = self._end_of(path, file)
            if left is None and size:
                self._warn(path, "was removed: it begins anew")
            self._sizes[path] = left or 0

    def stage(self, version: int, results: Sequence[ResultBatch], refused: Sequence[RejectedRows] = ()) -> None:  # noqa: ARG002
        self._look()

    def staged(self, version: int) -> list[ResultBatch]:  # noqa: ARG002
        return []

    def prepare(self, results: Sequence[ResultBatch], refused: Sequence[RejectedRows], *, as_staged: bool) -> None:  # noqa: ARG002
        self._look()
        self._take_back()
        lines: dict[str, list[str]] = {}
        for result_batch in results:
            written: dict[frozenset[str] | None, list[str]] = {}
            for subscriber in result_batch.subscribers:
                address = address_of(self._addresses, result_batch, subscriber)
                if address.named not in written:
                    written[address.named] = lines_of(result_batch, address)
                lines.setdefault(self._path(subscriber, result_batch), []).extend(written[address.named])
        for part in refused:
            lines.setdefault(self._path_of_refused(part), []).extend(rejected_lines(part))
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

    def keep(self, now: CatalogSnapshot) -> None:
        """How long files are stays known: whoever subscribes again goes on where its file ends."""

    def _path(self, subscriber: str, result_batch: ResultBatch) -> str:
        return file_name(address_of(self._addresses, result_batch, subscriber).path)

    def _path_of_refused(self, part: RejectedRows) -> str:
        return file_name(self._addresses.of_refused(part.stream))

    def _append(self, path: str, verify: Verify) -> None:
        """In pieces, so that what is large stops in time if it has to; it can go on where it stopped."""
        content = self._ready[path]
        with self._folder.file(path) as file:
            if path not in self._begun:
                self._sizes[path] = self._end_of(path, file)
                self._begun[path] = 0
            os.ftruncate(
                file, self._sizes[path] + self._begun[path]
            )  # what is not known is from before all was forgotten
            os.lseek(file, 0, os.SEEK_END)
            while (begin := self._begun[path]) < len(content):
                if begin:
                    verify()
                self._begun[path] += os.write(file, content[begin : begin + _PIECE])
        self._sizes[path] += self._begun.pop(path)

    def _take_back(self) -> None:
        """What was let out by half, and may not go on as it is."""
        for path in self._begun:
            with self._folder.reporting(path), self._folder.file(path) as file:
                os.ftruncate(file, self._sizes[path])
        self._begun = {}

    def _end_of(self, path: str, file: int) -> int:
        """Where a file goes on. If it is not as long as it was left, somebody else has been there, which is said: what
        was added stays, and what is left of a line that was cut goes, so that the next one stands alone."""
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

    def _look(self) -> None:
        """A folder that was removed begins anew."""
        if self._folder.was_replaced():
            self.begin_anew()

    def begin_anew(self) -> None:
        """In a folder of which nothing is known."""
        self._sizes = {}

    def _warn(self, path: str, what: str) -> None:
        self._folder.warnings.append(f"the file of results `{path}` in `{self._folder.path}` {what}")


def taken(said: list[str]) -> list[str]:
    """All that is there, which is then there no more, whoever adds to it meanwhile."""
    return [said.pop(0) for _ in range(len(said))]


def _last_line(file: int, size: int) -> int:
    """Where the last line that is whole ends."""
    while size:
        begin = max(0, size - _PIECE)
        found = os.pread(file, size - begin, begin).rfind(b"\n")
        if found >= 0:
            return begin + found + 1
        size = begin
    return 0


class Addresses(Protocol):
    def of(self, subscriber: str, query: str) -> Address: ...

    def of_refused(self, stream: str) -> tuple[str, ...]: ...


_PIECE = 1 << 20
_LONGEST = 200
"""Of the name of a file, in bytes; file systems have 255."""


def file_path(path: tuple[str, ...]) -> str:
    """No part leaves its folder, or hides, or is too long for a name."""
    return "/".join(map(_part, path))


def file_name(path: tuple[str, ...]) -> str:
    return f"{file_path(path)}.jsonl"


def _part(part: str) -> str:
    found = quote(part, safe=" @~=").replace(".", "%2E", part.startswith("."))
    if len(found) <= _LONGEST:
        return found
    return f"{found[: _LONGEST - 66]}%%{hashlib.sha256(part.encode()).hexdigest()}"


def shown_kinds(kinds: Sequence[Label], named: frozenset[str] | None) -> list[str]:
    """Labels as a reader sees them: with the names that sources have for people, and without those that it may not
    view."""
    return [str(replace(x, sources=_shown(x.sources, named), aggregated=frozenset())) for x in kinds]


def _shown(sources: frozenset[str], named: frozenset[str] | None) -> frozenset[str]:
    return frozenset(map(source_shown, sources if named is None else sources & named))


def lines_of(result_batch: ResultBatch, address: Address) -> list[str]:
    """Each result as one JSON object, or what is said instead."""
    if result_batch.word:
        return [json_line(result_batch.word)]
    kinds, columns = shown_kinds(result_batch.kinds, address.named), address.columns
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
    """Each row with its reason, as closely as that is known; then how many more there were."""
    details = part.details or [""] * len(part.rows)
    reasons = [f"{part.reason}: {detail}" if detail else part.reason for detail in details]
    lines: list[dict[str, object]] = [{"reason": x, "values": row} for x, row in zip(reasons, part.rows, strict=True)]
    if part.more:
        lines.append({"reason": part.reason, "more": part.more})
    return [json_line(line) for line in lines]


def plain_rejected(part: RejectedRows) -> list[Any]:
    return [part.stream, part.reason, list(part.rows), part.more, list(part.details)]


def rejected_of(plain: list[Any]) -> RejectedRows:
    return RejectedRows(*plain)
