"""Numbers are given anew in the order in which they occur."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.loops.dictionary import by_occurrence


@settings(deadline=None)  # the first call compiles
@given(st.lists(st.integers(0, 9), max_size=30))
def test_numbers_follow_their_first_occurrence(numbers: list[int]) -> None:
    given_, found = np.array(numbers, np.int32), np.empty(len(numbers), np.int32)
    order = np.empty(10, np.int32)
    count = by_occurrence(given_, found, np.full(10, -1, np.int32), order)
    assert order[:count].tolist() == list(dict.fromkeys(numbers))
    assert order[found].tolist() == numbers
