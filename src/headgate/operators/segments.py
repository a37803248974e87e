"""Segments: the tuples that a partition keeps, as files that are written once.

Each version writes the tuples that came since the last one and are still held. A tuple that nobody holds any more stays
in its file: readers leave it out, because no window holds it. Small segments are merged, and segments are written anew
when most of what all of them hold is dead, so what is written follows what comes.

A segment knows the slots of its tuples, so nothing is read back to merge it. Tuples of a segment have arrival numbers
in a range of its own; that tells whether a slot still holds the tuple that it had when the segment was written.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from headgate.columns.narrow import narrow_table, widened_table
from headgate.columns.sorting import Ints
from headgate.loops.segments import bounds_of, count_dead, still_held
from headgate.model.times import BEGINNING
from headgate.operators.program import ARRIVAL, STREAM, TIME, VISIBILITY, Program
from headgate.operators.tuple_store import TupleStore

Write = Callable[[pa.Table], str]
"""Writes a table as a new file; returns its name."""
Read = Callable[[str], pa.Table]
"""Reads the table of a file."""
Numbers = Callable[[Ints], Ints]
"""The numbers of visibility rows by their identities; -1 for a row that no tuple had any more."""

SMALL = 1 << 16
"""A segment with fewer tuples is small: it may be merged with its neighbours."""
MOST_SMALL = 64
"""So many small neighbours are merged into one."""
_STREAMS = b"streams"


@dataclass
class Segment:
    """A file of tuples.

    slots: the slots that its tuples had when it was written
    first, last: the bounds of their arrival numbers; no other segment has any between them
    dead: how many of them nobody holds any more
    """

    name: str
    slots: np.ndarray[tuple[int], np.dtype[np.int32]]
    first: int
    last: int
    dead: int = 0

    @property
    def live(self) -> int:
        return len(self.slots) - self.dead


class Segments:
    """The segments of the tuples of a store. `unwritten` came after the last of them."""

    def __init__(self, store: TupleStore) -> None:
        self._store = store
        self._segments: list[Segment] = []
        self._bounds: tuple[Ints, Ints] = (np.empty(0, np.int64), np.empty(0, np.int64))
        self._unwritten: list[Segment] = []

    def enter(self, slots: Ints) -> None:
        """Tuples came; the next version writes them."""
        if len(slots):
            self._unwritten.append(self._segment("", slots))
            if sum(len(x.slots) for x in self._unwritten) > 2 * len(self._store) + SMALL:  # nobody writes versions
                self._unwritten = [self._segment("", x) for x in map(self._alive, self._unwritten) if len(x)]

    def leave(self, slots: Ints) -> None:
        """Nobody holds these tuples any more; their slots are not used again yet."""
        if len(self._segments) and len(slots):
            dead, (time, arrival) = np.zeros(len(self._segments), np.int64), map(self._store.numbers, (TIME, ARRIVAL))
            count_dead(slots, time, arrival, BEGINNING, *self._bounds, dead)
            for number in np.flatnonzero(dead).tolist():
                self._segments[number].dead += int(dead[number])

    def read(self, names: Sequence[str], read: Read, numbers: Numbers) -> Ints:
        """Continue with segments that were written; returns the slots of their tuples."""
        found = [np.empty(0, np.int64)]
        for name in names:
            table = _fitted(widened_table(read(name)), self._store.program, self._store.schema)
            found.append(self._store.add(_known(table, numbers)))
            if len(found[-1]):
                self._segments.append(self._segment(name, found[-1]))
        self._number()
        return np.concatenate(found)

    # Writing ----------------------------------------------------------------------------------------------------------

    def save(self, write: Write, identities: Ints) -> list[str]:
        """Write what is not written; returns the names of all segments. `identities` are those of visibility rows, by
        their number."""
        new = np.concatenate([np.empty(0, np.int64), *map(self._alive, self._unwritten)])
        self._unwritten = []
        found = [x for x in self._segments if x.live or len(self._alive(x))]
        if len(new):
            found.append(self._written(new, write, identities))
        self._segments = list(self._compacted(found, write, identities))
        self._number()
        return [x.name for x in self._segments]

    def _compacted(self, segments: list[Segment], write: Write, identities: Ints) -> Iterator[Segment]:
        """Merge small neighbours where they are many, and write anew what is mostly dead if most of everything is."""
        dead, live = sum(x.dead for x in segments), sum(x.live for x in segments)
        small = list[Segment]()
        for segment in [*segments, None]:
            if segment is not None and segment.live < SMALL:
                small.append(segment)
                continue
            if len(small) >= MOST_SMALL:
                yield from self._merged(small, write, identities)
            elif dead > live + SMALL:
                for x in small:
                    yield from self._merged([x], write, identities) if x.dead > x.live else [x]
            else:
                yield from small
            small = []
            if segment is not None:
                rewritten = dead > live + SMALL and segment.dead > segment.live
                yield from self._merged([segment], write, identities) if rewritten else [segment]

    def _merged(self, segments: Sequence[Segment], write: Write, identities: Ints) -> Iterator[Segment]:
        slots = np.concatenate([self._alive(x) for x in segments])
        if len(slots):
            yield self._written(slots, write, identities)

    def _written(self, slots: Ints, write: Write, identities: Ints) -> Segment:
        slots = self._store.in_order(slots)
        table = self._store.table(slots)
        table = _with_rows(table, identities[table.column(VISIBILITY).to_numpy()])
        streams = json.dumps(self._store.program.streams).encode()
        return self._segment(write(narrow_table(table.replace_schema_metadata({_STREAMS: streams}))), slots)

    def _segment(self, name: str, slots: Ints) -> Segment:
        return Segment(name, slots.astype(np.int32), *map(int, bounds_of(slots, self._store.numbers(ARRIVAL))))

    def _alive(self, segment: Segment) -> Ints:
        """The slots that still hold the segment's tuples."""
        found, (time, arrival) = np.empty(len(segment.slots), np.int64), map(self._store.numbers, (TIME, ARRIVAL))
        bounds = BEGINNING, segment.first, segment.last
        return found[: still_held(segment.slots, time, arrival, self._store.holders, *bounds, found)]

    def _number(self) -> None:
        self._segments.sort(key=lambda x: x.first)
        firsts, lasts = [x.first for x in self._segments], [x.last for x in self._segments]
        self._bounds = np.array(firsts, np.int64), np.array(lasts, np.int64)


