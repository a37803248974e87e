"""The loops of windows against numpy and plain lists."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.loops.windows import interleaved, is_ascending, is_ordered, steps_after

numbers = st.lists(st.integers(-60, 60), max_size=60)
keys = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2), st.integers(0, 3)), max_size=6)


def ints(values: list[int]) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.array(values, np.int64)


@settings(max_examples=200, deadline=None)
@given(numbers, numbers, st.booleans())
def test_steps_are_found_as_by_searching(values: list[int], bounds: list[int], ascend: bool) -> None:
    given_values, sorted_bounds = ints(sorted(values) if ascend else values), ints(sorted(bounds))
    found = np.empty(len(values), np.int64)
    steps_after(given_values, sorted_bounds, found)
    assert found.tolist() == np.searchsorted(sorted_bounds, given_values, side="right").tolist()


@settings(max_examples=100, deadline=None)
@given(keys)
def test_an_order_is_recognised(rows: list[tuple[int, int, int]]) -> None:
    time, stream, arrival = (ints([row[x] for row in rows]) for x in range(3))
    assert is_ordered(np.arange(len(rows)), time, stream.astype(np.int16), arrival) == (rows == sorted(rows))
    pairs = [(a, b) for a, b, _ in rows]
    assert is_ascending(time, stream[:, np.newaxis]) == (pairs == sorted(pairs))


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(0, 5), max_size=8), st.lists(st.integers(0, 5), max_size=8))
def test_rows_leave_before_others_enter_at_the_same_step(enters: list[int], leaves: list[int]) -> None:
    enters, leaves = sorted(enters), sorted(leaves)
    size = len(enters) + len(leaves)
    row, step, sign = np.empty(size, np.int64), np.empty(size, np.int64), np.empty(size, np.int8)
    entered = np.empty(len(enters), np.int64)
    coming, going = np.arange(len(enters)), 100 + np.arange(len(leaves))
    interleaved(coming, ints(enters), going, ints(leaves), row, sign, step, entered)
    changes = [(at, -1, 100 + n) for n, at in enumerate(leaves)] + [(at, 1, n) for n, at in enumerate(enters)]
    assert list(zip(step.tolist(), sign.tolist(), row.tolist(), strict=True)) == sorted(changes)
    assert row[entered].tolist() == coming.tolist()
