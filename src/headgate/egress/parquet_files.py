"""Parquet files of results: how they are written, read, numbered and cut.

A file holds a fixed number of rows. The last file of a reader and stream grows until it has so many: it is written anew
with the rows that come and replaces the one before. So the files, byte by byte, depend on nothing but the reader's own
results. If each batch had a file, hidden tuples, which move the ends of batches, would show in the files.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from headgate.columns.sorting import Ints
from headgate.egress.folder import known_file, new_file
from headgate.egress.sinks import Address, shown_kinds
from headgate.labels import Label
from headgate.labels.plain import labels_of, plain_labels
from headgate.loops.arrow import is_text
from headgate.loops.dictionary import by_occurrence
from headgate.model.results import ResultBatch

ROWS = 16_384
"""How many rows a file has. More would make each batch write more again; fewer would make more files."""
_MAGIC = b"PAR1"
_TIME, _LABEL, _BLOCK = "headgate_time", "headgate_label", "headgate_block"
_REPEATED = [_LABEL, _BLOCK]


def table_of(result_batch: ResultBatch, address: Address) -> pa.Table:
    """The rows as the reader at this address sees them."""
    shown = shown_kinds(result_batch.kinds, address.named)
    texts = {text: number for number, text in enumerate(dict.fromkeys(shown))}  # several may look the same
    numbers = np.array([texts[text] for text in shown], np.int32)[result_batch.labels]
    labels = pa.DictionaryArray.from_arrays(pa.array(numbers), pa.array(list(texts), pa.string()))
    times = pa.array(result_batch.times, pa.timestamp("ms", "UTC"))
    own = {_TIME: times, _LABEL: labels, _BLOCK: pa.array(result_batch.blocks.astype(np.int8))}
    return pa.table([*own.values(), *result_batch.values], names=[*own, *address.columns[: len(result_batch.values)]])


def result_batch_of(table: pa.Table, labels: pa.Table, subscriber: str, query: str) -> ResultBatch:
    """The results in staged rows, with their exact labels."""
    return ResultBatch(
        (subscriber,),
        query,
        table.column(2).to_numpy().astype(np.int64),
        table.column(0).cast(pa.timestamp("ms")).cast(pa.int64()).to_numpy(),
        tuple(column.combine_chunks() for column in table.columns[3:]),
        labels.column(0).to_numpy().astype(np.int64),
        tuple(labels_of(json.loads(labels.schema.metadata[b"kinds"]))),
    )


# Files ----------------------------------------------------------------------------------------------------------------


def write(table: pa.Table, name: str, folder: int) -> None:
    """Writes rows to a file."""
    begin(table, name, folder)()


def begin(table: pa.Table, name: str, folder: int) -> Callable[[], None]:
    """Writes rows to a file, whose bytes follow from the rows alone: of the labels, only those that occur are in it, in
    the order in which they do. The file has its name once it is on disk: the returned function waits for that."""
    rows = table.set_column(table.column_names.index(_LABEL), _LABEL, _in_order(table.column(_LABEL)))
    # These files are read whole, so dictionaries and statistics cost more than they save. Whole numbers are written as
    # their differences, which are small already; only texts are worth compressing.
    whole = [x.name for x in rows.schema if _is_whole(x.type) and x.name not in _REPEATED]
    options = {
        "compression": {x.name: "snappy" if is_text(x.type) else "none" for x in rows.schema},
        "use_dictionary": _REPEATED,
        "column_encoding": dict.fromkeys(whole, "DELTA_BINARY_PACKED"),
        "write_statistics": False,
    }
    file = open(new_file(f"{name}.new", folder), "wb")  # noqa: SIM115
    try:
        pq.write_table(rows, file, row_group_size=ROWS, **options)
        file.flush()
    except BaseException:
        file.close()
        raise

    def finish() -> None:
        with file:
            os.fsync(file.fileno())
        os.rename(f"{name}.new", name, src_dir_fd=folder, dst_dir_fd=folder)

    return finish


def _is_whole(type_: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(type_) or (pa.types.is_integer(type_) and type_.bit_width >= 32))


def _in_order(labels: pa.ChunkedArray) -> pa.DictionaryArray:
    """The labels with a dictionary of those that occur, in the order in which they do."""
    whole = labels.combine_chunks()
    numbers, texts = whole.indices.to_numpy(), whole.dictionary
    found, (places, order) = np.empty(len(numbers), np.int32), np.full((2, len(texts)), -1, np.int32)
    count = by_occurrence(numbers, found, places, order)
    return pa.DictionaryArray.from_arrays(pa.array(found), texts.take(pa.array(order[:count])))


def read(name: str, folder: int) -> pa.Table:
    with open(known_file(name, folder), "rb") as file:
        return pq.ParquetFile(file).read()


def write_labels(labels: Ints, kinds: Sequence[Label], name: str, folder: int) -> None:
    """Writes the exact labels of staged results. Labels in delivered files are for people."""
    known = {b"kinds": json.dumps(plain_labels(kinds)).encode()}
    exact = pa.table({"label": pa.array(labels.astype(np.int32))}).replace_schema_metadata(known)
    with open(new_file(name, folder), "wb") as file:
        with pa.ipc.new_file(file, exact.schema) as writer:
            writer.write_table(exact)
        file.flush()
        os.fsync(file.fileno())


def read_labels(name: str, folder: int) -> pa.Table:
    with open(known_file(name, folder), "rb") as file:
        return pa.ipc.open_file(pa.BufferReader(file.read())).read_all()


# Numbers --------------------------------------------------------------------------------------------------------------


def file_of(row: int) -> str:
    """The file that holds a row, counted from 0."""
    return f"{row // ROWS + 1:09}.parquet"


def file_ranges(before: int, rows: int) -> list[tuple[int, int]]:
    """Where rows that come after so many are cut into files: the first and the one after the last, of each file."""
    ends = [*range(ROWS - before % ROWS, rows, ROWS), rows] if rows else []
    return list(zip([0, *ends], ends, strict=False))


def numbered(folder: int) -> list[str]:
    parts = ((name, *name.partition(".")) for name in sorted(os.listdir(folder)))
    return [name for name, stem, _, kind in parts if kind == "parquet" and stem.isdigit()]


def remove_after(rows: int, folder: int) -> list[str]:
    """Removes the files that hold only rows after so many, and returns their names."""
    last = -(-rows // ROWS)
    later = [name for name in numbered(folder) if int(name.partition(".")[0]) > last]
    for name in later:
        os.unlink(name, dir_fd=folder)
    return later


def shorten(rows: int, folder: int) -> None:
    """Removes from the last file the rows after so many. A file that cannot be read stays as it is."""
    name = file_of(rows)
    if rows % ROWS == 0 or name not in numbered(folder):
        return
    try:
        found = read(name, folder)
    except pa.ArrowInvalid:
        return
    if found.num_rows > rows % ROWS:
        write(found.slice(0, rows % ROWS), name, folder)


def damaged(folder: int) -> list[str]:
    """The files that do not begin and end with Parquet's magic bytes."""
    found = []
    for name in numbered(folder):
        with open(known_file(name, folder), "rb") as file:
            size = os.fstat(file.fileno()).st_size
            if size < 2 * len(_MAGIC) or {os.pread(file.fileno(), 4, at) for at in (0, size - 4)} != {_MAGIC}:
                found.append(name)
    return found


def same_form(one: pa.Schema, other: pa.Schema) -> bool:
    """Whether rows of both can be in one file."""
    return one.names == other.names and list(one.types) == list(other.types)


def joined(tables: Sequence[pa.Table]) -> pa.Table:
    """Rows of several tables in one; their labels come from dictionaries of their own."""
    return pa.concat_tables(x.replace_schema_metadata(None) for x in tables).unify_dictionaries()
