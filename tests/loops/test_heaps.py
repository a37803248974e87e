"""Heaps with removal against sorted lists, for all kinds of keys; and that no order of use is quadratic."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.loops.compiled import compiled
from headgate.loops.heaps import GREATEST, LEAST, NO_SLOT, Heaps, Keys, push, remove

fast = settings(max_examples=60, deadline=None)
GROUPS, SLOTS = 3, 40
wholes = st.one_of(st.integers(-3, 3), st.integers(-(2**63), 2**63 - 1))
doubles = st.one_of(st.floats(), st.sampled_from([0.0, -0.0, math.nan, math.inf, -math.inf, 1.0]))
texts = st.one_of(st.text(max_size=6), st.text("ab", max_size=4), st.sampled_from(["", "é", "￿", "😀", "a\0", "a"]))
rows = st.tuples(st.integers(0, 2), st.integers(0, 2), wholes)
steps = st.lists(st.tuples(st.integers(0, SLOTS - 1), st.integers(0, GROUPS - 1)), max_size=120)


def lists(values: st.SearchStrategy[Any]) -> st.SearchStrategy[list[Any]]:
    return st.lists(values, min_size=SLOTS, max_size=SLOTS)


def as_texts(values: Sequence[str]) -> Keys:
    encoded = [value.encode() for value in values]
    length = np.array([len(value) for value in encoded], np.int32)
    return np.cumsum(length, dtype=np.int64) - length, length, np.frombuffer(b"".join(encoded), np.uint8)


def number_order(value: float) -> tuple[bool, float]:
    return math.isnan(value), 0.0 if math.isnan(value) else value


def check(values: list[Any], keys: Keys, orderly: Callable[[Any], Any], given_steps: list[tuple[int, int]]) -> None:
    """A step pushes a slot that is in no heap, or removes it from its heap."""
    for order, best in ((LEAST, min), (GREATEST, max)):
        heaps = Heaps()
        heaps.grow(GROUPS, SLOTS)
        members: list[set[int]] = [set() for _ in range(GROUPS)]
        home: dict[int, int] = {}
        for slot, wanted in given_steps:
            group = home.pop(slot, None)
            if group is None:
                home[slot] = group = wanted
                members[group].add(slot)
                change: Any = push
            else:
                members[group].discard(slot)
                change = remove
            change(heaps.root, heaps.child, heaps.following, heaps.previous, keys, order, group, slot)
            for number, held in enumerate(members):
                top = int(heaps.root[number])
                assert (top == NO_SLOT) == (not held)
                if held:
                    assert top in held
                    assert orderly(values[top]) == best(orderly(values[slot]) for slot in held)


@fast
@given(lists(wholes), steps)
def test_the_root_has_the_least_or_greatest_whole_number(values: list[int], given_steps: list[tuple[int, int]]) -> None:
    check(values, np.array(values, np.int64), lambda value: value, given_steps)


@fast
@given(lists(doubles), steps)
def test_the_root_has_the_least_or_greatest_double(values: list[float], given_steps: list[tuple[int, int]]) -> None:
    check(values, np.array(values, np.float64), number_order, given_steps)


@fast
@given(lists(texts), steps)
def test_the_root_has_the_first_or_last_text(values: list[str], given_steps: list[tuple[int, int]]) -> None:
    check(values, as_texts(values), lambda value: value, given_steps)


@fast
@given(lists(rows), steps)
def test_the_root_has_the_first_or_last_row(
    values: list[tuple[int, int, int]], given_steps: list[tuple[int, int]]
) -> None:
    check(values, np.array(values, np.int64), lambda value: value, given_steps)


@compiled
def _window(
    root: Any, child: Any, following: Any, previous: Any, keys: Any, order: int, size: int, newest_first: bool
) -> Any:
    """Pushes all keys; when more than `size` are there, removes the oldest, or the newest but one. Returns the roots,
    and how many children the removed slots had: a removal merges them, so that this is its cost."""
    found, children = np.empty(len(keys), np.int64), 0
    for slot in range(len(keys)):
        push(root, child, following, previous, keys, order, 0, slot)
        if slot >= size:
            gone = slot - 1 if newest_first else slot - size
            one = child[gone]
            while one != NO_SLOT:
                children, one = children + 1, following[one]
            remove(root, child, following, previous, keys, order, 0, gone)
        found[slot] = root[0]
    return found, children


def window(keys: Any, order: int, size: int, newest_first: bool) -> tuple[Any, int]:
    heaps = Heaps()
    heaps.grow(1, len(keys))
    found: tuple[Any, int] = _window(
        heaps.root, heaps.child, heaps.following, heaps.previous, keys, order, size, newest_first
    )
    return found


ORDERS: dict[str, Callable[[int], Any]] = {
    "ascending": np.arange,
    "descending": lambda size: np.arange(size)[::-1].copy(),
    "equal": lambda size: np.zeros(size, np.int64),
    "zigzag": lambda size: np.arange(size) * np.where(np.arange(size) % 2, 1, -1),
    "random": lambda size: np.random.default_rng(5).integers(0, size, size),
}


@pytest.mark.parametrize("newest_first", [False, True])
@pytest.mark.parametrize("order", [LEAST, GREATEST])
@pytest.mark.parametrize("name", ORDERS)
def test_removals_take_few_comparisons_in_any_order_of_use(name: str, order: int, newest_first: bool) -> None:
    size, kept = 100_000, 20_000
    _, children = window(np.asarray(ORDERS[name](size), np.int64), order, kept, newest_first)
    assert children <= size * math.log2(kept)


@pytest.mark.parametrize("name", ORDERS)
def test_a_window_finds_what_a_scan_finds(name: str) -> None:
    keys = np.asarray(ORDERS[name](2000), np.int64)
    found, _ = window(keys, LEAST, 100, False)
    for slot in range(len(keys)):
        assert keys[found[slot]] == keys[max(0, slot - 99) : slot + 1].min()


def test_growing_keeps_the_heaps() -> None:
    heaps, keys = Heaps(), np.array([5, 3, 4], np.int64)
    heaps.grow(1, 2)
    for slot in range(3):
        heaps.grow(slot + 1, slot + 1)
        push(heaps.root, heaps.child, heaps.following, heaps.previous, keys, LEAST, 0, slot)
    assert heaps.root[:3].tolist() == [1, NO_SLOT, NO_SLOT]
    assert heaps.nbytes > 0
