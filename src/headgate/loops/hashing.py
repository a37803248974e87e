"""Dense numbers for keys: the first key is 0, the next different one 1, and so on, so that what a loop keeps for each
key lies in arrays.

The hash table is open addressing with linear probing, at most half full. An entry is one word: the high bits of the
key's hash, so that most probes need not read keys, and the key's number plus 1; 0 is empty.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from headgate.loops.arguments import whole
from headgate.loops.arrays import grown, zeros
from headgate.loops.compiled import inlined
from headgate.loops.siphash import hash_pair, new_seed

Ints = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]

ABSENT = -1
_LEAST = 64
_ONE = np.uint64(1)
NUMBER: np.uint64 = np.uint64((1 << 40) - 1)
"""The bits of an entry that are the number; the others are of the hash."""
_SAMPLE = 16
"""From so small a part of many keys on it is told how many are new, so that the table is seldom filled anew."""


class Interner:
    """Numbers for keys of one or two whole numbers; the second part of a key is 0 where it is not given.

    For loops, which may call `find_or_add` themselves after `reserve`: `table`, `a` and `b` (the keys by number; `b` is
    empty while all second parts are 0), `size` (one element) and `seed`. Growing replaces the arrays.
    """

    def __init__(self, *, paired: bool = False) -> None:
        """`paired`: loops add keys with second parts."""
        self.table: Words = np.zeros(2 * _LEAST, np.uint64)
        self.a: Ints = np.zeros(_LEAST, np.int64)
        self.b: Ints = np.zeros(_LEAST if paired else 0, np.int64)
        self.size: Ints = np.zeros(1, np.int64)
        self.seed = new_seed()

    def __len__(self) -> int:
        return int(self.size[0])

    def numbers(self, a: Ints, b: Ints | None = None) -> Ints:
        """The number of each key; keys that are new get the next numbers in the order in which they come."""
        first, second = whole(a), self._second(a, b)
        found = np.empty(len(a), np.int64)
        _hash(first, second, found, self.seed)
        done = 0
        known = len(self)
        while (done := _numbers(self.table, self.a, self.b, self.size, first, second, done, found)) < len(a):
            few = done * _SAMPLE < len(a)  # a few keys do not tell how many are new among the others
            self.reserve(1 if few else max(1, (len(self) - known) * (len(a) - done) // done))
        return found

    def find(self, a: Ints, b: Ints | None = None) -> Ints:
        """The number of each key; -1 for those that have none."""
        first, second = whole(a), self._second(a, b)
        found = np.empty(len(a), np.int64)
        _hash(first, second, found, self.seed)
        _found(self.table, self.a, self.b, first, second, found)
        return found

    def keys(self) -> tuple[Ints, Ints]:
        """Both parts of all keys, by number."""
        return self.a[: len(self)].copy(), (
            self.b[: len(self)].copy() if len(self.b) else np.zeros(len(self), np.int64)
        )

    def reserve(self, more: int) -> None:
        """Makes room for this many new keys."""
        room = len(self.a)
        while room < len(self) + more:
            room *= 2
        if room == len(self.a):
            return
        self.a = grown(self.a, room)
        if len(self.b):
            self.b = grown(self.b, room)
        self.table = zeros(2 * room, np.uint64)
        _fill(self.table, self.a, self.b, len(self), self.seed)

    def _second(self, a: Ints, b: Ints | None) -> Ints:
        if b is None:
            return whole(np.empty(0, np.int64))
        if len(b) != len(a):
            raise ValueError(f"cannot pair {len(a)} first with {len(b)} second parts of keys")
        if not len(self.b):
            self.b = np.zeros(len(self.a), np.int64)
        return whole(b)


@inlined
def _part(b: Ints, n: int) -> int:
    return b[n] if len(b) else 0


@inlined
def entry(hashed: np.uint64, number: int) -> np.uint64:
    """The word in the table for a key with this hash and this number."""
    return (hashed & ~NUMBER) | np.uint64(number + 1)


@inlined
def number_in(word: np.uint64) -> int:
    """The number in an entry; -1 if it is empty."""
    return int(np.int64(word & NUMBER)) - 1


@inlined
def _place(table: Words, keys_a: Ints, keys_b: Ints, a: int, b: int, hashed: np.uint64) -> np.uint64:
    """Where the key is in the table, or the empty entry where it would be."""
    mask = np.uint64(len(table) - 1)
    place = hashed & mask
    while table[place] != 0:
        if (table[place] ^ hashed) <= NUMBER:
            number = number_in(table[place])
            if keys_a[number] == a and _part(keys_b, number) == b:
                break
        place = (place + _ONE) & mask
    return place


@inlined
def find_or_add(
    table: Words, keys_a: Ints, keys_b: Ints, size: Ints, a: int, b: int, seed: np.uint64
) -> int:  # fmt: skip
    """The number of one key. INVARIANT: there is room for one more, and `keys_b` is not empty if `b` is not 0."""
    return _find_or_add(table, keys_a, keys_b, size, a, b, hash_pair(a, b, seed))


@inlined
def _find_or_add(
    table: Words, keys_a: Ints, keys_b: Ints, size: Ints, a: int, b: int, hashed: np.uint64
) -> int:  # fmt: skip
    place = _place(table, keys_a, keys_b, a, b, hashed)
    if table[place] != 0:
        return number_in(table[place])
    number = int(size[0])
    table[place] = entry(hashed, number)
    keys_a[number] = a
    if len(keys_b):
        keys_b[number] = b
    size[0] = number + 1
    return number


@inlined
def _hash(a: Ints, b: Ints, into: Ints, seed: np.uint64) -> None:
    """Hashes all keys. In a loop of its own, because it then computes several at a time."""
    if len(b):
        for n in range(len(a)):
            into[n] = np.int64(hash_pair(a[n], b[n], seed))
    else:
        for n in range(len(a)):
            into[n] = np.int64(hash_pair(a[n], 0, seed))


@inlined
def _numbers(
    table: Words, keys_a: Ints, keys_b: Ints, size: Ints, a: Ints, b: Ints, start: int, found: Ints
) -> int:  # fmt: skip
    """Numbers the keys from `start` on, whose hashes are in `found`; returns before which there was no more room."""
    for n in range(start, len(a)):
        if size[0] == len(keys_a):
            return n
        found[n] = _find_or_add(table, keys_a, keys_b, size, a[n], _part(b, n), np.uint64(found[n]))
    return len(a)


@inlined
def _found(table: Words, keys_a: Ints, keys_b: Ints, a: Ints, b: Ints, found: Ints) -> None:
    for n in range(len(a)):
        place = _place(table, keys_a, keys_b, a[n], _part(b, n), np.uint64(found[n]))
        found[n] = number_in(table[place])


@inlined
def _fill(table: Words, keys_a: Ints, keys_b: Ints, size: int, seed: np.uint64) -> None:
    """Enters keys that all differ into an empty table."""
    mask = np.uint64(len(table) - 1)
    for n in range(size):
        hashed = hash_pair(keys_a[n], _part(keys_b, n), seed)
        place = hashed & mask
        while table[place] != 0:
            place = (place + _ONE) & mask
        table[place] = entry(hashed, n)
