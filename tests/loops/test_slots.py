"""Slots against a plain queue."""

from __future__ import annotations

from collections import deque
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.loops.slots import SlotPool


@settings(deadline=None)
@given(st.lists(st.tuples(st.booleans(), st.integers(0, 40)), max_size=60), st.randoms())
def test_freed_slots_are_used_again_in_the_order_in_which_they_were_freed(
    steps: list[tuple[bool, int]], random: Random
) -> None:
    pool, freed, taken, fresh = SlotPool(), deque[int](), list[int](), 0
    for takes, count in steps:
        if takes:
            expected = [freed.popleft() if freed else -1 for _ in range(count)]
            new = expected.count(-1)
            expected[count - new :] = range(fresh, fresh + new)
            fresh += new
            assert pool.take(count).tolist() == expected
            taken += expected
        else:
            random.shuffle(taken)
            given_back, taken = taken[:count], taken[count:]
            pool.give(np.array(given_back, np.int64))
            freed += given_back
        assert pool.used == len(taken)
        assert pool.capacity >= fresh


def test_a_window_of_rows_stays_within_few_slots_in_ascending_order() -> None:
    pool = SlotPool()
    held = deque(pool.take(100) for _ in range(10))
    for _ in range(1000):
        pool.give(held.popleft())
        held.append(pool.take(100))
        assert (np.diff(held[-1]) == 1).all()
    assert pool.capacity <= 1500


@pytest.mark.parametrize("slots", [[1, 1], [3], [-1], [10**6]])
def test_a_slot_that_is_not_taken_cannot_be_freed(slots: list[int]) -> None:
    pool = SlotPool()
    pool.take(3)
    with pytest.raises(ValueError, match=f"^cannot free slot {slots[-1]}: it is not taken$"):
        pool.give(np.array(slots, np.int64))
    assert len(set(pool.take(5).tolist())) == 5
