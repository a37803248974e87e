"""Compile running queries into one program: the blocks that partitions compute, and the schema of the table that holds
the tuples of their streams."""

from __future__ import annotations

from collections.abc import Collection, Iterable

import pyarrow as pa

from headgate.expressions.sql.types import ARROW
from headgate.model.query import ContinuousQuery, columns_read
from headgate.operators.program import ARRIVAL, LABEL, STREAM, TIME, VISIBILITY, Block, Program
from headgate.plan import nodes as n
from headgate.plan import queries
from headgate.plan.expressions import Type
from headgate.plan.reserved import LEVEL
from headgate.plan.secure import Mode, SecurePlan
from headgate.plan.steps import blocks_of

FIELDS = [
    (TIME, pa.int64()),
    (STREAM, pa.int16()),
    (ARRIVAL, pa.int64()),
    (LABEL, pa.int64()),
    (VISIBILITY, pa.int64()),
]


def compile_program(running: Iterable[ContinuousQuery]) -> tuple[Program, pa.Schema]:
    """Return the program of these queries and the schema of its table, which has only the columns that some query
    reads."""
    ordered = sorted(running, key=lambda x: x.name)
    streams = tuple(sorted({name for query in ordered for name in query.streams}))
    columns: dict[tuple[str, str], str] = {}
    fields = list(FIELDS)
    for stream in streams:
        read = {name for query in ordered for name in _read(query, stream)}
        for name, type_ in _columns(ordered, stream):
            if name in read:
                # The name does not depend on which other queries run.
                columns[stream, name] = f"{len(stream)}:{stream}.{name}"
                fields.append((columns[stream, name], ARROW[type_]))
    plan, blocks = SecurePlan(), list[Block]()
    for query in ordered:
        own = _blocks(query)
        plan.add(query.name, query.root, mode=query.mode, level=query.level)
        blocks += own
    windowed = tuple(block for block in blocks if isinstance(block.top, n.ToStream))
    stateless = tuple(block for block in blocks if not isinstance(block.top, n.ToStream))
    return Program(windowed, stateless, streams, columns, plan), pa.schema(fields)


def subprogram(
    program: Program, schema: pa.Schema, blocks: Collection[tuple[str, int]], read: Collection[tuple[str, str]]
) -> tuple[Program, pa.Schema]:
    """Return some of a program's windowed blocks, with the columns that they read. Streams keep their numbers, because
    the results of all parts are merged into one order by these numbers."""
    chosen = tuple(block for block in program.blocks if (block.query, block.number) in blocks)
    columns = {key: name for key, name in program.columns.items() if key in read}
    kept = {*columns.values(), *(name for name, _ in FIELDS)}
    return Program(chosen, (), program.streams, columns, program.plan), pa.schema([x for x in schema if x.name in kept])


def _columns(running: list[ContinuousQuery], stream: str) -> tuple[tuple[str, Type], ...]:
    readings = (reading for query in running for block in query.query.blocks for reading in block.readings)
    return next(reading.stream.columns for reading in readings if reading.stream.name == stream)


def _blocks(query: ContinuousQuery) -> list[Block]:
    tops = zip(query.query.blocks, blocks_of(query.root), strict=True)
    exact = query.mode == Mode.EXACT
    return [Block(query.name, number, top, exact and _labelled(block)) for number, (block, top) in enumerate(tops)]


def _labelled(block: queries.QueryBlock) -> bool:
    """Whether a block reads a column that has a label of its own, so that it may become NULL for an exact view."""
    return any(column.name in dict(block.readings[column.input].stream.labels) for column in columns_read(block))


def _read(query: ContinuousQuery, stream: str) -> set[str]:
    """The columns of a stream that any block of a query reads."""
    return {name for block in query.query.blocks for own, name in read_by(block) if own == stream}


def read_by(block: queries.QueryBlock) -> frozenset[tuple[str, str]]:
    """The columns that a block reads, with their streams. LEVEL is left out: it is not a column, every tuple has
    one."""
    read = (column for column in columns_read(block) if column.name != LEVEL)
    return frozenset((block.readings[column.input].stream.name, column.name) for column in read)
