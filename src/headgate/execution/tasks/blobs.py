"""Tables as bytes, on their way between tasks.

What a split has for a partition takes as few bytes as possible: Spark copies them several times, and to disk.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from headgate.operators.program import ARRIVAL, LABEL, STREAM, TIME, VISIBILITY

_SINCE = b"since"


def packed_table(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def unpacked_table(blob: bytes) -> pa.Table:
    return pa.ipc.open_stream(pa.BufferReader(blob)).read_all()


def packed_part(table: pa.Table) -> bytes:
    """Tuples of one stream, without its number; numbers have the narrowest type that holds them, and times count from
    the first one. INVARIANT: there is at least one tuple."""
    since = int(table.column(TIME).to_numpy().min())
    columns = {name: table.column(name) for name in table.column_names if name != STREAM}
    for name, first in ((TIME, since), (ARRIVAL, 0), (LABEL, 0), (VISIBILITY, 0)):
        numbers = columns[name].to_numpy() - first
        columns[name] = pa.array(numbers.astype(np.min_scalar_type(int(numbers.max()))))
    return packed_table(pa.table(columns).replace_schema_metadata({_SINCE: str(since)}))


def unpacked_part(blob: bytes, schema: pa.Schema, stream: int, arrived: int) -> pa.Table:
    """Tuples of the stream with this number, in the schema of partitions; `arrived` is the arrival number of the first
    tuple of their split. Columns of other streams are NULL."""
    packed = unpacked_table(blob)
    size, first = (
        packed.num_rows,
        {TIME: int(packed.schema.metadata[_SINCE]), ARRIVAL: arrived, LABEL: 0, VISIBILITY: 0},
    )
    columns = []
    for field in schema:
        if field.name in first:
            numbers = packed.column(field.name).to_numpy().astype(np.int64) + first[field.name]
            columns.append(pa.array(numbers, field.type))
        elif field.name == STREAM:
            columns.append(pa.array(np.full(size, stream, np.int16), field.type))
        elif field.name in packed.column_names:
            columns.append(packed.column(field.name))
        else:
            columns.append(pa.nulls(size, field.type))
    return pa.Table.from_arrays(columns, schema=schema)
