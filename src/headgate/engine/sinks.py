"""Where results go. What a crash interrupts is written again, and nothing twice: a sink's own state, from before a
batch, is kept with the batch."""

from __future__ import annotations

import datetime as dt
import hashlib
import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import quote

from headgate.engine.demand import Demand
from headgate.engine.egress import Parcel
from headgate.engine.ingress import Refused, plain_value
from headgate.engine.outfolder import OutFolder
from headgate.plain import json_line


class Sink(Protocol):
    """`name` is what its state is kept by: no two places where results go to have the same. `keeps`: what is staged is
    kept by the sink itself, and need not be kept with the batch."""

    name: str
    keeps: bool

    def state(self, results: Sequence[Parcel] = (), refused: Sequence[Refused] = ()) -> Any:
        """What it needs to know to write these results, and only those, as plain JSON; None if it keeps nothing when
        the process ends. Then the results of the last batch do not come again either: whether some would come
        depends on whose batch was the last."""
        ...

    def restore(self, state: Any) -> None:
        """Back to where it was then; of the results it was to write nothing is left."""
        ...

    def stage(self, version: int, results: Sequence[Parcel], refused: Sequence[Refused] = ()) -> None:
        """What will go out as soon as the batch counts; nobody sees it yet."""
        ...

    def staged(self, version: int) -> list[Parcel]:
        """After a restart: what was staged for a batch that counts; nothing if the sink keeps nothing."""
        ...

    def write(self, results: Sequence[Parcel], refused: Sequence[Refused], *, as_staged: bool) -> None:
        """Lets out what was staged: all of it, or only these results."""
        ...

    def keep(self, now: Demand) -> None:
        """Of those who have left, and whose results are all out, nothing need be held any more."""
        ...


@dataclass(frozen=True)
class Address:
    """Where the results of a query go for a subscriber: a file's place below the folder, the names of the columns, and
    of which stream and session they are."""

    path: tuple[str, ...]
    columns: tuple[str, ...]
    stream: str = ""
    session: str = ""


class FileSink:
    """JSON lines, one file for each subscriber and query, longer with every batch that has something for it: neither
    names nor sizes tell of anything but its own lines."""

    keeps = False

    def __init__(self, folder: Path, addresses: Addresses) -> None:
        self._folder = OutFolder(folder)
        self.name = f"files {self._folder.mark()}"
        self._addresses = addresses
        self._sizes: dict[str, int] = {}

    def state(self, results: Sequence[Parcel] = (), refused: Sequence[Refused] = ()) -> dict[str, int]:
        coming = (self._path(name, parcel.query) for parcel in results for name in parcel.subscribers)
        beginning = dict.fromkeys((*coming, *(self._path_of_refused(part) for part in refused)), 0)
        return beginning | self._sizes

    def restore(self, state: Mapping[str, int] | None) -> None:
        """Rights may have changed since, so what a crash left of results may never come again: it goes now."""
        self._sizes = dict(state or {})
        for path, size in self._sizes.items():
            with self._folder.said(path), suppress(FileNotFoundError), self._folder.file(path, make=False) as file:
                if os.fstat(file).st_size > size:
                    os.ftruncate(file, size)

    def stage(self, version: int, results: Sequence[Parcel], refused: Sequence[Refused] = ()) -> None:
        pass

    def staged(self, version: int) -> list[Parcel]:  # noqa: ARG002
        return []

    def write(self, results: Sequence[Parcel], refused: Sequence[Refused], *, as_staged: bool) -> None:  # noqa: ARG002
        lines: dict[str, list[str]] = {}
        for parcel in results:
            columns = self._addresses.of(parcel.subscribers[0], parcel.query).columns
            new = lines_of(parcel, columns)
            for subscriber in parcel.subscribers:
                lines.setdefault(self._path(subscriber, parcel.query), []).extend(new)
        for part in refused:
            lines.setdefault(self._path_of_refused(part), []).extend(refused_lines(part))
        for path, new in lines.items():
            with self._folder.said(path):
                self._append(path, new)

    def keep(self, now: Demand) -> None:
        """How long files are stays known: a session that subscribes again goes on where its file ends."""

    def _path(self, subscriber: str, query: str) -> str:
        return file_name(self._addresses.of(subscriber, query).path)

    def _path_of_refused(self, part: Refused) -> str:
        return file_name(self._addresses.of_refused(part.stream))

    def _append(self, path: str, lines: Iterable[str]) -> None:
        content = "".join(f"{line}\n" for line in lines).encode()
        with self._folder.file(path) as file:
            # what a crash interrupted comes again; what others took away does not
            os.ftruncate(file, min(self._sizes.get(path, 0), os.fstat(file).st_size))
            os.lseek(file, 0, os.SEEK_END)
            with os.fdopen(os.dup(file), "wb") as stream:
                stream.write(content)
            os.fsync(file)
            self._sizes[path] = os.fstat(file).st_size


class Addresses(Protocol):
    def of(self, subscriber: str, query: str) -> Address: ...

    def of_refused(self, stream: str) -> tuple[str, ...]: ...


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


def lines_of(parcel: Parcel, columns: Sequence[str]) -> list[str]:
    """Each result as one JSON object, or what is said instead."""
    if parcel.word:
        return [json_line(parcel.word)]
    kinds = [str(label) for label in parcel.kinds]
    values = zip(*(column.to_pylist() for column in parcel.values), strict=True)
    return [
        json_line(
            {
                "time": dt.datetime.fromtimestamp(time / 1000, dt.UTC).isoformat(),
                "label": kinds[label],
                "values": dict(zip(columns, map(plain_value, row), strict=True)),
            }
        )
        for time, label, row in zip(parcel.times.tolist(), parcel.labels.tolist(), values, strict=True)
    ]


def refused_lines(part: Refused) -> list[str]:
    return [json_line({"reason": part.reason, "values": row}) for row in part.rows]


def plain_refused(part: Refused) -> list[Any]:
    return [part.stream, part.reason, list(part.rows)]


def refused_of(plain: list[Any]) -> Refused:
    return Refused(*plain)
