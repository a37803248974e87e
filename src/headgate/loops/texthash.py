"""Dense numbers for texts, as `hashing.py` gives them to whole numbers.

Each text is hashed and compared as bytes, where it lies in its Arrow column; only new ones are copied.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from headgate.loops.arguments import read_only, whole
from headgate.loops.compiled import inlined
from headgate.loops.hashing import NUMBER, entry, number_in
from headgate.loops.siphash import hash_bytes, new_seed

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Words = npt.NDArray[np.uint64]
Bytes = npt.NDArray[np.uint8]

_LEAST = 64
_ONE = np.uint64(1)
_SIZE, _END, _NULL = range(3)


class TextInterner:
    """Numbers for texts; NULL is a text of its own.

    `_table` is as in `hashing.py`; text n has the bytes of `_heap` from `_ends[n]` to `_ends[n + 1]`; `_state` is how
    many texts there are, where the last one ends, and the number of NULL or -1.
    """

    def __init__(self) -> None:
        self._table: Words = np.zeros(2 * _LEAST, np.uint64)
        self._ends: Ints = np.zeros(_LEAST + 1, np.int64)
        self._heap: Bytes = np.empty(16 * _LEAST, np.uint8)
        self._state: Ints = np.array([0, 0, -1])
        self._seed = new_seed()

    def __len__(self) -> int:
        return int(self._state[_SIZE])

    def numbers(self, data: Bytes, places: Ints, valid: Bools | None = None) -> Ints:
        """The number of each text; text n has the bytes from place n to place n + 1. New ones get the next numbers."""
        found = np.empty(len(places) - 1, np.int64)
        texts = read_only(data, np.uint8), whole(places)
        some = read_only(np.empty(0) if valid is None else valid, np.bool_)
        done = 0
        while True:
            done = _numbers(
                self._table, self._ends, self._heap, self._state, *texts, some, done, found, self._seed
            )  # fmt: skip
            if done == len(found):
                return found
            self._grow(int(places[done + 1] - places[done]))

    def _grow(self, more: int) -> None:
        """Makes room for one more text of this many bytes."""
        end = int(self._state[_END])
        if end + more > len(self._heap):
            heap = np.empty(max(2 * len(self._heap), end + more), np.uint8)
            heap[:end] = self._heap[:end]
            self._heap = heap
        room = len(self._ends) - 1
        if len(self) == room:
            self._ends = np.concatenate((self._ends, np.zeros(room, np.int64)))
            self._table = np.zeros(4 * room, np.uint64)
            _fill(self._table, self._ends, self._heap, self._state, self._seed)


@inlined
def _same(heap: Bytes, start: int, end: int, data: Bytes, first: int, size: int) -> bool:
    if end - start != size:
        return False
    n = 0
    while n < size and heap[start + n] == data[first + n]:
        n += 1
    return n == size


@inlined
def _append(ends: Ints, heap: Bytes, state: Ints, data: Bytes, first: int, size: int) -> int:
    """Copies a new text; returns its number."""
    number = state[_SIZE]
    for n in range(size):
        heap[state[_END] + n] = data[first + n]
    state[_END] += size
    ends[number + 1] = state[_END]
    state[_SIZE] = number + 1
    return int(number)


@inlined
def _find_or_add(
    table: Words, ends: Ints, heap: Bytes, state: Ints, data: Bytes, first: int, size: int, seed: np.uint64
) -> int:  # fmt: skip
    hashed = hash_bytes(data, first, first + size, seed)
    mask = np.uint64(len(table) - 1)
    place = hashed & mask
    while table[place] != 0:
        if (table[place] ^ hashed) <= NUMBER:
            number = number_in(table[place])
            if _same(heap, ends[number], ends[number + 1], data, first, size):
                return number
        place = (place + _ONE) & mask
    table[place] = entry(hashed, state[_SIZE])
    return _append(ends, heap, state, data, first, size)


@inlined
def _numbers(
    table: Words, ends: Ints, heap: Bytes, state: Ints, data: Bytes, places: Ints, valid: Bools, start: int,
    found: Ints, seed: np.uint64,
) -> int:  # fmt: skip
    """Numbers the texts from `start` on; returns before which text there was no more room."""
    for n in range(start, len(found)):
        first, size = places[n], places[n + 1] - places[n]
        if state[_SIZE] == len(ends) - 1 or state[_END] + size > len(heap):
            return n
        if len(valid) == 0 or valid[n]:
            found[n] = _find_or_add(table, ends, heap, state, data, first, size, seed)
        else:
            if state[_NULL] < 0:
                state[_NULL] = _append(ends, heap, state, data, first, 0)
            found[n] = state[_NULL]
    return len(found)


@inlined
def _fill(table: Words, ends: Ints, heap: Bytes, state: Ints, seed: np.uint64) -> None:
    """Enters all texts, which differ, into an empty table."""
    mask = np.uint64(len(table) - 1)
    for n in range(state[_SIZE]):
        if n == state[_NULL]:
            continue
        hashed = hash_bytes(heap, ends[n], ends[n + 1], seed)
        place = hashed & mask
        while table[place] != 0:
            place = (place + _ONE) & mask
        table[place] = entry(hashed, n)
