"""The tuples that a partition keeps, by column. Each tuple has a slot, which is its own until nobody holds it any more.

View groups hold tuples, and so does the list of waiting tuples: each holder is counted, and a tuple that nobody holds
is gone. What a batch costs here follows what it brings and takes away, not what is kept.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headgate.columns.sorting import Bools, Ints, dense
from headgate.expressions.limits import size_of
from headgate.loops.arrays import grown
from headgate.loops.arrow import is_text
from headgate.loops.slots import SlotPool, count_holders, count_kinds, renumber, seen_of, unheld
from headgate.loops.store import ColumnStore
from headgate.loops.windows import first_from, is_ordered, merged_runs
from headgate.model.visibility import Visibility
from headgate.operators.label_sets import LabelSets, label_sets
from headgate.operators.program import ARRIVAL, LABEL, STREAM, TIME, VISIBILITY, Program
from headgate.plan.reserved import LEVEL

_EMPTY = np.empty(0, np.int64)
_LATEST = 1 << 62
_EARLIEST = -_LATEST


class TupleStore:
    def __init__(self, program: Program, schema: pa.Schema) -> None:
        self.program = program
        self.schema = schema
        self._pool = SlotPool()
        self._columns = ColumnStore(schema)
        self._holders = np.zeros(0, np.int32)
        self._present: Ints = np.zeros(0, np.int64)
        self._released: list[Ints] = []
        self._lock = threading.Lock()  # view groups run in parallel

    def __len__(self) -> int:
        """How many tuples somebody holds."""
        released = np.concatenate([_EMPTY, *self._released])
        return self._pool.used - len(np.unique(released[~self.is_held(released)]))

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
            count_holders(slots, self._holders, 1)

    def release(self, slots: Ints) -> None:
        """No longer hold tuples, each given once. They stay readable until `settle`."""
        with self._lock:
            count_holders(slots, self._holders, -1)
            self._released.append(slots)

    def settle(self) -> Ints:
        """Tuples that nobody holds are gone; returns their slots, which keep their numbers until they are used
        again."""
        gone, count = np.empty(sum(map(len, self._released)), np.int64), 0
        for slots in self._released:
            count += unheld(slots, self._holders, gone[count:])
        self._released.clear()
        gone = gone[:count]
        if len(gone):
            gone.sort(kind="stable")  # merges runs: each was released in order; loops are fast where slots ascend
            self._count(gone, -1)
            self._columns.drop(gone)
            self._pool.give(gone)
        return gone

    @property
    def holders(self) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
        """By slot: how many hold what is in it."""
        return self._holders

    def is_held(self, slots: Ints) -> Bools:
        """Whether anybody holds what is in these slots."""
        return np.asarray(self._holders[slots] > 0, np.bool_)

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
        rows, done = self.numbers(VISIBILITY), 0
        while (done := done + count_kinds(slots[done:], rows, self._present, step)) < len(slots):
            self._present = grown(self._present, int(rows[slots].max()) + 1)

    def renumber_visibility(self, changed: Ints) -> None:
        """Replace the visibility rows of all tuples after a change of rights."""
        if (changed[self.present] < 0).any():
            raise IndexError("cannot forget a visibility row: tuples have it")
        self._present = np.zeros(int(changed.max(initial=0)) + 1, np.int64)
        renumber(self._holders, self.numbers(VISIBILITY), changed, self._present)

    def in_order(self, slots: Ints) -> Ints:
        """The slots in the order of SPEC.md, 4.2: by time, stream and arrival."""
        keys = tuple(self.numbers(name) for name in (TIME, STREAM, ARRIVAL))
        if is_ordered(slots, *keys):
            return slots
        merged = slots[np.argsort(self._sort_key(slots), kind="stable")]  # runs that are in order are merged
        if is_ordered(merged, *keys):
            return merged
        return slots[np.lexsort(tuple(key[slots] for key in reversed(keys)))]

    def merged(self, runs: Sequence[Ints]) -> Ints:
        """The slots of several runs, each of which is in order, in order."""
        keys = tuple(self.numbers(name) for name in (TIME, STREAM, ARRIVAL))
        waiting = sorted(runs, key=len)
        while len(waiting) > 1:
            found = np.empty(len(waiting[0]) + len(waiting[1]), np.int64)
            merged_runs(waiting[0], waiting[1], *keys, found)
            waiting = sorted([found, *waiting[2:]], key=len)
        return waiting[0] if waiting else _EMPTY

    def before(self, slots: Ints, time: int, stream: int = -1, arrival: int = _EARLIEST) -> int:
        """How many of these slots, which are in order, come before this position."""
        return first_from(slots, *(self.numbers(name) for name in (TIME, STREAM, ARRIVAL)), (time, stream, arrival))

    def seen(self, slots: Ints, seen: Bools) -> Ints:
        """The slots of tuples whose visibility row is seen."""
        if (self.present >= len(seen)).any():  # loops do not check
            raise IndexError(f"cannot tell who sees all tuples: there are {len(seen)} visibility rows")
        found = np.empty(len(slots), np.int64)
        found = found[: seen_of(slots, self.numbers(VISIBILITY), seen, found)]
        return slots if len(found) == len(slots) else found

    def _sort_key(self, slots: Ints) -> Ints:
        """Time and stream as one number, where that fits."""
        times, streams = self.numbers(TIME)[slots], len(self.program.streams)
        if streams == 1 or int(np.abs(times).max(initial=0)) >= _LATEST // streams:
            return times
        return times * streams + self.numbers(STREAM)[slots]

    def together(self, parts: Sequence[Ints]) -> Ints:
        """The slots of all parts, each of which is in order, once each and in order. Mostly one part has all."""
        if not parts:
            return _EMPTY
        largest = max(parts, key=len)
        there = np.zeros(self._pool.capacity, np.bool_)
        there[largest] = True
        others = [x[~there[x]] for x in parts if x is not largest]
        if not any(map(len, others)):
            return largest
        for x in others:
            there[x] = True
        return self.in_order(np.flatnonzero(there))

    def table(self, slots: Ints) -> pa.Table:
        return pa.Table.from_arrays([self._columns.take(name, slots) for name in self.schema.names], schema=self.schema)

    def column(self, stream: str, name: str, slots: Ints) -> pa.Array:
        return self._columns.take(self.program.columns[stream, name], slots)

    def size(self, stream: str, name: str, slots: Ints) -> int:
        """The size of that column in bytes."""
        field = self.program.columns[stream, name]
        if not is_text(self.schema.field(field).type):
            return size_of(None, slots)
        return size_of(self._columns.lengths(field, slots).astype(np.int32), np.arange(len(slots)))


class VisibleTuples:
    """The tuples of a store as one view sees them."""

    def __init__(self, store: TupleStore, visibility: Visibility, view: int) -> None:
        self._store = store
        self._visibility = visibility
        self._view = view

    def numbers(self, name: str, places: Ints | None = None) -> Ints:
        """As `TupleStore.numbers`, for all slots or for some of them."""
        found = self._store.numbers(name)
        return found if places is None else found[places]

    def labels(self, slots: Ints) -> LabelSets:
        """Each tuple's own label."""
        return label_sets(self._store.numbers(LABEL)[slots])

    def visible(self, slots: Ints) -> Ints:
        """The tuples that the view sees."""
        return self._store.seen(slots, self._visibility.visible(self._view))

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
