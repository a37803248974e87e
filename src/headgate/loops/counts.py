"""How often each value is in each group: for COUNT(DISTINCT), and for the labels of a group's tuples.

A hash table from (group, code) to a count, with open addressing and linear probing. The entry of a count that becomes 0
is removed at once, and the entries after it move up, so that the table never fills with dead entries. The hash is keyed
with a random seed, because senders choose the values.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from headgate.loops.arrays import zeros
from headgate.loops.compiled import compiled, inlined
from headgate.loops.siphash import hash_pair, new_seed

Ints = npt.NDArray[np.int64]

_GROUP, _CODE, _COUNT = range(3)
_FEWEST = 16


@inlined
def _home(seed: np.uint64, mask: int, group: int, code: int) -> int:
    """Where the search for an entry starts."""
    return int(hash_pair(group, code, seed)) & mask


@inlined
def _find(table: Ints, seed: np.uint64, group: int, code: int) -> int:
    """The place of the entry, or the empty one where it belongs."""
    mask = len(table) - 1
    place = _home(seed, mask, group, code)
    while table[place, _COUNT] and (table[place, _CODE] != code or table[place, _GROUP] != group):
        place = (place + 1) & mask
    return place


@inlined
def count(table: Ints, seed: np.uint64, group: int, code: int) -> int:
    """How often the group has the code."""
    return int(table[_find(table, seed, group, code), _COUNT])


@inlined
def change(table: Ints, seed: np.uint64, used: Ints, group: int, code: int, step: int) -> int:
    """Adds `step` to a count and returns the new one. INVARIANT: room for a new entry was reserved."""
    place = _find(table, seed, group, code)
    old = table[place, _COUNT]
    new = old + step
    if old and not new:
        _vacate(table, seed, place)
        used[0] -= 1
        return 0
    if new and not old:
        table[place, _GROUP], table[place, _CODE] = group, code
        used[0] += 1
    table[place, _COUNT] = new
    return int(new)


@compiled
def _vacate(table: Ints, seed: np.uint64, place: int) -> None:
    """Empties a place; each entry after it that a search would no longer reach moves into the gap."""
    mask, gap = len(table) - 1, place
    while True:
        place = (place + 1) & mask
        if not table[place, _COUNT]:
            break
        home = _home(seed, mask, table[place, _GROUP], table[place, _CODE])
        if (place - home) & mask >= (place - gap) & mask:  # its search starts at the gap or before
            for field in range(3):
                table[gap, field] = table[place, field]
            gap = place
    table[gap, _COUNT] = 0


@compiled
def _rehash(table: Ints, seed: np.uint64, into: Ints) -> None:
    for place in range(len(table)):
        if table[place, _COUNT]:
            free = _find(into, seed, table[place, _GROUP], table[place, _CODE])
            for field in range(3):
                into[free, field] = table[place, field]


class Counts:
    """Counts by group and code. `table` is replaced when it is resized: read it again after `reserve`.

    table: rows (group, code, count); a count of 0 means empty; at most half of the rows are in use
    seed: of the hash
    used: one number, how many rows are in use
    """

    def __init__(self) -> None:
        self.table: Ints = np.zeros((_FEWEST, 3), np.int64)
        self.seed = new_seed()
        self.used: Ints = np.zeros(1, np.int64)

    def __len__(self) -> int:
        return int(self.used[0])

    def reserve(self, changes: int) -> None:
        """Makes room for as many new entries; a table that became far too large shrinks."""
        needed, size = 2 * (len(self) + changes), len(self.table)
        if size // 16 <= needed <= size or needed <= size == _FEWEST:
            return
        into = zeros((max(_FEWEST, 1 << (needed - 1).bit_length()), 3), np.int64)
        _rehash(self.table, self.seed, into)
        self.table = into

    @property
    def nbytes(self) -> int:
        return self.table.nbytes
