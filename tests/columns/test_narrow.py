"""Columns with few distinct numbers are kept as bytes; only memory differs."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.columns.narrow import (
    above,
    narrow_table,
    narrowed,
    of_kinds,
    offsets,
    positions_of,
    renumbered,
    used,
    widened_table,
)
from headgate.operators.label_sets import LabelSets, label_sets, side_by_side

KINDS = st.sampled_from([1, 2, 3, 9, 24, 25, 200, 255, 256, 300])


@st.composite
def columns(draw: st.DrawFn) -> tuple[int, list[int]]:
    kinds = draw(KINDS)
    return kinds, draw(st.lists(st.integers(0, kinds - 1), max_size=40))


@given(columns())
def test_bytes_mean_the_numbers_that_they_stand_for(column: tuple[int, list[int]]) -> None:
    kinds, values = column
    wide = np.array(values, np.int64)
    narrow = narrowed(wide, kinds)
    assert narrow.dtype == (np.uint8 if kinds < 256 else np.int64)
    assert narrow.tolist() == values
    there = used(narrow, kinds)
    assert there.tolist() == [kind in values for kind in range(kinds)]
    assert renumbered(narrow, positions_of(there)).tolist() == [sorted(set(values)).index(x) for x in values]
    others = [(7 * kind + 3) % kinds for kind in range(kinds)]
    assert renumbered(narrow, others).tolist() == [others[x] for x in values]
    chosen = [kind % 3 == 1 for kind in range(kinds)]
    assert of_kinds(narrow, chosen).tolist() == [chosen[x] for x in values]
    assert of_kinds(narrow, chosen).dtype == np.bool_


@given(st.lists(st.one_of(st.integers(-(1 << 63), (1 << 63) - 1), st.integers(1_000, 1_300)), max_size=8))
def test_numbers_are_what_lies_above_their_least(values: list[int]) -> None:
    least, distances = offsets(np.array(values, np.int64))
    found = above(least, distances)
    assert found.tolist() == values and found.dtype == np.int64
    if values and max(values) - min(values) < 256:
        assert distances.dtype == np.uint8


def members(found: LabelSets) -> list[frozenset[int]]:
    return [found.sets[x] for x in found.numbers.tolist()]


@given(st.lists(st.tuples(columns(), st.integers(0, 5)), min_size=1, max_size=3), st.integers(0, 40))
def test_rows_have_the_labels_of_all_their_sides(sides: list[tuple[tuple[int, list[int]], int]], size: int) -> None:
    """Few labels on each side, and so many that their pairs are more than bytes can number."""
    given = [np.array([(11 * x + shift) for x in (values * 40)[:size]], np.int64) for (_, values), shift in sides]
    size = min(map(len, given))
    found = side_by_side([label_sets(x[:size]) for x in given])
    expected = [frozenset(row) for row in zip(*(x[:size].tolist() for x in given), strict=True)]
    assert members(found) == expected
    assert set(found.sets) == set(expected)
    rows = np.arange(size)[::2]
    assert members(found.at(rows)) == expected[::2]


NUMBERS = st.integers(-(2**63), 2**63 - 1) | st.integers(-5, 5) | st.integers(10**12, 10**12 + 300)


@settings(deadline=None)  # the first table takes longer
@given(st.lists(st.tuples(NUMBERS, NUMBERS, st.integers(-(2**31), 2**31 - 1), st.none() | NUMBERS), max_size=30))
def test_a_table_in_narrow_columns_is_the_same_table(rows: list[tuple[int, int, int, int | None]]) -> None:
    wide, ascending, small, gaps = zip(*rows, strict=True) if rows else ((), (), (), ())
    types = {"wide": pa.int64(), "ascending": pa.int64(), "small": pa.int32(), "gaps": pa.int64(), "text": pa.string()}
    values = {"wide": wide, "ascending": sorted(ascending), "small": small, "gaps": gaps, "text": list(map(str, small))}
    table = pa.table({name: pa.array(values[name], type_) for name, type_ in types.items()}, metadata={"a": "b"})
    assert widened_table(narrow_table(table)).equals(table, check_metadata=True)


def test_numbers_that_ascend_in_small_steps_take_a_byte_each() -> None:
    table = pa.table({"n": pa.array(np.arange(0, 10**6, 100))})
    assert narrow_table(table).column("n").type == pa.uint8()
