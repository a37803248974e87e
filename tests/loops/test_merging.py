"""Parts that are in order are merged as sorting does it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.loops.merging import MERGED, TIED, UNORDERED, merge

ROWS = st.lists(st.lists(st.tuples(st.integers(-3, 3), st.integers(0, 3)), max_size=8), min_size=1, max_size=9)


def merged(parts: list[list[tuple[int, int]]]) -> tuple[int, list[tuple[int, int]]]:
    rows = [row for part in parts for row in part]
    order, other = np.empty((2, len(rows)), np.int64)
    keys = np.array(rows, np.int64).reshape(-1, 2).T.copy()
    found = merge(keys, np.cumsum([len(part) for part in parts]), order, other)
    return found, [rows[x] for x in order.tolist()] if found == MERGED else []


@settings(deadline=None)  # the first call compiles
@given(ROWS)
def test_parts_are_merged_or_what_is_in_the_way_is_told(parts: list[list[tuple[int, int]]]) -> None:
    parts = [sorted(part) for part in parts]
    found, rows = merged(parts)
    everything = [row for part in parts for row in part]
    shared = sum(len(set(part)) for part in parts) > len(set(everything))
    assert (found == TIED) == shared
    assert shared or rows == sorted(everything)


@pytest.mark.parametrize("parts", [[[(2, 0), (1, 0)]], [[(0, 0)], [(1, 1), (1, 0)]]])
def test_a_part_that_is_not_in_order_is_told(parts: list[list[tuple[int, int]]]) -> None:
    assert merged(parts)[0] == UNORDERED