def _fitted(table: pa.Table, program: Program, schema: pa.Schema) -> pa.Table:
    """A segment as another program reads it: without tuples of streams that it does not read, and with NULL in columns
    that were not kept."""
    streams = json.loads(table.schema.metadata[_STREAMS])
    if table.schema.remove_metadata() == schema and tuple(streams) == program.streams:
        return table
    known = np.array([name in program.streams for name in streams])
    numbers = np.array([program.streams.index(x) if x in program.streams else 0 for x in streams], np.int16)
    table = table.filter(pa.array(known[table.column(STREAM).to_numpy()]))
    columns = [
        pa.array(numbers[table.column(STREAM).to_numpy()], pa.int16())
        if field.name == STREAM
        else table.column(field.name)
        if field.name in table.schema.names
        else pa.nulls(table.num_rows, field.type)
        for field in schema
    ]
    return pa.Table.from_arrays(columns, schema=schema)


def _known(table: pa.Table, numbers: Numbers) -> pa.Table:
    """The tuples with the numbers of their visibility rows, without those whose row is gone."""
    rows = numbers(table.column(VISIBILITY).to_numpy())
    table = _with_rows(table, rows)
    return table if (rows >= 0).all() else table.filter(pa.array(rows >= 0))


def _with_rows(table: pa.Table, rows: Ints) -> pa.Table:
    return table.set_column(table.schema.get_field_index(VISIBILITY), VISIBILITY, pa.array(rows, pa.int64()))
