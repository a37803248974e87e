"""Columns with nothing beneath NULL. Arrow marks a value as NULL and may leave it where it is, as it does when a column
is hidden from a view: whoever receives the column's bytes could read it there."""

from __future__ import annotations

import numpy as np
import pyarrow as pa


def cleared(array: pa.Array) -> pa.Array:
    """The same column, made of the values that are not NULL and of nothing else."""
    if not array.null_count:
        return array
    valid = array.is_valid().to_numpy(zero_copy_only=False)
    places = np.maximum(np.cumsum(valid) - 1, 0)
    return array.drop_null().take(pa.array(places, mask=~valid))
