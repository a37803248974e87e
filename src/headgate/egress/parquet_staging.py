"""Staging of one reader's results as Parquet files: the same functions beside the driver and in tasks.

Files are cut by the reader's own results (`parquet_files`): whoever stages them is told how many the reader has, and
continues the file that is not full yet. Every attempt has names of its own; those that the driver notes count.
"""

from __future__ import annotations

import secrets
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from headgate.columns.sorting import Ints
from headgate.egress import parquet_files as files
from headgate.egress.folder import ResultFolder
from headgate.egress.gathered import Gathering, joined
from headgate.egress.sinks import Address

STAGED = ".staged"
"""The folder, beside those of readers, for files that are not published."""
WORTH_SHARING = 8 * files.ROWS
"""From twice so many results of one reader on, several tasks stage them."""

_FLUSHED_AT_ONCE, _OPEN_AT_ONCE = 4, 32
"""How many files of a reader are written to disk side by side, and how many may wait for that."""


@dataclass(frozen=True)
class StagedFile:
    """A file that waits to be published.

    name: its name in the staging folder
    start: how many rows of the reader come before those that are new in it
    rows: how many rows are new; the rows before them in the file are there to stay
    until: how many of the computed results are out when it is
    """

    name: str
    start: int
    rows: int
    until: int


@dataclass(frozen=True)
class StagedFiles:
    """Files that are staged for a reader.

    rows: how many rows the reader has before them
    lost: the last file, if it is not as it was written, and what happened to it
    labels: the files that hold the exact labels of all their new rows, in order
    """

    parts: Sequence[StagedFile]
    rows: int
    lost: tuple[str, str] | None = None
    labels: tuple[str, ...] = ()


def labels_file(name: str) -> str:
    return f"{name}.labels"


def stage_files(
    folder: ResultFolder, place: str, before: int, table: pa.Table, name: str, places: Ints, waiting: int
) -> StagedFiles:
    """Write the files that hold these rows, after the `before` published ones; `places` are their positions among the
    computed results."""
    with folder.reporting(place):
        last, start, lost = _last_file(folder, place, before, table)
    return StagedFiles(
        _written(files.file_ranges(start, len(places)), table, last, start, name, places, waiting), start, lost
    )


def _written(
    cuts: Sequence[tuple[int, int]],
    table: pa.Table,
    last: pa.Table | None,
    start: int,
    name: str,
    places: Ints,
    waiting: int,
) -> list[StagedFile]:
    """Write these files; `table` has their rows and no others, `last` those that the first file of all has already.
    While one goes to disk, the next ones are made."""
    parts, waiting_for_disk = list[StagedFile](), deque[Future[None]]()
    with ThreadPoolExecutor(_FLUSHED_AT_ONCE) as threads:
        for number, (begin, end) in enumerate(cuts):
            part = StagedFile(f"{name}-{number}.parquet", start + begin, end - begin, int(places[end - 1]) + 1)
            rows = table.slice(begin - cuts[0][0], end - begin)
            whole = rows if begin or last is None else files.joined([last, rows])
            waiting_for_disk.append(threads.submit(files.begin(whole, part.name, waiting)))
            if len(waiting_for_disk) > _OPEN_AT_ONCE:
                waiting_for_disk.popleft().result()
            parts.append(part)
        for written in waiting_for_disk:
            written.result()
    return parts


def _last_file(
    folder: ResultFolder, place: str, rows: int, table: pa.Table
) -> tuple[pa.Table | None, int, tuple[str, str] | None]:
    """The rows of the file that is not full yet. If it is not as it was written, it stays as it is, and the next
    rows are in another file."""
    if rows % files.ROWS == 0:
        return None, rows, None
    name, found, why = files.file_of(rows), None, "was removed: the next results are in another file"
    with suppress(FileNotFoundError), folder.inside(place, make=False) as here:
        why = "is not what was written: it was cut or changed"
        with suppress(pa.ArrowInvalid):
            found = files.read(name, here)
    whole = found is not None and found.num_rows == rows % files.ROWS
    if found is not None and whole and files.same_form(found.schema, table.schema):
        return found, rows, None
    return None, rows + -rows % files.ROWS, None if whole else (name, why)


@dataclass(frozen=True)
class Staging:
    """The work of a task: to stage what one reader gets of results that tasks have written, or a share of it.

    before: how many rows the reader has
    name: what the names of staged files begin with
    share, shares: which share of the files, and how many shares there are
    """

    gathering: Gathering
    folder: Path
    place: str
    address: Address
    before: int
    name: str
    share: int = 0
    shares: int = 1

    def shared(self, workers: int) -> list[Staging]:
        """So that no task has most of the work: each share puts all results in order and writes its files."""
        shares = max(1, min(workers, int(self.gathering.counts.sum()) // WORTH_SHARING))
        return [replace(self, share=x, shares=shares) for x in range(shares)]


def stage_there(work: Staging) -> StagedFiles:
    """In a task: read the results, put them in order, write the reader's files."""
    gathering, query, kinds = work.gathering, work.gathering.query, work.gathering.kinds
    folder, name = ResultFolder(work.folder), f"{work.name}-{secrets.token_hex(4)}"
    nothing = files.table_of(joined(query, *gathering.rows_between(0, 0), kinds), work.address)
    with folder.reporting(work.place):
        last, start, lost = _last_file(folder, work.place, work.before, nothing)
    cuts = files.file_ranges(start, int(gathering.counts.sum()))
    cuts = cuts[work.share * len(cuts) // work.shares : (work.share + 1) * len(cuts) // work.shares]
    if not cuts:
        return StagedFiles([], start, lost)
    first, end = cuts[0][0], cuts[-1][1]
    own = joined(query, *gathering.rows_between(first, end), kinds)
    with folder.reporting(STAGED), folder.inside(STAGED) as here:
        files.write_labels(own.labels, kinds, labels_file(name), here)
        table = files.table_of(own, work.address)
        written = _written(cuts, table, last, start, name, np.arange(end), here)
    return StagedFiles(written, start, lost, (labels_file(name),))


def together(shares: Sequence[StagedFiles]) -> StagedFiles:
    """What all shares of a reader's results have staged."""
    return replace(
        shares[0],
        parts=[part for share in shares for part in share.parts],
        labels=tuple(file for share in shares for file in share.labels),
    )
