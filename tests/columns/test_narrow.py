"""Columns with few distinct numbers are kept as bytes; only memory differs."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from headgate.columns.narrow import above, narrowed, of_kinds, offsets, positions_of, renumbered, used
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
