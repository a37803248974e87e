"""The tuples that a partition keeps, by column. Each tuple has a slot, which is its own until nobody holds it any more.

View groups hold tuples, and so does the list of waiting tuples: each holder is counted, and a tuple that nobody holds
is gone. What a batch costs here follows what it brings and takes away, not what is kept.
"""

from __future__ import annotations

import threading

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headgate.columns.sorting import Bools, Ints, dense
from headgate.expressions.limits import size_of
from headgate.loops.arrays import grown
from headgate.loops.slots import SlotPool, unheld
from headgate.loops.store import ColumnStore
from headgate.model.visibility import Visibility
from headgate.operators.label_sets import LabelSets, label_sets
from headgate.operators.program import ARRIVAL, LABEL, STREAM, TIME, VISIBILITY, Program
from headgate.plan.reserved import LEVEL

_EMPTY = np.empty(0, np.int64)


class TupleStore:
    def __init__(self, program: Program, schema: pa.Schema) -> None:
        self.program = program
        self.schema = schema
        self._pool = SlotPool()
        self._columns = ColumnStore(schema)
        self._holders: Ints = np.zeros(0, np.int64)
        self._present: Ints = np.zeros(0, np.int64)
        self._released: list[Ints] = []
        self._lock = threading.Lock()  # view groups run in parallel

    def __len__(self) -> int:
        return self._pool.used

    def add(self, table: pa.Table) -> Ints:
        """Put tuples in; returns their slots. They are gone with `release` unless somebody holds them."""
        slots = self._pool.take(table.num_rows)
        self._holders = grown(self._holders, self._pool.capacity)
        self._holders[slots] = 1
        self._columns.put(slots, {name: table.column(name) for name in self.schema.names}, capacity=self._pool.capacity)
        self._count(slots, 1)
        return slots

    def hold(self, slots: Ints) -> None:
        """Hold tuples, each given once."""
        with self._lock:
            self._holders[slots] += 1

    def release(self, slots: Ints) -> None:
        """No longer hold tuples, each given once. They stay readable until `settle`."""
        with self._lock:
            self._holders[slots] -= 1
            self._released.append(slots)

    def settle(self) -> None:
        """Tuples that nobody holds are gone."""
        slots = np.concatenate([_EMPTY, *self._released])
        self._released.clear()
        gone = np.empty(len(slots), np.int64)
        gone = gone[: unheld(slots, self._holders, gone)]
        if len(gone):
            self._count(gone, -1)
            self._columns.drop(gone)
            self._pool.give(gone)

    def numbers(self, name: str) -> Ints:
        """A number that every tuple has, by slot: its time, stream, arrival, label or visibility row."""
        return self._columns.numbers(name)

    @property
    def kept(self) -> Ints:
        """The slots of all tuples, in no order."""
        return np.flatnonzero(self._holders > 0)

    @property
    def present(self) -> Ints:
        """The visibility rows that occur."""
        return np.flatnonzero(self._present)

    def _count(self, slots: Ints, step: int) -> None:
        visibilities = self.numbers(VISIBILITY)[slots]
        if len(visibilities):
            self._present = grown(self._present, int(visibilities.max()) + 1)
            if step > 0:
                np.add.at(self._present, visibilities, 1)
            else:
                np.subtract.at(self._present, visibilities, 1)

    def renumber_visibility(self, changed: Ints) -> None:
        """Replace the visibility rows of all tuples after a change of rights."""
        kept, numbers = self.kept, self.numbers(VISIBILITY)
        numbers[kept] = changed[numbers[kept]]
        self._present = np.bincount(numbers[kept], minlength=1).astype(np.int64)

    def in_order(self, slots: Ints) -> Ints:
        """The slots in the order of SPEC.md, 4.2: by time, stream and arrival."""
        times = self.numbers(TIME)[slots]
        steps = np.diff(times)
        if (steps > 0).all():
            return slots
        stream, arrival = self.numbers(STREAM)[slots], self.numbers(ARRIVAL)[slots]
        return slots[np.lexsort((arrival, stream, times))]

    def table(self, slots: Ints) -> pa.Table:
        return pa.Table.from_arrays([self._columns.take(name, slots) for name in self.schema.names], schema=self.schema)

    def column(self, stream: str, name: str, slots: Ints) -> pa.Array:
        return self._columns.take(self.program.columns[stream, name], slots)

    def size(self, stream: str, name: str, slots: Ints) -> int:
        """The size of that column in bytes."""
        field = self.program.columns[stream, name]
        if not pa.types.is_string(self.schema.field(field).type):
            return size_of(None, slots)
        return size_of(self._columns.lengths(field, slots).astype(np.int32), np.arange(len(slots)))


class VisibleTuples:
    """The tuples of a store as one view sees them."""

    def __init__(self, store: TupleStore, visibility: Visibility, view: int) -> None:
        self._store = store
        self._visibility = visibility
        self._view = view

    def numbers(self, name: str) -> Ints:
        return self._store.numbers(name)

    def labels(self, slots: Ints) -> LabelSets:
        """Each tuple's own label."""
        return label_sets(self._store.numbers(LABEL)[slots])

    def visible(self, slots: Ints) -> Bools:
        """Which tuples the view sees."""
        return self._visibility.visible(self._view)[self._store.numbers(VISIBILITY)[slots]]

    def of_stream(self, stream: str, slots: Ints) -> Bools:
        streams = self._store.program.streams
        if len(streams) == 1:
            return np.ones(len(slots), np.bool_)
        return np.asarray(self._store.numbers(STREAM)[slots] == streams.index(stream), np.bool_)

    def column(self, stream: str, name: str, slots: Ints) -> pa.Array:
        """A column for some of the tuples, all of this stream; NULL where the view may not see it."""
        if name == LEVEL:
            kinds, kind = dense(self._store.numbers(LABEL)[slots])
            texts = pa.array([self._visibility.levels[number] for number in kinds.tolist()], pa.string())
            return texts.take(pa.array(kind))
        array = self._store.column(stream, name, slots)
        hidden = self.hidden(stream, name, slots)
        return array if hidden is None else pc.if_else(pa.array(~hidden), array, pa.scalar(None, array.type))

    def hidden(self, stream: str, name: str, slots: Ints) -> Bools | None:
        """Where the view may not see a column; None if it may see it everywhere."""
        hiding = [number for number, mask in enumerate(self._visibility.masks) if (stream, name) in mask]
        if not hiding:
            return None
        masks = self._visibility.table[self._store.numbers(VISIBILITY)[slots], self._view] - 1
        return np.isin(masks, hiding)

    def size(self, stream: str, name: str, slots: Ints) -> int:
        """The size of that column in bytes, counting only values that the view may see."""
        if name == LEVEL:
            kinds, kind = dense(self._store.numbers(LABEL)[slots])
            texts = (self._visibility.levels[number].encode() for number in kinds.tolist())
            return size_of(np.fromiter(map(len, texts), np.int32, len(kinds)), kind)
        hidden = self.hidden(stream, name, slots)
        return self._store.size(stream, name, slots if hidden is None else slots[~hidden])
