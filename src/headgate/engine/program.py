"""From running queries to what cells compute: their blocks, and the table that holds the tuples of their streams."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from headgate.engine.kernels.given import ARRIVAL, LABEL, SIGHT, STREAM, TIME, Block, Program
from headgate.engine.views import Running
from headgate.plan import nodes as n
from headgate.plan.binding import LEVEL
from headgate.plan.expressions import Type
from headgate.plan.lowering import lower

ARROW: dict[Type, pa.DataType] = {
    Type.BOOLEAN: pa.bool_(),
    Type.INT: pa.int32(),
    Type.BIGINT: pa.int64(),
    Type.FLOAT: pa.float32(),
    Type.DOUBLE: pa.float64(),
    Type.STRING: pa.string(),
    Type.TIMESTAMP: pa.timestamp("us", "UTC"),
    Type.DATE: pa.date32(),
    Type.NULL: pa.bool_(),
}
_FIELDS = [(TIME, pa.int64()), (STREAM, pa.int16()), (ARRIVAL, pa.int64()), (LABEL, pa.int64()), (SIGHT, pa.int64())]


def compile_program(running: Iterable[Running]) -> tuple[Program, pa.Schema]:
    """The program of these queries and the form of its table, with those columns only that some query reads."""
    queries = sorted(running, key=lambda x: x.name)
    streams = tuple(sorted({name for query in queries for name in query.streams}))
    columns: dict[tuple[str, str], str] = {}
    fields = list(_FIELDS)
    for stream in streams:
        read = {name for query in queries for name in _read(query, stream)}
        for name, type_ in _columns(queries, stream):
            if name in read:
                columns[stream, name] = f"{len(stream)}:{stream}.{name}"  # the same whatever else runs
                fields.append((columns[stream, name], ARROW[type_]))
    blocks = [block for query in queries for block in _blocks(query)]
    windowed = tuple(block for block in blocks if isinstance(block.top, n.ToStream))
    passing = tuple(block for block in blocks if not isinstance(block.top, n.ToStream))
    return Program(windowed, passing, streams, columns), pa.schema(fields)


def _columns(queries: list[Running], stream: str) -> tuple[tuple[str, Type], ...]:
    readings = (reading for query in queries for block in query.query.blocks for reading in block.readings)
    return next(reading.stream.columns for reading in readings if reading.stream.name == stream)


def _blocks(query: Running) -> list[Block]:
    root = lower(query.query)
    tops = root.blocks if isinstance(root, n.Union) else (root,)
    return [Block(query.name, number, top) for number, top in enumerate(tops)]


def _read(query: Running, stream: str) -> set[str]:
    """The columns of a stream that a query reads anywhere."""
    found = set()
    for block in query.query.blocks:
        exprs = [block.before, block.after, block.having, *(expr for _, expr in block.items), *block.groups]
        for reading in block.readings:
            exprs += reading.window.partition if reading.window else ()
        for column in (column for expr in exprs for column in expr.columns):
            if block.readings[column.input].stream.name == stream and column.name != LEVEL:
                found.add(column.name)
    return found
