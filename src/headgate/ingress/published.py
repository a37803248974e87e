"""Reads what senders publish, JSON lines or an Arrow stream, into the columns of a stream; every wrong row is named.

A request is taken whole or not at all. JSON lines are read as files of JSON lines are. Of Arrow only plain,
uncompressed columns are taken: their size in memory is the size of the request.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from headgate.columns.sorting import Ints
from headgate.errors import SourceError
from headgate.expressions.sql.types import ARROW
from headgate.ingress.records import Form, pieces
from headgate.ingress.text_files import as_lines, json_rows
from headgate.ingress.text_formats import Text
from headgate.ingress.validation import Ingress
from headgate.labels import Label, Level, Rules
from headgate.model.limits import Limits
from headgate.model.stream import StreamDescriptor
from headgate.plan.expressions import Type

MOST_NAMED = 20
"""Wrong rows that an answer names; the rest are counted."""
_MOST_COLUMNS = 1_000
_ROW = "headgate_row"


@dataclass(frozen=True)
class WrongRow:
    """A row that is no tuple of the stream; rows count from 1, 0 stands for the whole request."""

    row: int
    reason: str


@dataclass
class Wrong:
    """The first wrong rows, and how many there are."""

    rows: list[WrongRow] = field(default_factory=list)
    total: int = 0

    def add(self, row: int, reason: str) -> None:
        self.total += 1
        if len(self.rows) < MOST_NAMED:
            self.rows.append(WrongRow(row, reason))


class MalformedRows(SourceError):
    """A request with rows that are no tuples of the stream."""

    def __init__(self, wrong: Wrong) -> None:
        super().__init__(
            f"cannot take the request: {wrong.total:,} of its rows are wrong", hint="nothing of it was taken"
        )
        self.wrong = wrong


class TooManyRows(SourceError):
    pass


@dataclass(frozen=True)
class PublishedRows:
    """The rows of a request that have the form of the stream, the number of each in the request, from 1 (JSON lines:
    the number of its line), and the rows that have another form."""

    table: pa.Table
    numbers: Ints
    wrong: Wrong = field(default_factory=Wrong)


def read_json(descriptor: StreamDescriptor, body: bytes, most: int) -> PublishedRows:
    text, wrong, tables, lines = Text(descriptor, True, Form()), Wrong(), [_schema(descriptor).empty_table()], 0
    numbers = [np.empty(0, np.int64)]
    for piece in pieces(io.BytesIO(body), text.form):
        if piece.too_long:
            raise _whole("a line is too long")
        found = json_rows(text.columns, as_lines(piece.lines))
        for place in np.flatnonzero(found.rejected).tolist():
            wrong.add(lines + place + 1, found.why(place))
        numbers.append(lines + 1 + np.flatnonzero(~found.bad))
        lines += len(found.bad)
        if lines > most:
            raise _too_many(most)
        table = pa.table({name: found.columns[name] for name, _ in descriptor.columns})
        tables.append(table.filter(pa.array(~found.bad)))
    return PublishedRows(pa.concat_tables(tables), np.concatenate(numbers), wrong)


def read_arrow(descriptor: StreamDescriptor, body: bytes, most: int) -> PublishedRows:
    try:
        plain = all(map(_is_plain, _messages(body)))
        reader = pa.ipc.open_stream(pa.BufferReader(body))
        _check_columns(descriptor, reader.schema)
        if not plain:
            raise _whole("it is compressed or has dictionaries")
        batches, rows = [], 0
        for batch in reader:
            rows += batch.num_rows
            if rows > most:
                raise _too_many(most)
            batches.append(batch)
        table = pa.Table.from_batches(batches, reader.schema)
        table.validate(full=True)
    except (pa.ArrowException, OSError, ValueError, struct.error, EOFError):
        raise _whole("it is not an Arrow stream") from None
    return PublishedRows(_shaped(descriptor, table), np.arange(1, table.num_rows + 1))


def _shaped(descriptor: StreamDescriptor, table: pa.Table) -> pa.Table:
    arrays = []
    for name, type_ in descriptor.columns:
        if name not in table.column_names:
            arrays.append(pa.chunked_array([pa.nulls(table.num_rows, ARROW[type_])]))
            continue
        column = table.column(name)
        try:
            arrays.append(column.cast(ARROW[type_]))
        except (pa.ArrowException, ValueError):
            wrong = Wrong()
            wrong.add(_first_that_fails(column, ARROW[type_]) + 1, f"{name}: it is not {type_}")
            raise MalformedRows(wrong) from None
    return pa.table(arrays, schema=_schema(descriptor))


def _first_that_fails(column: pa.ChunkedArray, type_: pa.DataType) -> int:
    """By halving: the first half that fails is searched on."""
    begin, size = 0, len(column)
    while size > 1:
        half = size // 2
        try:
            column.slice(begin, half).cast(type_)
            begin, size = begin + half, size - half
        except (pa.ArrowException, ValueError):
            size = half
    return begin


_INTEGERS, _FLOATS = (pa.types.is_integer,), (pa.types.is_integer, pa.types.is_floating)
_TAKEN: dict[Type, Sequence[Callable[[pa.DataType], bool]]] = {
    Type.BOOLEAN: (pa.types.is_boolean,),
    Type.INT: _INTEGERS,
    Type.BIGINT: _INTEGERS,
    Type.FLOAT: _FLOATS,
    Type.DOUBLE: _FLOATS,
    Type.STRING: (pa.types.is_string, pa.types.is_large_string),
    Type.TIMESTAMP: (lambda type_: pa.types.is_timestamp(type_) and type_.tz is not None,),
    Type.DATE: (pa.types.is_date32,),
    Type.BINARY: (pa.types.is_binary, pa.types.is_large_binary),
}
"""The types of Arrow that a column of each type takes."""
_LONG = (*_TAKEN[Type.STRING], *_TAKEN[Type.BINARY])


def _check_columns(descriptor: StreamDescriptor, schema: pa.Schema) -> None:
    if len(schema) > _MOST_COLUMNS:
        raise _whole(f"it has more than {_MOST_COLUMNS:,} columns")
    types = dict(descriptor.columns)
    for found in schema:
        if schema.names.count(found.name) > 1:
            raise _whole(f"it has a column twice: `{found.name}`")
        plain = pa.types.is_primitive(found.type) or any(fits(found.type) for fits in _LONG)
        wanted = types.get(found.name)
        if not plain or (wanted is not None and not any(fits(found.type) for fits in _TAKEN[wanted])):
            raise _whole(f"{found.name}: {found.type} is not {wanted or 'a plain type'}")


def _messages(body: bytes) -> Iterator[bytes]:
    """The metadata of each message of an Arrow stream."""
    reader = pa.ipc.MessageReader.open_stream(pa.BufferReader(body))
    while True:
        try:
            yield bytes(reader.read_next_message().metadata)
        except StopIteration:
            return


def _is_plain(metadata: bytes) -> bool:
    """Whether a message is a schema, or a record batch without compression (Message and RecordBatch of Arrow's
    Message.fbs)."""
    (root,) = struct.unpack_from("<I", metadata)
    kind, header = _field(metadata, root, 1), _field(metadata, root, 2)
    word = metadata[kind] if kind else 0
    if word != 3 or not header:
        return word == 1
    table = header + struct.unpack_from("<I", metadata, header)[0]
    return not _field(metadata, table, 3)


def _field(data: bytes, table: int, number: int) -> int:
    """Where a field of a flatbuffers table is; 0 if it is absent."""
    vtable = table - struct.unpack_from("<i", data, table)[0]
    (size,) = struct.unpack_from("<H", data, vtable)
    place = 4 + 2 * number
    if place >= size:
        return 0
    (offset,) = struct.unpack_from("<H", data, vtable + place)
    return table + int(offset) if offset else 0


def check_tuples(
    descriptor: StreamDescriptor, rules: Rules, level: Level, found: PublishedRows, now: int, limits: Limits
) -> None:
    """Refuses rows of another form, rows that ingress would reject (a text that is too long, no event time, an
    unreadable label), and rows with a level that the sender's level does not dominate. All of them are named at
    once."""
    labels: list[Label] = []

    def number(label: Label) -> int:
        labels.append(label)
        return len(labels) - 1

    numbered = found.table.append_column(_ROW, pa.array(found.numbers))
    batch, rejected = Ingress(descriptor, rules, number, limits).take(numbered, now)
    wrong = [found.wrong]
    refused: list[int] = []
    for part in rejected:
        wrong.append(Wrong(total=part.more))
        for row, detail in zip(part.rows, part.details or [""] * len(part.rows), strict=True):
            refused.append(int(str(row[_ROW])))
            wrong[-1].add(refused[-1], f"{part.reason}: {detail}" if detail else part.reason)
    brought = [
        [x for x in label.levels - descriptor.policy.levels if not rules.order.dominates(level, x)] for label in labels
    ]
    above = np.array([bool(x) for x in brought], np.bool_)
    taken = found.numbers[~np.isin(found.numbers, refused)]
    if above.any() and len(taken) == len(batch.labels):  # of very many rejected rows not all are known
        wrong.append(Wrong())
        for place in np.flatnonzero(above[batch.labels]).tolist():
            high = ", ".join(map(str, brought[int(batch.labels[place])]))
            wrong[-1].add(int(taken[place]), f"its level {high} is not dominated by yours, {level}")
    if any(x.total for x in wrong):
        named = sorted((row for x in wrong for row in x.rows), key=lambda row: row.row)
        raise MalformedRows(Wrong(named[:MOST_NAMED], sum(x.total for x in wrong)))


def _schema(descriptor: StreamDescriptor) -> pa.Schema:
    return pa.schema([(name, ARROW[type_]) for name, type_ in descriptor.columns])


def _whole(reason: str) -> MalformedRows:
    wrong = Wrong()
    wrong.add(0, reason)
    return MalformedRows(wrong)


def _too_many(most: int) -> TooManyRows:
    return TooManyRows(f"cannot take the request: it has more than {most:,} rows", hint="send it in parts")
