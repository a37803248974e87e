"""Growing arrays: what was in them stays, what is new has the value asked for, and large ones grow in place."""

from __future__ import annotations

import mmap
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.errors import HeadgateError
from headgate.loops import arrays
from headgate.loops.arrays import MOST_SLOTS, few_slots, grown, zeros

LARGE = 1 << 20  # of eight bytes: more than what has pages of its own


@given(
    st.lists(st.tuples(st.integers(0, 4), st.integers(0, 3000)), max_size=8),
    st.sampled_from([np.int64, np.int32, np.int8, np.bool_, np.float64]),
    st.sampled_from([(), (3,), (2, 2)]),
    st.sampled_from([1, 4096]),
    st.booleans(),
)
def test_an_array_grows_like_a_list(
    steps: list[tuple[int, int]], kind: type, inner: tuple[int, ...], large: int, filled: bool
) -> None:
    """Whatever is written between two steps stays; each element has been `fill` since it is there."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(arrays, "_LARGE", large)
        fill = 1 if filled else 0
        array: Any = np.zeros((0, *inner), kind)
        wanted: Any = np.zeros((0, *inner), kind)
        for value, size in steps:
            array = grown(array, size, fill)
            assert len(array) >= size and array.dtype == kind and array.shape[1:] == inner
            more: Any = np.full((len(array) - len(wanted), *inner), fill, kind)
            wanted = np.concatenate([wanted, more])
            assert np.array_equal(array, wanted)
            array[: size // 2], wanted[: size // 2] = value, value


def test_an_array_that_is_long_enough_is_the_same() -> None:
    array = np.arange(5)
    assert grown(array, 5) is array and grown(array, 0) is array


def test_an_array_grows_by_half_at_least() -> None:
    """So that growing by one, again and again, costs what is in it in the end."""
    assert len(grown(np.zeros(1000, np.int64), 1001)) == 1500


def test_a_large_array_grows_in_place() -> None:
    array = zeros(LARGE, np.int64)
    array[0] = array[-1] = 7
    longer = grown(array, 4 * LARGE)
    assert np.shares_memory(array, longer)
    longer[0] = 8
    assert array[0] == 8 and longer[LARGE - 1] == 7 and not longer[LARGE:].any()


def test_a_large_array_moves_when_its_room_is_used_up() -> None:
    array = zeros(LARGE, np.int64)
    array[-1] = 7
    longer = grown(array, 9 * LARGE)
    assert not np.shares_memory(array, longer)
    assert longer[LARGE - 1] == 7 and not longer[LARGE:].any()


def test_new_elements_of_a_large_array_have_the_value_asked_for() -> None:
    longer = grown(zeros(LARGE, np.int64), 2 * LARGE, -1)
    assert not longer[:LARGE].any() and (longer[LARGE:] == -1).all()


def test_an_array_of_rows_grows_in_place_too() -> None:
    array = zeros((LARGE, 2), np.int64)
    array[-1] = 5, 6
    longer = grown(array, 2 * LARGE)
    assert np.shares_memory(array, longer) and longer[LARGE - 1].tolist() == [5, 6] and not longer[LARGE:].any()


def test_room_that_is_not_used_takes_no_memory() -> None:
    def resident() -> int:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * mmap.PAGESIZE

    before = resident()
    array = zeros(64 * LARGE, np.int8)
    assert resident() - before < 16 * LARGE
    array[:] = 1
    assert resident() - before > 48 * LARGE


def test_a_system_that_reserves_nothing_still_gives_an_array(monkeypatch: pytest.MonkeyPatch) -> None:
    class Refusing(mmap.mmap):
        def __new__(cls, *_: object, **__: object) -> Refusing:
            raise OSError("no memory can be reserved")

    monkeypatch.setattr(mmap, "mmap", Refusing)
    array = zeros(LARGE, np.int64)
    array[-1] = 7
    longer = grown(array, 2 * LARGE)
    assert longer[LARGE - 1] == 7 and not longer[LARGE:].any()


def test_a_view_of_a_large_array_does_not_grow_over_what_follows_it() -> None:
    """Whatever else refers to the pages of an array would change."""
    array = zeros(LARGE, np.int64)
    array[:] = np.arange(LARGE)
    part = array[: LARGE // 2]
    longer = grown(part, LARGE)
    assert not longer[LARGE // 2 :].any() and array[-1] == LARGE - 1


def test_more_slots_than_32_bits_can_number_are_refused() -> None:
    few_slots(MOST_SLOTS)
    with pytest.raises(HeadgateError, match="use more partitions"):
        few_slots(MOST_SLOTS + 1)
