"""Which tuples of segments are still held: segments tell their tuples by bounds of arrival numbers."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from headgate.loops.compiled import compiled

Ints = npt.NDArray[np.int64]
Slots = npt.NDArray[np.int32]


@compiled
def count_dead(slots: Ints, time: Ints, arrival: Ints, beginning: int, firsts: Ints, lasts: Ints, dead: Ints) -> None:
    """Count the tuples in these slots for the segments that they are in: `firsts` and `lasts` are the bounds of each
    segment, ascending. Tuples of tables, with the time `beginning`, are in none."""
    place = 0
    for slot in slots:
        if time[slot] <= beginning:
            continue
        number = arrival[slot]
        if not firsts[place] <= number <= lasts[place]:  # neighbours mostly are in one segment
            place = max(np.searchsorted(firsts, number, side="right") - 1, 0)
        if firsts[place] <= number <= lasts[place]:
            dead[place] += 1


@compiled
def still_held(
    slots: Slots, time: Ints, arrival: Ints, holders: Slots, beginning: int, first: int, last: int, found: Ints
) -> int:
    """The slots that hold a tuple of a segment, which was in these slots, and that somebody holds; returns how many."""
    count = 0
    for slot in slots:
        if holders[slot] > 0 and first <= arrival[slot] <= last and time[slot] > beginning:
            found[count] = slot
            count += 1
    return count


@compiled
def bounds_of(slots: Ints, arrival: Ints) -> tuple[int, int]:
    """The least and the greatest arrival number in these slots."""
    first = last = arrival[slots[0]]
    for slot in slots:
        first, last = min(first, arrival[slot]), max(last, arrival[slot])
    return first, last
