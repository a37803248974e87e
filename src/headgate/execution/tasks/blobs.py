"""Tables as bytes, on their way between tasks.

What a split has for a partition takes as few bytes as possible: Spark copies them several times, and to disk.
"""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa

from headgate.columns.narrow import narrow_table, widened_table
from headgate.operators.program import ARRIVAL, LABEL, STREAM, VISIBILITY

_ROWS, _STREAM = b"rows", b"stream"
_FEW_LABELS = 1024


def packed_table(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def unpacked_table(blob: bytes) -> pa.Table:
    return pa.ipc.open_stream(pa.BufferReader(blob)).read_all()


def packed_part(table: pa.Table) -> bytes:
    """Tuples of one stream, with its number only once; numbers in narrow types. The visibility row is left out if it
    follows from the label."""
    stream = int(table.column(STREAM)[0].as_py())
    table, known = table.drop_columns([STREAM]), {_STREAM: str(stream).encode()}
    labels, rows = (table.column(name).to_numpy() for name in (LABEL, VISIBILITY))
    least, most = int(labels.min()), int(labels.max())
    if most - least < _FEW_LABELS:
        row_of = np.zeros(most - least + 1, np.int64)
        row_of[labels - least] = rows
        if np.array_equal(row_of[labels - least], rows):
            known[_ROWS] = json.dumps([least, row_of.tolist()]).encode()
            table = table.drop_columns([VISIBILITY])
    return packed_table(narrow_table(table.replace_schema_metadata(known)))


def unpacked_part(blob: bytes, schema: pa.Schema, arrived: int) -> pa.Table:
    """The tuples in the schema of partitions; `arrived` is the arrival number of the first tuple of their split.
    Columns of other streams are NULL."""
    packed = widened_table(unpacked_table(blob))
    size, given = packed.num_rows, {name: packed.column(name) for name in packed.column_names}
    given[ARRIVAL] = pa.array(given[ARRIVAL].to_numpy() + arrived)
    given[STREAM] = pa.array(np.full(size, int(packed.schema.metadata[_STREAM]), np.int16))
    if VISIBILITY not in given:
        least, row_of = json.loads(packed.schema.metadata[_ROWS])
        given[VISIBILITY] = pa.array(np.array(row_of, np.int64)[given[LABEL].to_numpy() - least])
    return pa.Table.from_arrays(
        [given[x.name] if x.name in given else pa.nulls(size, x.type) for x in schema], schema=schema
    )
