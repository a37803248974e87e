"""Results as they are sent: server-sent events, JSON lines, or an Arrow stream."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Sequence

import pyarrow as pa

from headgate.columns.nulls import cleared
from headgate.egress.sinks import Address, lines_of, shown_kinds
from headgate.expressions.sql.types import ARROW
from headgate.model.results import ResultBatch
from headgate.plain import json_line
from headgate.plan.expressions import Type

CHANGED = "the stream has new columns; connect again to receive them"
LOST = "results were removed before you read them; this goes on with the oldest that are left"


class SharedLines:
    """Results as lines of JSON, made once for all readers who get the same ones and see their labels alike."""

    def __init__(self) -> None:
        self._known: dict[tuple[object, ...], tuple[ResultBatch, list[str]]] = {}

    def of(self, batch: ResultBatch, address: Address) -> list[str]:
        """INVARIANT: a batch is kept with its lines, so that the identity of its columns is nobody else's."""
        columns = id(batch.values), id(batch.times), id(batch.labels), id(batch.kinds)
        key = (*columns, address.columns, address.named)
        if key not in self._known:
            self._known[key] = batch, lines_of(batch, address)
        return self._known[key][1]


class Rendering(ABC):
    media_type: str

    def __init__(self, columns: Sequence[tuple[str, Type]]) -> None:
        self._columns = columns

    def begin(self) -> bytes:
        return b""

    def fits(self, batch: ResultBatch) -> bool:  # noqa: ARG002
        """Whether results can be written after what was written before."""
        return True

    @abstractmethod
    def results(self, batch: ResultBatch, positions: Sequence[str], address: Address, lines: SharedLines) -> bytes: ...

    @abstractmethod
    def notice(self, word: dict[str, str], position: str) -> bytes:
        """`position` is empty if a notice has none."""

    @abstractmethod
    def heartbeat(self) -> bytes: ...

    def end(self) -> bytes:
        return b""


class EventRendering(Rendering):
    media_type = "text/event-stream"

    def begin(self) -> bytes:
        return b"retry: 1000\n\n"

    def results(self, batch: ResultBatch, positions: Sequence[str], address: Address, lines: SharedLines) -> bytes:
        both = zip(positions, lines.of(batch, address), strict=True)
        return "".join(f"id: {position}\nevent: result\ndata: {line}\n\n" for position, line in both).encode()

    def notice(self, word: dict[str, str], position: str) -> bytes:
        known = f"id: {position}\n" if position else ""
        return f"{known}event: notice\ndata: {json_line(word)}\n\n".encode()

    def heartbeat(self) -> bytes:
        return b":\n\n"


class Lines(Rendering):
    media_type = "application/x-ndjson"

    def results(self, batch: ResultBatch, positions: Sequence[str], address: Address, lines: SharedLines) -> bytes:
        both = zip(positions, lines.of(batch, address), strict=True)
        return "".join(f'{{"position": "{position}", {line[1:]}\n' for position, line in both).encode()

    def notice(self, word: dict[str, str], position: str) -> bytes:
        return f"{json_line({'position': position, **word} if position else word)}\n".encode()

    def heartbeat(self) -> bytes:
        return b"\n"


class ArrowStream(Rendering):
    """Record batches with the position, time and label of each result before its values. A notice is the metadata of an
    empty batch. Beneath a NULL there is nothing: what is hidden from a reader is not in the bytes either."""

    media_type = "application/vnd.apache.arrow.stream"

    def __init__(self, columns: Sequence[tuple[str, Type]]) -> None:
        super().__init__(columns)
        known = [
            ("headgate_position", pa.string()),
            ("headgate_time", pa.timestamp("ms", "UTC")),
            ("headgate_label", pa.string()),
        ]
        self._schema = pa.schema([*known, *((name, ARROW[type_]) for name, type_ in columns)])

    def begin(self) -> bytes:
        sink = pa.BufferOutputStream()
        pa.ipc.new_stream(sink, self._schema).close()
        return bytes(sink.getvalue())[:-8]  # without the end of the stream

    def fits(self, batch: ResultBatch) -> bool:
        """The columns of an Arrow stream cannot change."""
        return len(batch.values) <= len(self._columns)

    def _message(self, batch: pa.RecordBatch, metadata: dict[str, str] | None = None) -> bytes:
        sink = pa.BufferOutputStream()
        begin = len(self.begin())
        with pa.ipc.new_stream(sink, self._schema) as writer:
            if metadata:
                writer.write_batch(batch, custom_metadata=pa.KeyValueMetadata(metadata))
            else:
                writer.write_batch(batch)
        return bytes(sink.getvalue())[begin:-8]

    def results(self, batch: ResultBatch, positions: Sequence[str], address: Address, lines: SharedLines) -> bytes:  # noqa: ARG002
        labels = pa.array(shown_kinds(batch.kinds, address.named), pa.string()).take(pa.array(batch.labels))
        times = pa.array(batch.times, pa.int64()).cast(pa.timestamp("ms", "UTC"))
        missing = [pa.nulls(len(batch)) for _ in self._columns[len(batch.values) :]]
        fields = list(self._schema)[3:]
        values = [cleared(column.cast(x.type)) for column, x in zip((*batch.values, *missing), fields, strict=True)]
        arrays = [pa.array(positions, pa.string()), times, labels, *values]
        return self._message(pa.RecordBatch.from_arrays(arrays, schema=self._schema))

    def notice(self, word: dict[str, str], position: str) -> bytes:
        return self._message(self._none(), {"headgate_notice": json.dumps(word), "headgate_position": position})

    def heartbeat(self) -> bytes:
        return self._message(self._none())

    def _none(self) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays([pa.array([], field.type) for field in self._schema], schema=self._schema)

    def end(self) -> bytes:
        return b"\xff\xff\xff\xff\x00\x00\x00\x00"


RENDERINGS: dict[str, type[Rendering]] = {x.media_type: x for x in (EventRendering, Lines, ArrowStream)}
