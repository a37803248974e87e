"""Rows of several parts, each in order, brought into one order."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from headgate.loops.compiled import compiled, inlined

Ints = npt.NDArray[np.int64]

MERGED, UNORDERED, TIED = 0, 1, 2


@inlined
def _compared(keys: Ints, a: int, b: int) -> int:
    """Below 0 if row a comes before row b, 0 if their keys are equal."""
    for key in range(keys.shape[0]):
        if keys[key, a] != keys[key, b]:
            return -1 if keys[key, a] < keys[key, b] else 1
    return 0


@compiled
def _in_order(keys: Ints, ends: Ints) -> bool:
    """Whether the rows of each part are in order."""
    start = 0
    for part in range(len(ends)):
        for row in range(start + 1, ends[part]):
            if _compared(keys, row - 1, row) > 0:
                return False
        start = ends[part]
    return True


@compiled
def _merge_two(keys: Ints, source: Ints, begin: int, middle: int, end: int, target: Ints) -> bool:
    """Merges the rows from `begin` to `middle` with those from there to `end`; False if two have equal keys."""
    a, b = begin, middle
    for place in range(begin, end):
        compared = -1 if b >= end else 1 if a >= middle else _compared(keys, source[a], source[b])
        if compared == 0:
            return False
        if compared < 0:
            target[place] = source[a]
            a += 1
        else:
            target[place] = source[b]
            b += 1
    return True


@compiled
def merge(keys: Ints, ends: Ints, order: Ints, other: Ints) -> int:
    """Brings rows into the order of their keys, of which the first decides first. The rows of a part follow those of
    the part before; `ends` says where parts end. MERGED: `order` has the rows. UNORDERED: a part is not in order.
    TIED: rows of different parts have equal keys. `other` has as much room as `order`."""
    if not _in_order(keys, ends):
        return UNORDERED
    for row in range(len(order)):
        order[row] = row
    source, target, width, parts = order, other, 1, len(ends)
    while width < parts:
        for first in range(0, parts, 2 * width):
            begin = ends[first - 1] if first else 0
            middle, end = ends[min(first + width, parts) - 1], ends[min(first + 2 * width, parts) - 1]
            if not _merge_two(keys, source, begin, middle, end, target):
                return TIED
        source, target, width = target, source, 2 * width
    if source is not order:
        order[:] = source
    return MERGED
