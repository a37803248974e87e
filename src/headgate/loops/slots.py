"""Slots: the places in which rows are kept while they are held, so that arrays by slot stay as small as the state.

Freed slots are used again in the order in which they were freed. Rows that leave in the order in which they came, as
those of a window do, so get slots in ascending order: loops over them read memory from front to back.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from headgate.loops.arguments import whole
from headgate.loops.compiled import compiled

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

_LEAST = 16


class SlotPool:
    """Hands out slots 0 .. `capacity` - 1.

    - `capacity`: how many slots arrays by slot need to have;
    - `used`: how many are taken.
    """

    def __init__(self) -> None:
        self.capacity = 0
        self.used = 0
        self._fresh = 0  # slots from here on were never taken
        self._taken: Bools = np.zeros(0, np.bool_)
        self._queue: Ints = np.empty(0, np.int64)  # a ring: the freed slots, from `_first` on
        self._first = 0

    def take(self, count: int) -> Ints:
        """This many slots: freed ones first, then new ones."""
        reused = min(count, self._fresh - self.used)
        if self._fresh + count - reused > self.capacity:
            self._grow(self._fresh + count - reused)
        slots = np.empty(count, np.int64)
        self._pop(slots[:reused])
        slots[reused:] = np.arange(self._fresh, self._fresh + count - reused)
        self._fresh += count - reused
        self.used += count
        self._taken[slots] = True
        return slots

    def give(self, slots: Ints) -> None:
        """Takes slots back. A slot that is not taken is an error: two rows would get it."""
        last = self._first + self._fresh - self.used
        given = _give(whole(slots), self._taken, self._queue, last)
        self.used -= given
        if given < len(slots):
            raise ValueError(f"cannot free slot {slots[given]}: it is not taken")

    def _pop(self, into: Ints) -> None:
        until_end = min(len(into), len(self._queue) - self._first)
        into[:until_end] = self._queue[self._first : self._first + until_end]
        into[until_end:] = self._queue[: len(into) - until_end]
        if len(into):
            self._first = (self._first + len(into)) % len(self._queue)

    def _grow(self, needed: int) -> None:
        freed = np.empty(self._fresh - self.used, np.int64)
        self._pop(freed)
        self.capacity = max(needed, self.capacity + self.capacity // 2, _LEAST)
        self._queue = np.empty(self.capacity, np.int64)
        self._queue[: len(freed)], self._first = freed, 0
        self._taken = np.concatenate((self._taken, np.zeros(self.capacity - len(self._taken), np.bool_)))


@compiled
def unheld(slots: Ints, holders: Ints, found: Ints) -> int:
    """The slots, each once, that nobody holds; from now on they count -1 holders. Returns how many there are."""
    count = 0
    for slot in slots:
        if holders[slot] == 0:
            holders[slot] = -1
            found[count] = slot
            count += 1
    return count


@compiled
def _give(slots: Ints, taken: Bools, queue: Ints, last: int) -> int:
    """Appends slots to the ring; returns how many, fewer than all if one is not taken."""
    place = last - len(queue) if last >= len(queue) else last
    for n in range(len(slots)):
        slot = slots[n]
        if slot < 0 or slot >= len(taken) or not taken[slot]:
            return n
        taken[slot] = False
        queue[place] = slot
        place = 0 if place == len(queue) - 1 else place + 1
    return len(slots)
