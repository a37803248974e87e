"""The least member of each group while members come and go: MIN, MAX and the first rows of a group, under windows.

Each group has a pairing heap (Fredman, Sedgewick, Sleator, Tarjan 1986): a push takes constant time, the removal of any
member O(log n) amortised. Members are slots, whose keys are elsewhere; a slot is in at most one heap. All heaps share
three arrays by slot: a member's first child, its next sibling, and before it in that list its previous sibling or,
for a first child, its parent.

Keys are, by the type of `keys`: numbers by slot (NaN is the greatest); rows of whole numbers, `keys[slot, :]`, compared
from left to right; or texts (begin by slot, length by slot, bytes), compared by bytes: for UTF-8, by code points.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from numba import types
from numba.extending import overload

from headgate.loops.compiled import compiled, inlined

Slots = npt.NDArray[np.int32]
Ints = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]
Numbers = npt.NDArray[np.int64] | npt.NDArray[np.float64]
Texts = tuple[Ints, Slots, Bytes]
Keys = Numbers | Texts

NO_SLOT = -1
LEAST, GREATEST = 1, -1


def _number_before(keys: Any, a: int, b: int) -> bool:
    one, other = keys[a], keys[b]
    return bool(one < other or (other != other and one == one))  # NaN differs from itself


def _row_before(keys: Any, a: int, b: int) -> bool:
    for column in range(keys.shape[1]):
        if keys[a, column] != keys[b, column]:
            return bool(keys[a, column] < keys[b, column])
    return False


def _text_before(keys: Any, a: int, b: int) -> bool:
    begin, length, data = keys
    one, other = begin[a], begin[b]
    for n in range(min(length[a], length[b])):
        if data[one + n] != data[other + n]:
            return bool(data[one + n] < data[other + n])
    return bool(length[a] < length[b])


def _before(keys: Keys, a: int, b: int) -> bool:
    """Whether the key of slot a is less than that of slot b. Compiled code chooses by type, once."""
    if isinstance(keys, tuple):
        return _text_before(keys, a, b)
    return _number_before(keys, a, b) if keys.ndim == 1 else _row_before(keys, a, b)


@overload(_before)
def _compiled_before(keys: Any, a: int, b: int) -> Any:  # noqa: ARG001  # numba wants the parameters of the chosen one
    if isinstance(keys, types.BaseTuple):
        return _text_before
    return _number_before if keys.ndim == 1 else _row_before


@inlined
def _link(child: Slots, following: Slots, previous: Slots, keys: Keys, order: int, a: int, b: int) -> int:
    """Makes the later of two heaps the first child of the other; returns the root."""
    if _before(keys, b, a) if order > 0 else _before(keys, a, b):
        a, b = b, a
    first = child[a]
    following[b] = first
    if first != NO_SLOT:
        previous[first] = b
    previous[b] = a
    child[a] = b
    return a


@compiled
def _merged(child: Slots, following: Slots, previous: Slots, keys: Keys, order: int, first: int) -> int:
    """One heap of a list of siblings: first by pairs from left to right, then one by one from right to left."""
    pairs, one = NO_SLOT, first
    while one != NO_SLOT:
        other = following[one]
        rest = NO_SLOT
        if other != NO_SLOT:
            rest = following[other]
            one = _link(child, following, previous, keys, order, one, other)
        following[one] = pairs  # the pairs so far, the last one first
        pairs, one = one, rest
    root = NO_SLOT
    while pairs != NO_SLOT:
        rest = following[pairs]
        root = pairs if root == NO_SLOT else _link(child, following, previous, keys, order, root, pairs)
        pairs = rest
    if root != NO_SLOT:
        following[root] = previous[root] = NO_SLOT
    return root


@inlined
def push(
    root: Slots, child: Slots, following: Slots, previous: Slots, keys: Keys, order: int, group: int, slot: int
) -> None:
    """Adds a slot to the heap of a group. `order` is LEAST or GREATEST: which key `root[group]` has."""
    child[slot] = following[slot] = previous[slot] = NO_SLOT
    top = root[group]
    root[group] = slot if top == NO_SLOT else _link(child, following, previous, keys, order, top, slot)


@inlined
def remove(
    root: Slots, child: Slots, following: Slots, previous: Slots, keys: Keys, order: int, group: int, slot: int
) -> None:
    """Removes a member of the heap of a group. INVARIANT: its key is the one it was pushed with."""
    below = _merged(child, following, previous, keys, order, child[slot])
    if root[group] == slot:
        root[group] = below
        return
    before, after = previous[slot], following[slot]
    if child[before] == slot:
        child[before] = after
    else:
        following[before] = after
    if after != NO_SLOT:
        previous[after] = before
    if below != NO_SLOT:
        root[group] = _link(child, following, previous, keys, order, root[group], below)


class Heaps:
    """Heaps by group. The arrays are replaced when they grow: read them again after `grow`.

    root: by group, the member with the least (or greatest) key, or -1
    child, following, previous: by slot
    """

    def __init__(self) -> None:
        self.root: Slots = np.empty(0, np.int32)
        self.child: Slots = np.empty(0, np.int32)
        self.following: Slots = np.empty(0, np.int32)
        self.previous: Slots = np.empty(0, np.int32)

    def grow(self, groups: int, slots: int) -> None:
        """Makes room for this many groups and slots; new heaps are empty."""
        self.root = _grown(self.root, groups)
        self.child = _grown(self.child, slots)
        self.following = _grown(self.following, slots)
        self.previous = _grown(self.previous, slots)

    @property
    def nbytes(self) -> int:
        return self.root.nbytes + self.child.nbytes + self.following.nbytes + self.previous.nbytes


def _grown(old: Slots, size: int) -> Slots:
    if size <= len(old):
        return old
    new = np.full(max(size, len(old) + len(old) // 2), NO_SLOT, np.int32)
    new[: len(old)] = old
    return new
