"""Slots: the places in which rows are kept while they are held, so that arrays by slot stay as small as the state.

Freed slots are used again in the order in which they were freed. Rows that leave in the order in which they came, as
those of a window do, so get slots in ascending order: loops over them read memory from front to back.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from headgate.loops.arguments import whole
from headgate.loops.arrays import few_slots, grown
from headgate.loops.compiled import compiled

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Slots = npt.NDArray[np.int32]

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
        self._queue: Ints = np.empty(_LEAST, np.int64)  # a ring: the freed slots, from `_first` on
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
        freed = self._fresh - self.used
        if freed + len(slots) > len(self._queue):
            self._widen(freed, freed + len(slots))
        last = self._first + freed
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
        few_slots(needed)
        self.capacity = max(needed, self.capacity + self.capacity // 2, _LEAST)
        self._taken = grown(self._taken, self.capacity)

    def _widen(self, freed: int, needed: int) -> None:
        """Make room in the ring. It is as long as the most slots that were ever free at once: mostly few are."""
        queue = np.empty(2 * needed, np.int64)
        self._pop(queue[:freed])
        self._queue, self._first = queue, 0


@compiled
def count_holders(slots: Ints, holders: Slots, step: int) -> None:
    """One holder more (`step` 1) or less (-1) for each of these slots."""
    for slot in slots:
        holders[slot] += step


@compiled
def count_kinds(slots: Ints, kinds: Ints, counts: Ints, step: int) -> int:
    """Count the kinds of these slots up or down; returns how many were counted: fewer than all where `counts` has no
    room for a kind."""
    for n in range(len(slots)):
        kind = kinds[slots[n]]
        if kind >= len(counts):
            return n
        counts[kind] += step
    return len(slots)


@compiled
def seen_of(slots: Ints, rows: Ints, seen: Bools, found: Ints) -> int:
    """The slots whose visibility row is seen, in the same order. Returns how many there are."""
    count = 0
    for slot in slots:
        if seen[rows[slot]]:
            found[count] = slot
            count += 1
    return count


@compiled
def count_seen(slots: Ints, rows: Ints, seen: Bools) -> int:
    """How many of these slots have a visibility row that is seen."""
    count = 0
    for slot in slots:
        count += seen[rows[slot]]
    return count


@compiled
def renumber(holders: Slots, rows: Ints, changed: Ints, counts: Ints) -> None:
    """Replace the row of every slot that somebody holds, and count the new rows."""
    for slot in range(len(holders)):
        if holders[slot] > 0:
            rows[slot] = changed[rows[slot]]
            counts[rows[slot]] += 1


@compiled
def unheld(slots: Ints, holders: Slots, found: Ints) -> int:
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
