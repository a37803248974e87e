"""The files of a micro-batch, read anew with those columns and rows only that are wanted.

Spark hands a micro-batch over as rows that are made already, with all columns of all tuples; nothing can be pushed into
that. Where the batch is a number of files in columns, large enough to be worth a second plan, these files are read by a
plan of their own. Which files they are is told by Spark's plan of the batch. That is not part of its public interface:
whatever is not as expected there only means that the batch is read as it was handed over.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from concurrent.futures import Future

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from headgate.engine.compact import BLOCK, FIRST, MODIFIED, Reading
from headgate.engine.sources import StreamSource, read_files

COLUMNAR = frozenset({"parquet", "orc"})
"""In others, whether a row has the stream's form depends on columns that nobody else asks for."""

WORTH_IT = 1 << 18  # bytes
MOST_FILES = 32  # more are listed by a job of Spark's
_PLAIN = re.compile(r"[\w./:=,@+-]+", re.ASCII)
_WAIT = 60.0
_PART = 16
"""Spark splits files into parts of at least so many bytes, as a power of two."""

_PARTS = 21
"""So many parts of a file can be told apart, as a power of two."""


def reread(frame: DataFrame, source: StreamSource, started: Future[StreamingQuery]) -> Reading | None:
    """The batch that is at work in this query right now, as a frame that is planned as a whole."""
    if source.format not in COLUMNAR:
        return None
    try:
        leaves = started.result(_WAIT)._jsq.streamingQuery().lastExecution().analyzed().collectLeaves()
        location = leaves.head().relation().location()
        if leaves.size() != 1 or location.sizeInBytes() < WORTH_IT:
            return None
        paths = [str(path) for path in location.inputFiles()]
        if len(paths) > MOST_FILES or not all(map(_PLAIN.fullmatch, paths)):  # Spark would take others for patterns
            return None
        found = location.allFiles()
        files = [found.apply(number) for number in range(len(paths))]
        modified = [int(file.getModificationTime()) for file in files]
        longest = max(int(file.getLen()) for file in files)
    except Exception:
        return None
    again = read_files(frame.sparkSession, source, paths)
    here = [path.removeprefix("file://") for path in paths]
    if source.format != "parquet" or not all(path.startswith("/") for path in here):
        return Reading(again, source.entrance, place_of(modified, longest))
    return Reading(again, source.entrance, place_of(modified, longest), tuples_in(here), labels_in(source, here[0]))


def tuples_in(files: Sequence[str]) -> int:
    """As they say of themselves."""
    return sum(int(pq.read_metadata(file).num_rows) for file in files)


def labels_in(source: StreamSource, file: str) -> list[tuple[str | None, ...]] | None:
    """The labels of the first tuples, as texts; None where they are not in the file as such."""
    names, opened = list(source.entrance.labels.values()), pq.ParquetFile(file)
    if not names or not all(name in opened.schema_arrow.names for name in names):
        return None
    some = next(opened.iter_batches(FIRST, columns=names), None)
    if some is None or not all(pa.types.is_string(column.type) for column in some.columns):
        return None
    kinds = pa.table(some).group_by(names).aggregate([]).select(names)
    return list(zip(*(column.to_pylist() for column in kinds.columns), strict=True))


def place_of(modified: Sequence[int], longest: int) -> str | None:
    """For files of these times, in milliseconds, none longer than so many bytes: one number instead of three columns.
    Where two files are of the same time, their names decide. It has nothing in it that differs from batch to batch:
    Spark would compile every batch anew."""
    if len(set(modified)) < len(modified) or longest >> (_PART + _PARTS) or min(modified) < 0:
        return None
    return f"shiftleft(unix_millis({MODIFIED}), {_PARTS}) + shiftright({BLOCK}, {_PART})"
