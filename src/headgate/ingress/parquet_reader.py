"""Reads the Parquet files of a micro-batch with Arrow instead of Spark.

Spark decides which files form a batch and records that; it would return them as rows with all columns, which it builds
one by one and converts to columns again. Where every file is Parquet with the stream's columns and types, Arrow reads
the pushed-down columns from the files themselves, in a tenth of the time. The list of files comes from Spark's plan of
the batch, which is not a public interface: if anything there or in a file is not as expected, the batch is read by
Spark.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql.streaming.query import StreamingQuery

from headgate.columns.sorting import Ints, dense, repeated, same
from headgate.cql.source_options import LISTING
from headgate.errors import SourceError
from headgate.expressions.sql.types import ARROW
from headgate.ingress.pushdown import Pushdown, RegisterLabels
from headgate.ingress.sources import StreamSource
from headgate.ingress.spark_reader import DecodedBatch
from headgate.ingress.text_files import gone, unreadable
from headgate.ingress.validation import RawBatch, as_texts, fitting
from headgate.model.rejected import RejectedRows
from headgate.model.stream import StreamDescriptor
from headgate.model.tuples import TupleBatch
from headgate.plan.expressions import Type

_WAIT = 60.0
MOST = 500
"""Files that may be open at a time; a batch of more files is read by Spark."""

_LEGACY = b"org.apache.spark.legacyDateTime"


@dataclass(frozen=True)
class Files:
    """Local Parquet files in order of arrival; each has the stream's columns with their types. `notes` are messages for
    the owner of the stream. `groups` are the row groups to read of each; None: all."""

    descriptor: StreamDescriptor
    opened: Sequence[pq.ParquetFile]
    paths: Sequence[str] = ()
    notes: Sequence[str] = ()
    groups: Sequence[Sequence[int]] | None = None

    def read(self, names: Iterable[str]) -> pa.Table:
        columns = list(dict.fromkeys(names))
        found = [self._read(number, columns) for number in range(len(self.opened))]
        schema = pa.schema([(name, ARROW[dict(self.descriptor.columns)[name]]) for name in columns])
        table = pa.concat_tables(found or [schema.empty_table()], promote_options="permissive")
        table.validate()  # the number of values in each column is a claim of the writer of the file
        for number, field in enumerate(table.schema):
            if _is(field.type, ARROW[Type.STRING]):
                table = table.set_column(number, field.name, as_texts(table.column(number)))
        return table

    def _read(self, number: int, columns: list[str]) -> pa.Table:
        try:
            if self.groups is not None:
                return self.opened[number].read_row_groups(self.groups[number], columns)
            return self.opened[number].read(columns)
        except (OSError, pa.ArrowException) as error:
            raise unreadable(self.descriptor, self.paths[number], f"it is damaged ({type(error).__name__})") from None

    def label_texts(self) -> list[tuple[str | None, ...]]:
        """The different texts that the labels of these tuples are read from."""
        names = list(self.descriptor.labels.values())
        table = self.read(names) if names else None
        return [] if table is None else kinds_of([table.column(name) for name in names])[0]

    def all_rows(self) -> RawBatch:
        table = self.read(name for name, _ in self.descriptor.columns)
        schema = pa.schema([(name, ARROW[type_]) for name, type_ in self.descriptor.columns])
        return RawBatch(table.cast(schema), notes=self.notes)

    def decoded(self, pushdown: Pushdown, now: int, register: RegisterLabels) -> DecodedBatch | None:
        """Decodes a batch in which every tuple is valid; None: each row must be validated, or files are missing."""
        if self.notes:
            return None
        descriptor = self.descriptor
        texts = [name for name, type_ in descriptor.columns if type_ in (Type.STRING, Type.BINARY)]
        unsure = [name for name in texts if self._largest(name) > pushdown.longest]
        own = [descriptor.event_time] if descriptor.event_time else []
        names = [*pushdown.columns, *own, *descriptor.labels.values(), *unsure]
        table = self.read(names or [descriptor.columns[0][0]])  # one column at least, to count the tuples
        return decoded_rows(table, descriptor, pushdown, now, register)

    def _largest(self, name: str) -> int:
        """An upper bound of the size of a value in this column, in bytes: the size of the largest column chunk. This is
        a claim of the writer of the file; it is trusted only for columns that no query reads."""
        sizes = [0]
        for file in self.opened:
            at = file.schema_arrow.names.index(name)
            metadata = file.metadata
            sizes += [metadata.row_group(x).column(at).total_uncompressed_size for x in range(metadata.num_row_groups)]
        return max(sizes)


def decoded_rows(
    table: pa.Table,
    descriptor: StreamDescriptor,
    pushdown: Pushdown,
    now: int,
    register: RegisterLabels,
    rejected: Sequence[RejectedRows] = (),
) -> DecodedBatch | None:
    """Decodes rows, if all of them are valid; None: each must be validated. Label columns are dictionaries. `rejected`
    are rows of the batch that are no tuples."""
    types = dict(descriptor.columns)
    texts = [name for name in table.column_names if types[name] in (Type.STRING, Type.BINARY)]
    times, tuples = _times(table, descriptor, now), table.num_rows
    if times is None or any(_longest(table.column(name)) > pushdown.longest for name in texts):
        return None
    found = _labels(table, descriptor, pushdown, register)
    if found is None:
        return None
    labels, pushdown = found
    kept = _kept(labels, pushdown)
    if kept is not None:
        table, times, labels = table.filter(pa.array(kept)), times[kept], labels[kept]
    arrays = {name: fitting(table.column(name), ARROW[types[name]]) for name in pushdown.columns}
    arrivals = TupleBatch(descriptor.name, times, labels, arrays)
    return DecodedBatch(arrivals, tuples, pushdown, tuples - len(times), rejected)


def files_of(source: StreamSource, started: Future[StreamingQuery]) -> Files | None:
    """The files of the current batch of a Spark streaming query; None: Spark must read them."""
    if source.format != "parquet" or not LISTING.issuperset(map(str.lower, source.options)):
        return None
    try:
        found = addresses(started)
        return None if found is None else opened(source.descriptor, found)
    except SourceError:
        raise
    except Exception:
        return None


def addresses(started: Future[StreamingQuery]) -> list[str] | None:
    """The addresses of the files in the current batch of a Spark streaming query; None if they cannot be found."""
    leaves = started.result(_WAIT)._jsq.streamingQuery().lastExecution().analyzed().collectLeaves()
    return list(map(str, leaves.head().relation().location().inputFiles())) if leaves.size() == 1 else None


def local_paths(found: Sequence[str]) -> list[tuple[str, str]] | None:
    """Pairs of local path and address, from addresses as Spark writes them; None if a file is not local."""
    parts = [urlsplit(address) for address in found]
    if any(x.scheme != "file" or x.netloc for x in parts):
        return None
    return [(unquote(x.path), address) for x, address in zip(parts, found, strict=True)]


def opened(descriptor: StreamDescriptor, addresses: Sequence[str]) -> Files | None:
    """Opens files by their addresses, as Spark writes them; None: Spark must read them. A file that is gone gets a
    note."""
    here = local_paths(addresses)
    if here is None or len(here) > MOST or any("=" in path for path, _ in here):  # folders may be columns
        return None
    return opened_paths(descriptor, *in_order_of_time(here))


def opened_paths(descriptor: StreamDescriptor, found: Sequence[str], notes: Sequence[str] = ()) -> Files | None:
    """Opens files by their paths; None: Spark must read them."""
    if not all(stat.S_ISREG(os.stat(path).st_mode) for path in found):  # opening a pipe would wait for its writer
        return None
    labels = list(descriptor.labels.values())
    files = [_opened(descriptor, path, labels) for path in found]
    return Files(descriptor, files, found, notes) if all(_fits(file, descriptor) for file in files) else None


def in_order_of_time(here: Sequence[tuple[str, str]]) -> tuple[list[str], list[str]]:
    """Paths in order of modification time, then address; and a note for each file that is gone."""
    times, notes = dict[tuple[str, str], int](), list[str]()
    for file in here:
        try:
            times[file] = os.stat(file[0]).st_mtime_ns // 1_000_000
        except FileNotFoundError:
            notes.append(gone(file[0]))
    return [path for path, _ in sorted(times, key=lambda x: (times[x], x[1]))], notes


def _opened(descriptor: StreamDescriptor, path: str, labels: list[str]) -> pq.ParquetFile:
    try:
        return pq.ParquetFile(path, read_dictionary=labels)
    except (OSError, pa.ArrowException):
        raise unreadable(descriptor, path, "it is not Parquet") from None


def _fits(file: pq.ParquetFile, descriptor: StreamDescriptor) -> bool:
    """Whether Spark would read each column of the stream with the type that it has in the file."""
    if _LEGACY in (file.metadata.metadata or {}) or len(file.schema.names) != len(file.schema_arrow.names):
        return False
    names = [name.casefold() for name in file.schema_arrow.names]
    return all(
        name in file.schema_arrow.names
        and names.count(name.casefold()) == 1
        and _is(file.schema_arrow.field(name).type, ARROW[type_])
        for name, type_ in descriptor.columns
    )


def _is(found: pa.DataType, type_: pa.DataType) -> bool:
    if pa.types.is_string(type_):
        found = found.value_type if pa.types.is_dictionary(found) else found
        return bool(pa.types.is_string(found) or pa.types.is_large_string(found))
    if pa.types.is_binary(type_):
        return bool(pa.types.is_binary(found) or pa.types.is_large_binary(found))
    if pa.types.is_timestamp(type_):
        return pa.types.is_timestamp(found) and found.tz is not None and found.unit in ("ms", "us")
    return bool(found == type_)


def _times(table: pa.Table, descriptor: StreamDescriptor, now: int) -> Ints | None:
    """Event times in milliseconds; None if any tuple has no event time that ingress accepts."""
    if descriptor.event_time is None:
        return np.full(table.num_rows, now)
    column = fitting(table.column(descriptor.event_time), ARROW[Type.TIMESTAMP])
    if column.null_count:
        return None
    times: Ints = column.cast(pa.int64()).to_numpy() // 1000
    if descriptor.skew is not None and times.max(initial=now) > now + descriptor.skew:
        return None
    return times


def _labels(
    table: pa.Table, descriptor: StreamDescriptor, pushdown: Pushdown, register: RegisterLabels
) -> tuple[Ints, Pushdown] | None:
    """The label number of each tuple, and the pushdown after new labels are registered; None: a label is unreadable or
    cannot be registered."""
    if not descriptor.labels:
        return (repeated(pushdown.labels[()], table.num_rows), pushdown) if () in pushdown.labels else None
    names = list(descriptor.labels.values())
    kinds, kind = kinds_of([table.column(name) for name in names])
    if any(texts not in pushdown.labels for texts in kinds):
        again = register(kinds)
        if again is None or any(texts not in again.labels for texts in kinds):
            return None
        pushdown = again
    numbers = np.array([pushdown.labels[texts] for texts in kinds], np.int64)
    if len(kinds) == 1:
        return repeated(int(numbers[0]), len(kind)), pushdown
    return numbers[kind] if len(kinds) else np.empty(0, np.int64), pushdown


def kinds_of(columns: Sequence[pa.ChunkedArray]) -> tuple[list[tuple[str | None, ...]], Ints]:
    """The distinct rows of these text columns, and for each row the number of its distinct row."""
    kinds: list[tuple[str | None, ...]] = [()]
    kind: Ints = repeated(0, len(columns[0]))
    for column in columns:
        whole = column.unify_dictionaries().combine_chunks()
        texts = [*whole.dictionary.to_pylist(), None]
        own = whole.indices.fill_null(len(texts) - 1).to_numpy()
        if len(kinds) == 1 and len(own) and same(own):
            kinds = [(*kinds[0], texts[own[0]])]
            continue
        both = own.astype(np.int64) if len(kinds) == 1 else kind * len(texts) + own
        there, kind = dense(both)  # only the combinations that occur: there may be many texts
        kinds = [(*kinds[x // len(texts)], texts[x % len(texts)]) for x in there.tolist()]
    return kinds, kind


def _kept(labels: Ints, pushdown: Pushdown) -> np.ndarray[tuple[int], np.dtype[np.bool_]] | None:
    """Which tuples any view sees; None: all."""
    if pushdown.keep is None or not len(labels):
        return None
    seen = np.zeros(int(labels.max()) + 1, np.bool_)
    numbers = np.array(sorted({x for some, _ in pushdown.keep for x in some}), np.int64)
    seen[numbers[numbers < len(seen)]] = True
    kept = seen[labels]
    return None if kept.all() else kept


def _longest(column: pa.ChunkedArray) -> int:
    values = [chunk.dictionary if pa.types.is_dictionary(chunk.type) else chunk for chunk in column.chunks]
    return max((pc.max(pc.binary_length(x)).as_py() or 0 for x in values), default=0)
