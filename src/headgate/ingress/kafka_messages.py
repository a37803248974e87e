"""Reads messages of Kafka: Spark fetches them as bytes and keeps the offsets; what they hold is decided here.

JSON is read by the reader of JSON lines, so that a line means the same in a file and in a message. Messages that are no
tuples are rejected with their partition and offset, and so are those that validation rejects later.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from headgate.columns.sorting import Bools, Ints
from headgate.expressions.sql.types import ARROW
from headgate.ingress.kafka_options import HEADER, Topic
from headgate.ingress.published import MalformedRows, TooManyRows, read_arrow
from headgate.ingress.text_files import as_lines, json_rows
from headgate.ingress.validation import MOST_KEPT, NO_FORM, RawBatch, malformed_together, shortened
from headgate.model.rejected import MALFORMED, RejectedRows
from headgate.plan.expressions import Type

PARTITION, OFFSET = "headgate_partition", "headgate_offset"
"""Where a message was; rejected rows have these columns too."""
_AT_ONCE = "spark.sql.execution.arrow.maxRecordsPerBatch"
_MESSAGES_AT_ONCE = 1_000
_PIECE = 512 << 20
"""Bytes of values that are read at once."""
_MOST_ROWS = 1_000_000
"""Rows of one message of Arrow."""
NO_VALUE = "it has no value"


def message_columns(frame: DataFrame, topic: Topic) -> DataFrame:
    """The parts of messages that are needed. Spark decodes none of them."""
    parts = set(topic.parts.values())
    wanted = ["value", "partition", "offset", "timestamp", *(["key"] if "key" in parts else [])]
    return frame.select(*wanted, *(["headers"] if topic.headers else []))


def fetched(frame: DataFrame) -> pa.Table:
    """The messages of a data frame. Spark sends them in parts: one Arrow batch holds at most 2 GB, and a batch that
    cannot be sent would block its stream for good."""
    settings = frame.sparkSession.conf
    usual = settings.get(_AT_ONCE)
    settings.set(_AT_ONCE, str(_MESSAGES_AT_ONCE))
    try:
        return frame.toArrow()
    finally:
        settings.set(_AT_ONCE, str(usual))


def read_messages(topic: Topic, messages: pa.Table) -> RawBatch:
    """Reads messages in order of arrival, in pieces of which each fits one Arrow array."""
    order = _order(messages)
    sizes = pc.binary_length(messages.column("value")).fill_null(0).to_numpy()[order].cumsum(dtype=np.int64)
    cuts = np.flatnonzero(np.diff(sizes // _PIECE)) + 1
    found = [_read_piece(topic, messages.take(pa.array(piece)).combine_chunks()) for piece in np.split(order, cuts)]
    rejected = [part for whole in found for part in whole.rejected]
    return RawBatch(pa.concat_tables([whole.table for whole in found]), malformed_together(rejected))


def _read_piece(topic: Topic, messages: pa.Table) -> RawBatch:
    rejected = _Rejected(messages)
    parts = {name: _part(messages, part, topic, rejected) for name, part in topic.parts.items()}
    read = _json if topic.format == "json" else _arrow
    values, rows = read(topic, messages, rejected)
    good = ~rejected.bad[rows]
    values, rows = values.filter(pa.array(good)), rows[good]
    place = pa.array(rows)
    table = pa.table(
        {
            name: parts[name].take(place) if name in parts else values.column(name)
            for name, _ in topic.descriptor.columns
        }
        | {PARTITION: messages.column("partition").take(place), OFFSET: messages.column("offset").take(place)}
    )
    return RawBatch(table, rejected.rows(topic.descriptor.name))


def _order(messages: pa.Table) -> Ints:
    """The order of messages: by timestamp, those of one partition by offset. So of two partitions that were filled at
    the same time none is read far ahead of the other, which would make the other's tuples late."""
    partition, offset = (messages.column(x).to_numpy() for x in ("partition", "offset"))
    time = messages.column("timestamp").cast(pa.int64()).to_numpy().copy()
    order = np.lexsort((offset, partition))
    bounds = np.flatnonzero(np.diff(partition[order])) + 1
    for piece in np.split(order, bounds):
        time[piece] = np.maximum.accumulate(time[piece]) if len(piece) else time[piece]
    return np.lexsort((offset, partition, time))


