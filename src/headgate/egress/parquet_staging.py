"""Staging of one reader's results as Parquet files: the same functions beside the driver and in tasks.

Files are cut by the reader's own results (`parquet_files`): whoever stages them is told how many the reader has, and
continues the file that is not full yet. Every attempt has names of its own; those that the driver notes count.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from headgate.columns.sorting import Ints
from headgate.egress import parquet_files as files
from headgate.egress.folder import ResultFolder
from headgate.egress.gathered import Gathering
from headgate.egress.sinks import Address

STAGED = ".staged"
"""The folder, beside those of readers, for files that are not published."""


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
    name: what the names of their files begin with; one more file of this name holds the exact labels
    """

    parts: Sequence[StagedFile]
    rows: int
    lost: tuple[str, str] | None = None
    name: str = ""


def labels_file(name: str) -> str:
    return f"{name}.labels"


def stage_files(
    folder: ResultFolder, place: str, before: int, table: pa.Table, name: str, places: Ints, waiting: int
) -> StagedFiles:
    """Write the files that hold these rows, after the `before` published ones; `places` are their positions among the
    computed results."""
    with folder.reporting(place):
        last, start, lost = _last_file(folder, place, before, table)
    parts = []
    for number, (begin, end) in enumerate(files.file_ranges(start, len(places))):
        part = StagedFile(f"{name}-{number}.parquet", start + begin, end - begin, int(places[end - 1]) + 1)
        rows = table.slice(begin, end - begin)
        files.write(rows if number or last is None else files.joined([last, rows]), part.name, waiting)
        parts.append(part)
    return StagedFiles(parts, start, lost)


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
    """The work of a task: to stage what one reader gets of results that tasks have written.

    before: how many rows the reader has
    name: what the names of staged files begin with
    """

    gathering: Gathering
    folder: Path
    place: str
    address: Address
    before: int
    name: str


def stage_there(work: Staging) -> StagedFiles:
    """In a task: read the results, put them in order, write the reader's files."""
    results, folder = work.gathering.results(), ResultFolder(work.folder)
    name = f"{work.name}-{secrets.token_hex(4)}"
    with folder.reporting(STAGED), folder.inside(STAGED) as here:
        files.write_labels(results, labels_file(name), here)
        table = files.table_of(results, work.address)
        found = stage_files(folder, work.place, work.before, table, name, np.arange(len(results)), here)
    return replace(found, name=name)
