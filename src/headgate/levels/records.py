"""Tuples on their way to processors: files that the shepherd writes once and processors can only read.

replicated: a record has the tuples that a level dominates, in the order of their arrival.
kernelized: each tuple is in one file of the log of its level. A record has no tuples: it names the files and says in
which order their tuples came. That order is known to the level of the record only: in a file of the log, places would
tell how many tuples of other levels stand between two tuples.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from headgate.columns.sorting import Ints
from headgate.labels import Label
from headgate.labels.plain import labels_of, plain_labels

_META = b"headgate"


@dataclass(frozen=True)
class LabelledTuples:
    """Labelled tuples of one stream, in the order of their arrival: `kinds[codes[i]]` is the label of the i-th."""

    times: Ints
    codes: Ints
    kinds: tuple[Label, ...]
    columns: Mapping[str, pa.Array]

    def __len__(self) -> int:
        return len(self.times)

    def where(self, rows: Ints) -> LabelledTuples:
        """These tuples, with their own labels only."""
        used, codes = np.unique(self.codes[rows], return_inverse=True)
        kinds = tuple(self.kinds[x] for x in used.tolist())
        chosen = pa.array(rows)
        columns = {name: column.take(chosen) for name, column in self.columns.items()}
        return LabelledTuples(self.times[rows], codes.astype(np.int64), kinds, columns)


@dataclass(frozen=True)
class Heading:
    """stream: where the tuples come from
    came: the clock when they came, in milliseconds
    settled: all tuples of the stream that came before this clock are in this record or an earlier one; None: not known
    """

    stream: str
    came: int
    settled: int | None = None


@dataclass(frozen=True)
class Part:
    """A file of the log of a level."""

    log: int
    file: str


def write_tuples(heading: Heading, tuples: LabelledTuples) -> bytes:
    names = list(tuples.columns)
    arrays = [pa.array(tuples.times, pa.int64()), pa.array(tuples.codes, pa.int64()), *tuples.columns.values()]
    return _written(_heading(heading) | {"columns": names, "labels": plain_labels(tuples.kinds)}, arrays)


def write_order(heading: Heading, parts: Sequence[Part], order: Ints) -> bytes:
    """`order` has for each tuple the number of the part that it is in."""
    return _written(_heading(heading) | {"parts": [[x.log, x.file] for x in parts]}, [pa.array(order, pa.int16())])


def read_record(content: bytes, part: Callable[[Part], bytes]) -> tuple[Heading, LabelledTuples]:
    facts, arrays = _read(content)
    heading = Heading(facts["stream"], facts["came"], facts["settled"])
    if "parts" not in facts:
        return heading, _tuples(facts, arrays)
    found = [_tuples(*_read(part(Part(log, file)))) for log, file in facts["parts"]]
    order = arrays[0].to_numpy(zero_copy_only=False)
    if sum(map(len, found)) != len(order):
        raise ValueError("the files of a record and its order differ")
    places = np.empty(len(order), np.int64)
    places[np.argsort(order, kind="stable")] = np.arange(len(order))
    return heading, _together(found).where(places)


def summary_of(content: bytes) -> tuple[str, int]:
    """The stream of a record, and how many tuples it has."""
    facts, arrays = _read(content)
    return facts["stream"], len(arrays[0])


def parts_of(content: bytes) -> list[Part]:
    """The files that a record needs."""
    return [Part(log, file) for log, file in _read(content)[0].get("parts", ())]


def _together(parts: Sequence[LabelledTuples]) -> LabelledTuples:
    starts = np.cumsum([0, *(len(x.kinds) for x in parts)])
    codes = [x.codes + start for x, start in zip(parts, starts.tolist(), strict=False)]
    return LabelledTuples(
        np.concatenate([x.times for x in parts]),
        np.concatenate(codes),
        tuple(kind for x in parts for kind in x.kinds),
        {name: pa.concat_arrays([x.columns[name] for x in parts]) for name in parts[0].columns},
    )


def _heading(heading: Heading) -> dict[str, object]:
    return {"stream": heading.stream, "came": heading.came, "settled": heading.settled}


def _written(facts: Mapping[str, object], arrays: Sequence[pa.Array]) -> bytes:
    fields = [pa.field(str(number), array.type) for number, array in enumerate(arrays)]
    schema = pa.schema(fields, {_META: json.dumps(facts).encode()})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as writer:
        writer.write_table(pa.table(arrays, schema=schema))
    return bytes(sink.getvalue())


def _read(content: bytes) -> tuple[dict[str, Any], list[pa.Array]]:
    table = pa.ipc.open_stream(pa.BufferReader(content)).read_all()
    facts = json.loads(table.schema.metadata[_META])
    return facts, [column.combine_chunks() for column in table.columns]


def _tuples(facts: Mapping[str, Any], arrays: Sequence[pa.Array]) -> LabelledTuples:
    times, codes, *columns = arrays
    kinds = tuple(labels_of(facts["labels"]))
    return LabelledTuples(times.to_numpy(), codes.to_numpy(), kinds, dict(zip(facts["columns"], columns, strict=True)))