@dataclass
class _Rejected:
    """The messages that are no tuples, by their number, and why."""

    messages: pa.Table
    bad: Bools = field(init=False)
    _why: dict[int, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.bad = np.zeros(self.messages.num_rows, np.bool_)

    def add(self, which: Bools, why: Callable[[int], str]) -> None:
        """The first reason counts; reasons are made for as many as are kept."""
        for number in np.flatnonzero(which & ~self.bad)[: MOST_KEPT - len(self._why)].tolist():
            self._why[number] = why(number)
        self.bad |= which

    def rows(self, stream: str) -> list[RejectedRows]:
        total = int(np.count_nonzero(self.bad))
        if not total:
            return []
        kept = sorted(self._why)[:MOST_KEPT]
        rows = [self._row(number) for number in kept]
        return [RejectedRows(stream, NO_FORM, rows, total - len(kept), [self._why[number] for number in kept])]

    def _row(self, number: int) -> dict[str, object]:
        value, partition, offset = (self.messages.column(x)[number].as_py() for x in ("value", "partition", "offset"))
        return {MALFORMED: shortened(_shown(value or b"")), PARTITION: partition, OFFSET: offset}


def _shown(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return b64encode(value).decode()


# Values ---------------------------------------------------------------------------------------------------------------


def _json(topic: Topic, messages: pa.Table, rejected: _Rejected) -> tuple[pa.Table, Ints]:
    """The tuples, one for each message, and their numbers."""
    value = messages.column("value").combine_chunks()
    rejected.add(np.asarray(value.is_null()), lambda _: NO_VALUE)
    found = json_rows(topic.value_columns, as_lines(value.fill_null(b"{}")))
    rejected.add(found.bad, found.why)
    return pa.table(dict(found.columns)), np.arange(len(value))


def _arrow(topic: Topic, messages: pa.Table, rejected: _Rejected) -> tuple[pa.Table, Ints]:
    """Each message is a stream of Arrow IPC with any number of rows; it is taken whole or not at all."""
    descriptor = replace(topic.descriptor, columns=topic.value_columns)
    tables = [pa.schema([(name, ARROW[type_]) for name, type_ in topic.value_columns]).empty_table()]
    rows: list[Ints] = [np.empty(0, np.int64)]
    reasons: dict[int, str] = {}
    for number, value in enumerate(messages.column("value").to_pylist()):
        try:
            table = read_arrow(descriptor, value, _MOST_ROWS).table if value is not None else None
        except MalformedRows as error:
            wrong = error.wrong.rows[0]
            reasons[number] = f"row {wrong.row}: {wrong.reason}" if wrong.row else wrong.reason
        except TooManyRows:
            reasons[number] = f"it has more than {_MOST_ROWS:,} rows"
        else:
            if table is None:
                reasons[number] = NO_VALUE
                continue
            tables.append(table)
            rows.append(np.full(table.num_rows, number))
    bad = np.zeros(messages.num_rows, np.bool_)
    bad[list(reasons)] = True
    rejected.add(bad, reasons.__getitem__)
    return pa.concat_tables(tables), np.concatenate(rows)


# Other parts ----------------------------------------------------------------------------------------------------------


def _part(messages: pa.Table, part: str, topic: Topic, rejected: _Rejected) -> pa.Array:
    """The key, a header, the timestamp or the place of each message."""
    column = next(name for name, own in topic.parts.items() if own == part)
    type_ = dict(topic.descriptor.columns)[column]
    if part.startswith(HEADER):
        found = _header(messages.column("headers").combine_chunks(), part[len(HEADER) :], rejected)
    else:
        found = messages.column(part).combine_chunks()
    return as_lines(found) if type_ == Type.STRING else found.cast(ARROW[type_])


def _header(headers: pa.ListArray, name: str, rejected: _Rejected) -> pa.Array:
    """The value of a header, NULL where a message has none. A message that has it twice means different things to
    different readers, and the header may be a label: it is rejected."""
    entries = headers.flatten()
    named = np.asarray(pc.equal(entries.field("key"), name).fill_null(False), np.bool_)
    owners = np.asarray(pc.list_parent_indices(headers), np.int64)[named]
    values = entries.field("value").filter(pa.array(named))
    counts = np.bincount(owners, minlength=len(headers))
    rejected.add(counts > 1, lambda _: f"it has header {name} twice")
    place = np.zeros(len(headers), np.int64)
    place[owners] = np.arange(len(owners))
    return values.take(pa.array(place, mask=counts == 0))
