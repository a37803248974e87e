"""The tuples that arrive in one batch, for blocks without windows, in the order of SPEC.md, 4.2, and what one view
sees of them.

Columns are not copied: order and visibility are row numbers, and a column is gathered when an expression reads it,
once, for just the tuples that it needs.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headgate.columns.sorting import Bools, Ints, dense, distinct
from headgate.expressions.limits import lengths_of, size_of
from headgate.model.visibility import Visibility
from headgate.operators.label_sets import LabelSets, label_sets
from headgate.operators.program import ARRIVAL, LABEL, STREAM, TIME, VISIBILITY, Program
from headgate.plan.reserved import LEVEL

_LATEST = 1 << 62


class Tuples:
    """The rows of a table in the given order (None: as they are stored)."""

    def __init__(self, program: Program, table: pa.Table, order: Ints | None = None) -> None:
        self.program = program
        self.table = table
        self.order = order
        self._numbers: dict[str, Ints] = {}
        self._lengths: dict[str, npt.NDArray[np.int32] | None] = {}
        self._plain: dict[str, tuple[npt.NDArray[Any] | None, pa.Array]] = {}

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def numbers(self, name: str) -> Ints:
        """A number that every tuple has, in order: its time, stream, arrival, label or visibility row."""
        if name not in self._numbers:
            found = self.table.column(name).to_numpy()
            self._numbers[name] = found if self.order is None else found[self.order]
        return self._numbers[name]

    @cached_property
    def present(self) -> Ints:
        """The visibility rows that occur."""
        return distinct(self.numbers(VISIBILITY))

    @cached_property
    def labels(self) -> LabelSets:
        """Each tuple's own label."""
        return label_sets(self.numbers(LABEL))

    def taken(self, places: Ints) -> pa.Table:
        if self.order is None and len(places) == len(self):
            return self.table.combine_chunks()
        return self.table.take(pa.array(places if self.order is None else self.order[places])).combine_chunks()

    def column(self, stream: str, name: str, rows: Ints) -> pa.Array:
        """A column of a stream in these rows of the table, all of this stream."""
        field = self.program.columns[stream, name]
        if field not in self._plain:
            array, own = _whole(self.table.column(field)), self.program.streams.index(stream)
            others = int(np.count_nonzero(self.table.column(STREAM).to_numpy() != own))
            self._plain[field] = as_numbers(array, others), array
        plain, array = self._plain[field]
        if plain is None:
            return array.take(pa.array(rows))
        return of_numbers(plain[rows], array.type)

    def size(self, stream: str, name: str, rows: Ints) -> int:
        """The size of that column in bytes."""
        field = self.program.columns[stream, name]
        if field not in self._lengths:
            self._lengths[field] = lengths_of(_whole(self.table.column(field)))
        return size_of(self._lengths[field], rows)


