"""Counts by group and code against a Counter."""

from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.loops.counts import Counts, change, count

numbers = st.one_of(st.integers(0, 6), st.integers(-(2**63), 2**63 - 1))
steps = st.lists(st.tuples(st.integers(-1, 4), numbers, st.integers(-2, 2)), max_size=200)


def changed(counts: Counts, group: int, code: int, step: int) -> int:
    counts.reserve(1)
    return change(counts.table, counts.seed, counts.used, group, code, step)


@settings(max_examples=100, deadline=None)
@given(steps)
def test_counts_are_those_of_a_counter(given_steps: list[tuple[int, int, int]]) -> None:
    counts, wanted = Counts(), Counter[tuple[int, int]]()
    for group, code, step in given_steps:
        wanted[group, code] += step
        assert changed(counts, group, code, step) == wanted[group, code]
    for (group, code), number in wanted.items():
        assert count(counts.table, counts.seed, group, code) == number
    assert len(counts) == sum(number != 0 for number in wanted.values())


def test_a_window_of_values_leaves_no_dead_entries() -> None:
    counts = Counts()
    for code in range(5000):
        changed(counts, code % 3, code, 1)
        if code >= 100:
            assert changed(counts, (code - 100) % 3, code - 100, -1) == 0
    assert len(counts) == 100 == np.count_nonzero(counts.table[:, 2])
    assert len(counts.table) == 256


def test_a_table_shrinks_after_most_entries_are_gone() -> None:
    counts = Counts()
    for code in range(10_000):
        changed(counts, 0, code, 1)
    full = counts.nbytes
    for code in range(9_990):
        changed(counts, 0, code, -1)
    assert counts.nbytes * 8 < full
    assert [changed(counts, 0, code, 0) for code in range(9_989, 10_000)] == [0] + [1] * 10


def test_entries_lie_near_their_homes_for_dense_and_regular_codes() -> None:
    """The longest run of places in use bounds each search."""
    for stride in (1, 2, 1 << 10, 1 << 32, 1 << 44):
        counts = Counts()
        counts.reserve(20_000)
        for code in range(20_000):
            change(counts.table, counts.seed, counts.used, code % 7, code * stride, 1)
        empty = np.flatnonzero(counts.table[:, 2] == 0)
        assert np.diff(empty).max() < 300


def test_each_table_has_its_own_seed() -> None:
    assert Counts().seed != Counts().seed
