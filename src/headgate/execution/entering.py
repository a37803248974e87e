"""Tuples on their way into a program: in the schema of its partitions."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa

from headgate.columns.sorting import Ints
from headgate.model.tuples import TupleBatch
from headgate.operators.program import ARRIVAL, LABEL, STREAM, TIME, VISIBILITY, Program


def entering_table(
    program: Program,
    schema: pa.Schema,
    arrivals: TupleBatch,
    arrived: Ints,
    visibilities: Ints,
    rows: Ints | None = None,
    spelt_out: Callable[[Ints], Ints] = lambda labels: labels,
) -> pa.Table:
    """Tuples in the schema of partitions, with their arrival numbers and visibility rows: all of them, or only `rows`.
    `spelt_out` turns labels that are one repeated number into an array."""
    known = {
        TIME: arrivals.times,
        ARRIVAL: arrived,
        LABEL: spelt_out(arrivals.labels),
        VISIBILITY: visibilities,
    }
    size = len(visibilities) if rows is None else len(rows)
    columns = {
        field: arrivals.columns[name] for (stream, name), field in program.columns.items() if stream == arrivals.stream
    }
    if rows is not None:
        known = {name: numbers[rows] for name, numbers in known.items()}
        columns = {field: column.take(pa.array(rows)) for field, column in columns.items()}
    known[STREAM] = np.full(size, program.streams.index(arrivals.stream), np.int16)
    return pa.Table.from_arrays(
        [
            pa.array(known[field.name], field.type)
            if field.name in known
            else columns[field.name].cast(field.type)
            if field.name in columns
            else pa.nulls(size, field.type)
            for field in schema
        ],
        schema=schema,
    )
