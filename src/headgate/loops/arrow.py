"""Arrow columns as arrays and back. Loops read numbers, bytes and offsets; operators read and write Arrow."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Array = npt.NDArray[Any]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Bytes = npt.NDArray[np.uint8]

MOST_BYTES = 2**31 - 1
"""Bytes of the texts of one Arrow column: its offsets have 32 bits."""


def is_text(type_: pa.DataType) -> bool:
    return bool(pa.types.is_string(type_) or pa.types.is_binary(type_))


def number_type(type_: pa.DataType) -> np.dtype[Any]:
    """The type of a column's values as numbers: days for dates, microseconds for timestamps."""
    if pa.types.is_date32(type_):
        return np.dtype(np.int32)
    if pa.types.is_timestamp(type_) and type_.unit == "us":
        return np.dtype(np.int64)
    if pa.types.is_boolean(type_):
        return np.dtype(np.bool_)
    if pa.types.is_signed_integer(type_) or pa.types.is_float32(type_) or pa.types.is_float64(type_):
        kind: np.dtype[Any] = np.dtype(type_.to_pandas_dtype())
        return kind
    raise ValueError(f"cannot keep values of type `{type_}`: loops have no form for them")


def one_chunk(array: pa.Array | pa.ChunkedArray) -> pa.Array:
    if not isinstance(array, pa.ChunkedArray):
        return array
    return array.chunk(0) if array.num_chunks == 1 else pa.concat_arrays(array.chunks or [pa.array([], array.type)])


def valid_of(array: pa.Array) -> Bools | None:
    """Which values are not NULL; None if none is."""
    return array.is_valid().to_numpy(zero_copy_only=False) if array.null_count else None


def numbers_of(array: pa.Array) -> Array:
    """The values of a column as numbers, 0 where they are NULL."""
    kind = number_type(array.type)
    if kind == np.bool_:
        return np.asarray((array.fill_null(False) if array.null_count else array).to_numpy(zero_copy_only=False))
    if not len(array):
        return np.empty(0, kind)
    values = np.frombuffer(array.buffers()[1], kind)[array.offset : array.offset + len(array)]
    valid = valid_of(array)
    return values if valid is None else np.where(valid, values, kind.type(0))


def bytes_of(array: pa.Array) -> tuple[Bytes, Ints]:
    """The bytes of a column of texts, and for each text where it begins in them; at last where the last ends."""
    _, offsets, data = array.buffers()
    if not len(array) or offsets is None:
        return np.empty(0, np.uint8), np.zeros(len(array) + 1, np.int64)
    places = np.frombuffer(offsets, np.int32)[array.offset : array.offset + len(array) + 1].astype(np.int64)
    found = np.frombuffer(data, np.uint8) if data is not None and data.size else np.empty(0, np.uint8)
    return found[places[0] : places[-1]], places - places[0]


def from_numbers(type_: pa.DataType, values: Array, valid: Bools | None) -> pa.Array:
    """The column of this type with these values."""
    data = _bits(values) if values.dtype == np.bool_ else pa.py_buffer(np.ascontiguousarray(values))
    return pa.Array.from_buffers(type_, len(values), [_bitmap(valid), data])


def from_bytes(type_: pa.DataType, data: Bytes, places: Ints, valid: Bools | None) -> pa.Array:
    """The column of texts with these bytes, as `bytes_of` gives them."""
    buffers = [_bitmap(valid), pa.py_buffer(places.astype(np.int32)), pa.py_buffer(data)]
    return pa.Array.from_buffers(type_, len(places) - 1, buffers)


def _bitmap(valid: Bools | None) -> pa.Buffer | None:
    return None if valid is None or valid.all() else _bits(valid)


def _bits(values: Bools) -> pa.Buffer:
    return pa.py_buffer(np.packbits(values, bitorder="little"))
