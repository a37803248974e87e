"""Numbers for values: equal where the values are equal, so that keys and groups are compared as whole columns."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headgate.engine.kernels.rows import Ints

NULL_CODE = -1
_FEW = 1024


def codes(arrays: Sequence[pa.Array], *, null_is_a_value: bool) -> Ints:
    """One number for each row of these columns. NULL is a value of its own (groups) or makes the row -1 (joins)."""
    if not arrays:
        raise ValueError("there is nothing to tell rows apart by")
    combined = np.zeros(len(arrays[0]), np.int64)
    missing = np.zeros(len(arrays[0]), np.bool_)
    for array in arrays:
        encoded = _plain(array).dictionary_encode()
        indices = encoded.indices.fill_null(len(encoded.dictionary)).to_numpy(zero_copy_only=False).astype(np.int64)
        missing |= indices == len(encoded.dictionary)
        combined = combined * (len(encoded.dictionary) + 1) + indices
        if len(arrays) > 1:  # dense again, so that products stay small
            combined = dense(combined)[1]
    if not null_is_a_value:
        combined[missing] = NULL_CODE
    return combined


def dense(values: Ints) -> tuple[Ints, Ints]:
    """The different values, in order, and for each row the place of its value among them."""
    if not len(values):
        return values, values
    low, high = int(values.min()), int(values.max())
    if high - low > 4 * len(values) + _FEW:  # too far apart to be counted
        kinds, places = np.unique(values, return_inverse=True)
        return kinds, places.astype(np.int64)
    there = np.zeros(high - low + 1, np.bool_)
    there[values - low] = True
    kinds = np.flatnonzero(there)
    if len(kinds) == len(there):
        return kinds + low, values - low
    return kinds + low, (np.cumsum(there) - 1)[values - low]


def ranks(array: pa.Array) -> tuple[Ints, pa.Array]:
    """For each value its place among the values that occur, and these in order; NULL is -1."""
    encoded = _plain(array).dictionary_encode()
    order = pc.sort_indices(encoded.dictionary).to_numpy()
    place = np.empty(len(order) + 1, np.int64)
    place[order] = np.arange(len(order))
    place[-1] = NULL_CODE
    indices = encoded.indices.fill_null(len(order)).to_numpy(zero_copy_only=False).astype(np.int64)
    return place[indices], encoded.dictionary.take(pa.array(order))


def _plain(array: pa.Array) -> pa.Array:
    """As one piece, with one zero: -0.0 equals 0.0."""
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
    return pc.add(array, pa.scalar(0.0, array.type)) if pa.types.is_floating(array.type) else array
