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
def merge(keys: Ints, ends: Ints, order: Ints, other: Ints) -> int:
    """Brings rows into the order of their keys, of which the first decides first. The rows of a part follow those of
    the part before; `ends` says where parts end. MERGED: `order` has the rows. UNORDERED: a part is not in order.
    TIED: rows of different parts have equal keys. `other` has as much room as `order`."""
    parts = len(ends)
    start = 0
    for part in range(parts):
        for row in range(start + 1, ends[part]):
            if _compared(keys, row - 1, row) > 0:
                return UNORDERED
        start = ends[part]
    for row in range(len(order)):
        order[row] = row
    source, target, width, left = order, other, 1, parts
    while left > 1:
        for first in range(0, parts, 2 * width):
            begin = ends[first - 1] if first else 0
            middle = ends[min(first + width, parts) - 1]
            end = ends[min(first + 2 * width, parts) - 1]
            a, b = begin, middle
            for place in range(begin, end):
                if b >= end:
                    target[place] = source[a]
                    a += 1
                    continue
                if a >= middle:
                    target[place] = source[b]
                    b += 1
                    continue
                compared = _compared(keys, source[a], source[b])
                if compared == 0:
                    return TIED
                if compared < 0:
                    target[place] = source[a]
                    a += 1
                else:
                    target[place] = source[b]
                    b += 1
        source, target, width, left = target, source, 2 * width, (left + 1) // 2
    if source is not order:
        order[:] = source
    return MERGED
