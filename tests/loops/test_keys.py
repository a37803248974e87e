"""Key codes against plain Python, and against the codes of one batch."""

from __future__ import annotations

import datetime as dt
import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.columns import factorize
from headgate.loops.keys import KeyCodes

_DAY = dt.date(2026, 1, 1)
_VALUES: dict[pa.DataType, list[Any]] = {
    pa.int64(): [None, 0, 1, 2**63 - 1, -(2**63), -1],
    pa.int8(): [None, 0, 1, -1],
    pa.float64(): [None, 0.0, -0.0, 1.5, math.nan, math.inf, 5e-324],
    pa.bool_(): [None, False, True],
    pa.date32(): [None, _DAY, _DAY.replace(year=1), _DAY.replace(day=2)],
    pa.timestamp("us", "UTC"): [None, dt.datetime(2026, 1, 1, tzinfo=dt.UTC), dt.datetime(1, 1, 1, tzinfo=dt.UTC)],
    pa.string(): [None, "", "a", "b", "é", "NULL"],
    pa.binary(): [None, b"", b"a", b"\0"],
}


def _arrays(types: list[pa.DataType], rows: list[tuple[Any, ...]]) -> list[pa.Array]:
    return [pa.array([row[n] for row in rows], type_) for n, type_ in enumerate(types)]


def _plain(row: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple("NaN" if isinstance(value, float) and math.isnan(value) else value for value in row)


@settings(deadline=None)
@given(st.data(), st.lists(st.sampled_from(sorted(_VALUES, key=str)), min_size=1, max_size=3), st.booleans())
def test_equal_rows_have_equal_codes_over_all_batches(
    data: st.DataObject, types: list[pa.DataType], null_is_a_value: bool
) -> None:
    codes, model = KeyCodes(*types), dict[tuple[Any, ...], int]()
    for _ in range(3):
        row = st.tuples(*(st.sampled_from(_VALUES[type_]) for type_ in types))
        rows = data.draw(st.lists(row, max_size=40))
        found = codes.codes(_arrays(types, rows), null_is_a_value=null_is_a_value)
        for values, code in zip(rows, found.tolist(), strict=True):
            if None in values and not null_is_a_value:
                assert code == -1
            else:
                assert code == model.setdefault(_plain(values), len(model))
        assert len(codes) == len(model)


def _partition(codes: np.ndarray[tuple[int], np.dtype[np.int64]]) -> list[int]:
    """The same for codes that tell the same rows apart."""
    seen: dict[int, int] = {-1: -1}
    return [seen.setdefault(code, len(seen)) for code in codes.tolist()]


@pytest.mark.parametrize("null_is_a_value", [False, True])
def test_rows_are_told_apart_as_in_one_batch(null_is_a_value: bool) -> None:
    random = np.random.default_rng(5)
    numbers = pa.array(random.integers(0, 30, 5000), mask=random.random(5000) < 0.1)
    doubles = pa.array(random.integers(0, 5, 5000) / 4)
    texts = pa.array(random.integers(0, 20, 5000), mask=random.random(5000) < 0.1).cast(pa.string())
    for arrays in ([numbers], [texts], [numbers, doubles], [texts, numbers], [doubles, texts, numbers]):
        codes = KeyCodes(*(array.type for array in arrays))
        parts = [
            codes.codes([array[n : n + 999] for array in arrays], null_is_a_value=null_is_a_value)
            for n in range(0, 5000, 999)
        ]
        expected = factorize.codes(arrays, null_is_a_value=null_is_a_value)
        assert _partition(np.concatenate(parts)) == _partition(expected)


def test_whole_numbers_of_different_widths_are_equal_by_value() -> None:
    codes = KeyCodes(pa.int32(), pa.string())
    texts = pa.array(["a", "b"])
    for type_ in (pa.int32(), pa.int64(), pa.int8()):
        found = codes.codes([pa.array([-7, 7], type_), pa.chunked_array([texts[:1], texts[1:]])], null_is_a_value=False)
        assert found.tolist() == [0, 1]
    assert KeyCodes(pa.float64()).codes([pa.array([0.5, -0.0, 0.0], pa.float32())], null_is_a_value=True).tolist() == [
        0,
        1,
        1,
    ]


def test_keys_of_another_kind_are_refused() -> None:
    codes = KeyCodes(pa.int64(), pa.string())
    with pytest.raises(ValueError, match=r"^cannot compare keys of types `int64, double`: they are integers, string$"):
        codes.codes([pa.array([1]), pa.array([1.0])], null_is_a_value=True)
    with pytest.raises(ValueError, match=r"^there is nothing to tell rows apart by$"):
        KeyCodes()
