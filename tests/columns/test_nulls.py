"""Columns with nothing beneath NULL."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from headgate.columns.nulls import cleared

COLUMNS = [
    pa.array([1, 2, 3, 4], pa.int32()),
    pa.array([1.5, 2.5, 3.5, 4.5]),
    pa.array(["one", "two", "three", "four"]),
    pa.array([b"one", b"two", b"three", b"four"]),
    pa.array([True, True, True, True]),
    pa.array([1, 2, 3, 4], pa.timestamp("ms", "UTC")),
    pa.nulls(4),
]


@pytest.mark.parametrize("column", COLUMNS, ids=lambda x: str(x.type))
@pytest.mark.parametrize("kept", [[0, 0, 0, 0], [1, 1, 1, 1], [0, 1, 0, 1], [1, 0, 0, 0]], ids=str)
def test_a_column_keeps_its_values_and_nothing_else(column: pa.Array, kept: list[int]) -> None:
    chosen = np.array(kept, np.bool_)
    hidden = pc.if_else(pa.array(chosen), column, pa.scalar(None, column.type))
    found = cleared(hidden)
    found.validate(full=True)
    assert found.to_pylist() == hidden.to_pylist() and found.type == column.type
    if pa.types.is_integer(column.type):
        beneath = np.frombuffer(found.buffers()[1], np.int32)[found.offset : found.offset + len(found)]
        assert set(beneath[~chosen].tolist()) <= {0, *beneath[chosen].tolist()}
