"""Rows by slot, one array for each column, so that compiled loops read the values and operators get Arrow back."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from headgate.errors import HeadgateError
from headgate.loops.arrays import grown
from headgate.loops.arrow import (
    MOST_BYTES,
    Array,
    Bools,
    Ints,
    bytes_of,
    from_bytes,
    from_numbers,
    is_text,
    number_type,
    numbers_of,
    one_chunk,
    valid_of,
)
from headgate.loops.texts import TextHeap


class ColumnStore:
    """The columns of a schema. Rows are put into slots, read by slot in any order, and dropped.

    Every call costs in proportion to the slots it is given. Growing replaces arrays: loops ask for them again after
    each `put`. INVARIANT: a slot that is read was put; others hold 0, or what was dropped.
    """

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema
        self.capacity = 0
        self._numbers: dict[str, Array] = {}
        self._texts: dict[str, TextHeap] = {}
        self._valid: dict[str, Bools] = {}
        for field in schema:
            if is_text(field.type):
                self._texts[field.name] = TextHeap()
            else:
                self._numbers[field.name] = np.zeros(0, number_type(field.type))
        if len(self._numbers) + len(self._texts) < len(schema):
            raise ValueError(f"cannot keep columns by name: two have the same one in {schema.names}")

    def put(self, slots: Ints, arrays: Mapping[str, pa.Array | pa.ChunkedArray], *, capacity: int = 0) -> None:
        """Puts one row into each slot. `capacity` is that of the pool of slots: arrays have room for all of them."""
        self._check(slots, below=2**62)
        columns = {field.name: self._checked(field, arrays[field.name], len(slots)) for field in self.schema}
        needed = max(capacity, int(slots.max(initial=-1)) + 1)
        if needed > self.capacity:
            self._grow(max(needed, self.capacity + self.capacity // 2))
        for name, array in columns.items():
            self._put_valid(name, slots, valid_of(array))
            if name in self._texts:
                self._put_texts(name, slots, array)
            else:
                self._numbers[name][slots] = numbers_of(array)

    def take(self, name: str, slots: Ints) -> pa.Array:
        """The values of these slots, as they were put."""
        self._check(slots, below=self.capacity)
        type_ = self.schema.field(name).type
        valid = self._valid[name][slots] if name in self._valid else None
        if name not in self._texts:
            return from_numbers(type_, self._numbers[name][slots], valid)
        if int(self._texts[name].length[slots].sum(dtype=np.int64)) > MOST_BYTES:
            raise HeadgateError(f"cannot read {len(slots)} texts of `{name}` at once: they are longer than 2 GB")
        return from_bytes(type_, *self._texts[name].take(slots), valid)

    def drop(self, slots: Ints) -> None:
        """Forgets these rows."""
        self._check(slots, below=self.capacity)
        for texts in self._texts.values():
            texts.drop(slots)

    def numbers(self, name: str) -> Array:
        """The values by slot, for loops: 0 where they are NULL, days for dates, microseconds for timestamps."""
        return self._numbers[name]

    def valid(self, name: str) -> Bools | None:
        """By slot, whether the value is not NULL; None as long as no NULL was put."""
        return self._valid.get(name)

    def texts(self, name: str) -> TextHeap:
        """The texts by slot, for loops."""
        return self._texts[name]

    def lengths(self, name: str, slots: Ints) -> Ints:
        """How many bytes each text has; 0 where it is NULL."""
        self._check(slots, below=self.capacity)
        return self._texts[name].length[slots].astype(np.int64)

    @property
    def nbytes(self) -> int:
        """The memory of all columns."""
        arrays = [*self._numbers.values(), *self._valid.values()]
        return sum(array.nbytes for array in arrays) + sum(texts.nbytes for texts in self._texts.values())

    def _check(self, slots: Ints, below: int) -> None:
        """Refuses slots out of range: loops do not check, and would read and write memory of others."""
        if len(slots) and (slots.min() < 0 or slots.max() >= below):
            raise IndexError(f"cannot use slots {slots.min()} to {slots.max()}: there are {self.capacity}")

    def _checked(self, field: pa.Field, array: pa.Array | pa.ChunkedArray, count: int) -> pa.Array:
        if array.type != field.type:
            raise ValueError(f"cannot put `{array.type}` into column `{field.name}`: it has type `{field.type}`")
        if len(array) != count:
            raise ValueError(f"cannot put {len(array)} values of column `{field.name}` into {count} slots")
        return one_chunk(array)

    def _grow(self, capacity: int) -> None:
        for name, values in self._numbers.items():
            self._numbers[name] = grown(values, capacity)
        for name, valid in self._valid.items():
            self._valid[name] = grown(valid, capacity, 1)
        for texts in self._texts.values():
            texts.grow(capacity)
        self.capacity = capacity

    def _put_valid(self, name: str, slots: Ints, valid: Bools | None) -> None:
        if valid is not None and name not in self._valid:
            self._valid[name] = np.ones(self.capacity, np.bool_)
        if name in self._valid:
            self._valid[name][slots] = True if valid is None else valid

    def _put_texts(self, name: str, slots: Ints, array: pa.Array) -> None:
        if array.null_count:  # bytes under a NULL are allowed in Arrow and mean nothing
            array = array.fill_null("" if pa.types.is_string(array.type) else b"")
        self._texts[name].put(slots, *bytes_of(array))
