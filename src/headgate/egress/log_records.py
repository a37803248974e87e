"""The records of the delivery log: a batch of results, or a notice, as bytes, with the labels that decide about it.

A record is a frame: its lengths and a checksum, a header (JSON: version, subscribers, query, labels), and the results
as an Arrow stream. The header alone says whom a record is for, so an index is built without reading results.
"""

from __future__ import annotations

import json
import math
import struct
import sys
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from headgate.columns.sorting import Ints
from headgate.labels.plain import labels_of, plain_labels
from headgate.model.results import Recipient, ResultBatch

_FRAME = struct.Struct("<4sIQI")
_MAGIC = b"HGD1"
BEFORE, AFTER = -1, (1 << 63) - 1
"""The places before and after all results of a version."""


@dataclass(frozen=True, slots=True)
class DeliveryRecord:
    """Where a record is, and whom it is for.

    version: the version of the state whose results it holds
    notice: the place of the notice; None if it holds results
    written: the clock when it was written, in seconds
    last: the place of its last result, or of the notice
    """

    segment: str
    offset: int
    size: int
    version: int
    query: str
    subscribers: frozenset[str]
    notice: int | None
    written: float
    last: int = BEFORE


def encode(version: int, batch: ResultBatch, notice: int | None, written: float) -> bytes:
    header: dict[str, Any] = {
        "version": version,
        "written": written,
        "query": batch.query,
        "subscribers": list(batch.subscribers),
        "notice": notice,
        "last": notice if notice is not None else int(ordinals_of(batch).max(initial=BEFORE)),
        "word": batch.word,
        "kinds": plain_labels(batch.kinds),
    }
    if batch.outgoing is not None:
        out = batch.outgoing
        header["outgoing"] = [out.user, out.level, out.stream, list(out.columns), sorted(out.roles)]
    head, body = json.dumps(header).encode(), b"" if batch.word else _table(batch)
    return _FRAME.pack(_MAGIC, len(head), len(body), zlib.crc32(body, zlib.crc32(head))) + head + body


def ordinals_of(batch: ResultBatch) -> Ints:
    """The places of results among all results that were computed for them."""
    return np.arange(len(batch)) if batch.places is None else batch.places


def _table(batch: ResultBatch) -> bytes:
    numbers = (batch.blocks, batch.times, batch.labels, ordinals_of(batch))
    arrays = [*(pa.array(x, pa.int64()) for x in numbers), *batch.values]
    table = pa.table(arrays, names=[str(number) for number in range(len(arrays))])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def records_in(segment: str, content: bytes) -> Iterator[DeliveryRecord]:
    """The records of a segment, up to the first one that is not whole."""
    offset = 0
    while offset + _FRAME.size <= len(content):
        magic, head, body, check = _FRAME.unpack_from(content, offset)
        end = offset + _FRAME.size + head + body
        if magic != _MAGIC or end > len(content) or zlib.crc32(content[offset + _FRAME.size : end]) != check:
            return
        yield record_of(segment, offset, content[offset:end])
        offset = end


def record_of(segment: str, offset: int, frame: bytes) -> DeliveryRecord:
    header = _header(frame)
    names = frozenset(_names(header))
    written = header.get("written", math.inf)  # records of earlier versions do not say it: the size removes them
    last = header.get("last", BEFORE)  # nor this: readers who stopped inside one are not told that they lost the rest
    place = segment, offset, len(frame)
    return DeliveryRecord(*place, header["version"], header["query"], names, header["notice"], written, last)


def _header(frame: bytes) -> dict[str, Any]:
    head = _FRAME.unpack_from(frame)[1]
    found: dict[str, Any] = json.loads(frame[_FRAME.size : _FRAME.size + head])
    return found


def _names(header: dict[str, Any]) -> tuple[str, ...]:
    """The subscribers. Thousands of records name the same ones: each name is kept once."""
    return tuple(map(sys.intern, header["subscribers"]))


def decode(frame: bytes) -> ResultBatch:
    header, head = _header(frame), _FRAME.unpack_from(frame)[1]
    nothing = np.empty(0, np.int64)
    blocks = times = labels = nothing
    places: Ints | None = None
    values: tuple[pa.Array, ...] = ()
    if not header["word"]:
        table = pa.ipc.open_stream(pa.BufferReader(frame[_FRAME.size + head :])).read_all()
        blocks, times, labels, places = (column.to_numpy() for column in table.columns[:4])
        values = tuple(column.combine_chunks() for column in table.columns[4:])
    out = None
    if "outgoing" in header:
        user, level, stream, columns, roles = header["outgoing"]
        out = Recipient(user, level, stream, tuple(columns), frozenset(roles))
    return ResultBatch(
        _names(header),
        header["query"],
        blocks,
        times,
        values,
        labels,
        tuple(labels_of(header["kinds"])),
        outgoing=out,
        places=places,
        **header["word"],
    )
