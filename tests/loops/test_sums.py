"""Aggregates of groups whose rows come and go, against sums of Python's whole numbers and fractions."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.loops import sums

GROUPS = 3
whole = st.one_of(st.integers(-(2**63), 2**63 - 1), st.integers(-100, 100), st.sampled_from([-(2**63), 2**63 - 1]))
rows = st.lists(st.tuples(st.integers(0, GROUPS - 1), st.one_of(st.none(), whole)), min_size=1, max_size=20)
ALL = np.empty(0, np.bool_)


class Window:
    """Rows by group and value. Each enters; after three more it leaves again; then its group is emitted."""

    def __init__(self, given_rows: list[tuple[int, int | None]]) -> None:
        steps = [(n, 1) for n in range(len(given_rows))]
        steps = [x for n, step in enumerate(steps) for x in ([(n - 3, -1)] if n >= 3 else []) + [step]]
        self.row = np.array([row for row, _ in steps], np.int64)
        self.sign = np.array([sign for _, sign in steps], np.int8)
        self.group = np.array([given_rows[row][0] for row, _ in steps], np.int64)
        self.value = np.array([value or 0 for _, value in given_rows], np.int64)
        self.known = np.array([value is not None for _, value in given_rows], np.bool_)
        self.after = np.arange(len(steps)) + 1
        self.wanted = list[list[int]]()
        there: list[list[int]] = [[] for _ in range(GROUPS)]
        for row, sign in steps:
            own, value = given_rows[row]
            if value is not None:
                (there[own].append if sign > 0 else there[own].remove)(value)
            self.wanted.append([*there[own]])

    def through(self, loop: Callable[..., Any], kept: int, *found: np.ndarray[Any, Any]) -> Any:
        state = (np.zeros(GROUPS, np.int64) for _ in range(kept))
        changes = self.row, self.group, self.sign, self.value, self.known
        return loop(*changes, self.after, self.group, *state, *found)

    def room(self) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        return np.empty(len(self.row), np.int64)


@settings(max_examples=100, deadline=None)
@given(rows)
def test_whole_numbers_are_summed_exactly(given_rows: list[tuple[int, int | None]]) -> None:
    window = Window(given_rows)
    count, high, low = window.room(), window.room(), window.room()
    window.through(sums.whole_sums, 3, count, high, low)
    found = [(int(a) << 32) + int(b) for a, b in zip(high.tolist(), low.tolist(), strict=True)]
    assert found == [sum(values) for values in window.wanted]
    assert count.tolist() == [len(values) for values in window.wanted]


@settings(max_examples=100, deadline=None)
@given(rows)
def test_means_are_exact_but_for_great_sums_which_are_left_to_the_caller(
    given_rows: list[tuple[int, int | None]],
) -> None:
    window = Window(given_rows)
    means = np.empty(len(window.row))
    count, great, high, low = (window.room() for _ in range(4))
    missing, many = window.through(sums.whole_means, 3, means, count, great, high, low)
    left = dict(zip(great[:many].tolist(), zip(high[:many].tolist(), low[:many].tolist(), strict=True), strict=True))
    for place, values in enumerate(window.wanted):
        if not values:
            assert count[place] == 0
        elif place in left:
            above, below = left[place]
            assert (above << 32) + below == sum(values)
        else:
            assert means[place] == float(Fraction(sum(values), len(values)))
    assert missing == sum(not values for values in window.wanted)


def test_a_change_that_does_not_count_changes_nothing() -> None:
    row, group, none = np.zeros(2, np.int64), np.zeros(2, np.int64), np.zeros(2, np.int8)
    found, count = np.empty(1, np.int64), np.zeros(1, np.int64)
    sums.counted(row, group, none, ALL, np.array([2]), np.array([0]), count, found)
    assert found.tolist() == [0]
