"""Tables as bytes, on their way between tasks.

What a split has for a partition takes as few bytes as possible: Spark copies them several times, and to disk.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from headgate.columns.narrow import above, offsets
from headgate.operators.program import ARRIVAL, LABEL, STREAM, TIME, VISIBILITY

_NUMBERS = (TIME, ARRIVAL, LABEL, VISIBILITY)


def packed_table(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def unpacked_table(blob: bytes) -> pa.Table:
    return pa.ipc.open_stream(pa.BufferReader(blob)).read_all()


def packed_part(table: pa.Table) -> bytes:
    """Tuples of one stream, without its number; other numbers are offsets in narrow types."""
    columns, least = {name: table.column(name) for name in table.column_names if name != STREAM}, {}
    for name in _NUMBERS:
        first, distances = offsets(columns[name].to_numpy())
        columns[name], least[name] = pa.array(distances), str(first)
    return packed_table(pa.table(columns).replace_schema_metadata(least))


def unpacked_part(blob: bytes, schema: pa.Schema, stream: int, arrived: int) -> pa.Table:
    """Tuples of the stream with this number, in the schema of partitions; `arrived` is the arrival number of the first
    tuple of their split. Columns of other streams are NULL."""
    packed = unpacked_table(blob)
    size, columns = packed.num_rows, []
    for field in schema:
        if field.name in _NUMBERS:
            least = int(packed.schema.metadata[field.name.encode()]) + (arrived if field.name == ARRIVAL else 0)
            columns.append(pa.array(above(least, packed.column(field.name).to_numpy()), field.type))
        elif field.name == STREAM:
            columns.append(pa.array(np.full(size, stream, np.int16), field.type))
        elif field.name in packed.column_names:
            columns.append(packed.column(field.name))
        else:
            columns.append(pa.nulls(size, field.type))
    return pa.Table.from_arrays(columns, schema=schema)
