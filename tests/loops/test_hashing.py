"""Interners against a plain dict, and against keys that are chosen to collide."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.loops import hashing
from headgate.loops.hashing import Interner, find_or_add
from headgate.loops.texthash import TextInterner

_NUMBERS = st.integers(-(2**63), 2**63 - 1) | st.integers(-5, 5)


def _ints(values: list[int]) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.array(values, np.int64)


@settings(deadline=None)
@given(st.lists(st.lists(st.tuples(_NUMBERS, _NUMBERS | st.none()), max_size=100), max_size=4))
def test_keys_are_numbered_in_the_order_in_which_they_first_come(batches: list[list[tuple[int, int | None]]]) -> None:
    interner, model = Interner(), dict[tuple[int, int], int]()
    for batch in batches:
        single = any(b is None for _, b in batch)
        keys = [(a, 0 if single else b or 0) for a, b in batch]
        parts = _ints([a for a, _ in keys]), None if single else _ints([b for _, b in keys])
        assert interner.find(*parts).tolist() == [model.get(key, -1) for key in keys]
        assert interner.numbers(*parts).tolist() == [model.setdefault(key, len(model)) for key in keys]
        assert interner.find(*parts).tolist() == [model[key] for key in keys]
    assert len(interner) == len(model)
    a, b = interner.keys()
    assert list(zip(a.tolist(), b.tolist(), strict=True)) == list(model)


def test_a_loop_adds_keys_one_by_one() -> None:
    interner = Interner()
    interner.reserve(1000)
    for key in [*range(1000), *range(1000)]:
        found = find_or_add(interner.table, interner.a, interner.b, interner.size, key, 0, interner.seed)
        assert found == key
    assert len(interner) == 1000


def _longest_run(interner: Interner) -> int:
    """The most entries that follow each other in the table: no lookup probes more."""
    empty = np.flatnonzero(np.concatenate((interner.table, interner.table)) == 0)
    return int(np.diff(empty).max())


@pytest.mark.parametrize("shift", [0, 1, 3, 12, 20, 32, 44])
@pytest.mark.parametrize("second", [False, True])
def test_multiples_do_not_cluster(shift: int, second: bool) -> None:
    interner, keys = Interner(), np.arange(1 << 16) << shift
    interner.numbers(*((keys >> 8, keys) if second else (keys, None)))
    assert len(interner.table) >= 2 * len(interner)
    assert _longest_run(interner) < 400  # of independent uniform hashes: about 100 at most


def test_keys_that_collide_in_one_interner_do_not_in_another() -> None:
    """The attack: whoever knows the seed finds keys whose hashes begin alike. With a new seed they are spread."""
    known, tried = Interner(), np.arange(1 << 18)
    known.numbers(tried)
    entries = np.flatnonzero(known.table)
    home = entries[entries < 1 << 10]  # the keys at one end of a table of 2**19 entries
    chosen = (known.table[home] & np.uint64((1 << 40) - 1)).astype(np.int64) - 1
    attacked, other = Interner(), Interner()
    attacked.seed = known.seed
    for interner in (attacked, other):
        interner.reserve(1 << 18)
        interner.numbers(tried[chosen])
    assert _longest_run(attacked) > 4 * _longest_run(other)


@settings(deadline=None)
@given(
    st.lists(st.lists(st.none() | st.binary(max_size=40) | st.sampled_from([b"a", b"", b"\0", b"\0\0"]), max_size=80))
)
def test_texts_are_numbered_in_the_order_in_which_they_first_come(batches: list[list[bytes | None]]) -> None:
    interner, model = TextInterner(), dict[bytes | None, int]()
    for batch in batches:
        data = np.frombuffer(b"".join(text or b"" for text in batch), np.uint8)
        places = np.cumsum([0, *(len(text or b"") for text in batch)])
        valid = np.array([text is not None for text in batch], np.bool_)
        found = interner.numbers(data, places, None if valid.all() else valid)
        assert found.tolist() == [model.setdefault(text, len(model)) for text in batch]
    assert len(interner) == len(model)


def test_a_text_longer_than_all_before_is_numbered() -> None:
    interner = TextInterner()
    data = np.frombuffer(b"x" * 100_000, np.uint8)
    assert interner.numbers(data, np.array([0, 1, 100_000, 100_000])).tolist() == [0, 1, 2]
    assert interner.numbers(data, np.array([0, 99_999, 100_000])).tolist() == [1, 0]


def test_loops_are_compiled_once_whatever_arrays_they_are_given() -> None:
    interner, keys = Interner(), np.arange(20)
    fixed = keys.copy()
    fixed.flags.writeable = False
    for given_keys in (keys, fixed, keys[::2]):
        interner.numbers(given_keys)
        interner.numbers(given_keys, given_keys)
    loop: Any = hashing._numbers
    assert len(loop.signatures) == 1