class VisibleArrivals:
    """Some of the tuples, in order, as one view sees them. `places` are their positions among all (None: all of
    them)."""

    def __init__(self, tuples: Tuples, places: Ints | None, visibility: Visibility, view: int) -> None:
        self._tuples = tuples
        self._places = places
        self._visibility = visibility
        self._view = view
        self._rows: dict[int, tuple[Ints, Ints]] = {}

    def __len__(self) -> int:
        return len(self._tuples) if self._places is None else len(self._places)

    @cached_property
    def times(self) -> Ints:
        return self.numbers(TIME)

    @cached_property
    def labels(self) -> LabelSets:
        return label_sets(self.numbers(LABEL))

    def of_stream(self, stream: str) -> Bools:
        streams = self._tuples.program.streams
        if len(streams) == 1:
            return np.ones(len(self), np.bool_)
        return np.asarray(self.numbers(STREAM) == streams.index(stream), np.bool_)

    def column(self, stream: str, name: str, places: Ints) -> pa.Array:
        """A column for some of the tuples, all of this stream; NULL where the view may not see it."""
        if name == LEVEL:
            kinds, kind = dense(self.numbers(LABEL)[places])
            texts = pa.array([self._visibility.levels[number] for number in kinds.tolist()], pa.string())
            return texts.take(pa.array(kind))
        array = self._tuples.column(stream, name, self._table_rows(places))
        hidden = self._hidden(stream, name, places)
        return array if hidden is None else pc.if_else(pa.array(~hidden), array, pa.scalar(None, array.type))

    def _hidden(self, stream: str, name: str, places: Ints) -> Bools | None:
        """Where the view may not see a column; None if it may see it everywhere."""
        hiding = [number for number, mask in enumerate(self._visibility.masks) if (stream, name) in mask]
        if not hiding:
            return None
        return np.isin(self._visibility.table[self.numbers(VISIBILITY)[places], self._view] - 1, hiding)

    def size(self, stream: str, name: str, places: Ints) -> int:
        """The size of that column in bytes, counting only values that the view may see."""
        if name == LEVEL:
            kinds, kind = dense(self.numbers(LABEL)[places])
            texts = (self._visibility.levels[number].encode() for number in kinds.tolist())
            return size_of(np.fromiter(map(len, texts), np.int32, len(kinds)), kind)
        hidden = self._hidden(stream, name, places)
        return self._tuples.size(stream, name, self._table_rows(places if hidden is None else places[~hidden]))

    def labels_at(self, places: Ints) -> LabelSets:
        """The labels of some of the tuples, without reading the labels of all others."""
        return self._tuples.labels.at(self._among_all(places))

    def numbers(self, name: str, places: Ints | None = None) -> Ints:
        """As `Tuples.numbers`, for the visible tuples or for some of them."""
        numbers = self._tuples.numbers(name)
        if places is not None:
            return numbers[self._among_all(places)]
        return numbers if self._places is None else numbers[self._places]

    def _among_all(self, places: Ints) -> Ints:
        return places if self._places is None else self._places[places]

    def _table_rows(self, places: Ints) -> Ints:
        """The rows of the table at which tuples are stored. Several columns are read at the same positions, so they are
        looked up once."""
        if id(places) not in self._rows:
            rows = self._among_all(places)
            rows = rows if self._tuples.order is None else self._tuples.order[rows]
            self._rows[id(places)] = places, rows  # keeps `places` alive, so that no other array gets its id
        return self._rows[id(places)][1]


def in_order(table: pa.Table, streams: int) -> Ints | None:
    """The order of SPEC.md, 4.2: by time, stream and arrival; None if the rows are stored in that order."""
    times, stream, arrival = (table.column(name).to_numpy() for name in (TIME, STREAM, ARRIVAL))
    if streams > 1 and len(times) and max(-int(times.min()), int(times.max())) >= _LATEST // streams:
        return np.lexsort((arrival, stream, times))
    key = times * streams + stream if streams > 1 else times
    steps = np.diff(key)
    if not (steps < 0).any() and not (np.diff(arrival)[steps == 0] < 0).any():
        return None
    order = np.argsort(key, kind="stable")  # a stable sort merges runs that are in order
    ties = np.flatnonzero(np.diff(key[order]) == 0)
    if (arrival[order[ties]] > arrival[order[ties + 1]]).any():
        return np.lexsort((arrival, stream, times))
    return order


def as_numbers(array: pa.Array, others: int = 0) -> npt.NDArray[Any] | None:
    """The values as they lie in memory, if only tuples of `others`, other streams, have NULL."""
    type_ = array.type
    if array.null_count != others or not (
        pa.types.is_integer(type_) or pa.types.is_floating(type_) or pa.types.is_temporal(type_)
    ):
        return None
    kind = "f" if pa.types.is_floating(type_) else "i"
    values = np.frombuffer(array.buffers()[1], f"{kind}{type_.bit_width // 8}") if len(array) else np.empty(0, kind)
    return values[array.offset : array.offset + len(array)]


def of_numbers(values: npt.NDArray[Any], type_: pa.DataType) -> pa.Array:
    """The array with these values, none of which is NULL."""
    return pa.Array.from_buffers(type_, len(values), [None, pa.py_buffer(values)])


def _whole(array: pa.ChunkedArray) -> pa.Array:
    return array.chunk(0) if array.num_chunks == 1 else array.combine_chunks()
