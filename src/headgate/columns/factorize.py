"""Factorize columns: equal values get equal codes, so that keys and groups are compared as whole columns of numbers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headgate.columns.sorting import Bools, Ints, dense

NULL_CODE = -1


def codes(arrays: Sequence[pa.Array], *, null_is_a_value: bool) -> Ints:
    """One code for each row of these columns. NULL is a value of its own (groups) or makes the code -1 (joins)."""
    if not arrays:
        raise ValueError("there is nothing to tell rows apart by")
    combined, missing = _codes(arrays[0])
    for array in arrays[1:]:
        indices, none = _codes(array)
        combined = dense(combined * (int(indices.max(initial=0)) + 1) + indices)[1]  # dense: products stay small
        missing = _either(missing, none)
    if missing is not None and not null_is_a_value:
        combined[missing] = NULL_CODE
    return combined


def _codes(array: pa.Array) -> tuple[Ints, Bools | None]:
    """The codes of one column, and which rows are NULL; None if none is."""
    if pa.types.is_integer(array.type) and not array.null_count:
        return dense(array.to_numpy().astype(np.int64))[1], None
    encoded = _plain(array).dictionary_encode()
    indices = encoded.indices
    if indices.null_count:
        indices = indices.fill_null(len(encoded.dictionary))
    numbers = indices.to_numpy().astype(np.int64)
    return numbers, numbers == len(encoded.dictionary) if encoded.indices.null_count else None


def _either(a: Bools | None, b: Bools | None) -> Bools | None:
    return b if a is None else a if b is None else a | b


def _plain(array: pa.Array) -> pa.Array:
    """The column with one zero: -0.0 becomes 0.0, since they are equal."""
    return pc.add(array, pa.scalar(0.0, array.type)) if pa.types.is_floating(array.type) else array
