"""Groups of rows that come and go: which groups a block emits at each step.

The changes of a batch are arrays: the row, its group, 1 (enters) or -1 (leaves), and the step. An *emission* is a group
after so many changes. All aggregates of a group are computed for the same emissions, each by a loop of its own.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from headgate.loops import heaps
from headgate.loops.compiled import compiled, inlined

Ints = npt.NDArray[np.int64]
Signs = npt.NDArray[np.int8]

GAINED, APPEARED, GONE = range(3)
"""Which groups are emitted at a step: those that gained a row, that had none before, that have none left."""


@inlined
def _change_first(
    row: int, group: int, sign: int, fifo: bool, first: Ints, last: Ints, following: Ints,
    root: Any, child: Any, sibling: Any, previous: Any, keys: Ints,
) -> None:  # fmt: skip
    """Keep the first row of a group: the head of a queue if rows leave in the order in which they came, else the least
    of a heap."""
    if fifo:
        if sign < 0:
            first[group] = following[first[group]]
        else:
            following[row] = -1
            if first[group] < 0:
                first[group] = row
            else:
                following[last[group]] = row
            last[group] = row
    elif sign > 0:
        heaps.push(root, child, sibling, previous, keys, 1, group, row)
        first[group] = root[group]
    else:
        heaps.remove(root, child, sibling, previous, keys, 1, group, row)
        first[group] = root[group]


@compiled
def changed_groups(
    kind: int, row: Ints, group: Ints, sign: Signs, step: Ints, count: Ints, before: Ints, stamp: Ints, mark: int,
    gained: Signs, touched: Ints, leads: Ints,
    fifo: bool, first: Ints, last: Ints, following: Ints, root: Any, child: Any, sibling: Any, previous: Any,
    keys: Ints, after: Ints, of: Ints, leading: Ints, at: Ints,
) -> int:  # fmt: skip
    """Apply all changes, and list the groups that change at each step in the given way, with their first rows; for
    groups that are gone, as they were before the step."""
    k = found = 0
    while k < len(row):
        start, many, mark, now = k, 0, mark + 1, step[k]
        while k < len(row) and step[k] == now:
            g = group[k]
            if stamp[g] != mark:
                stamp[g], before[g], gained[g], leads[g] = mark, count[g], 0, first[g]
                touched[many] = g
                many += 1
            count[g] += sign[k]
            if sign[k] > 0:
                gained[g] = 1
            _change_first(row[k], g, sign[k], fifo, first, last, following, root, child, sibling, previous, keys)
            k += 1
        for x in range(many):
            g = touched[x]
            if kind == GONE:
                if before[g] > 0 and count[g] == 0:
                    after[found], of[found], leading[found], at[found] = start, g, leads[g], now
                    found += 1
            elif count[g] > 0 and ((kind == GAINED and gained[g]) or (kind == APPEARED and before[g] == 0)):
                after[found], of[found], leading[found], at[found] = k, g, first[g], now
                found += 1
    return found


@compiled
def every_group(
    row: Ints, group: Ints, sign: Signs, step: Ints, steps: int, count: Ints, alive: Ints, alive_at: Ints,
    living: Ints, fifo: bool, first: Ints, last: Ints, following: Ints, root: Any, child: Any, sibling: Any,
    previous: Any, keys: Ints, progress: Ints, after: Ints, of: Ints, leading: Ints, at: Ints,
) -> int:  # fmt: skip
    """Apply all changes, and list after each step every group that has rows. Stops at a step whose groups do not fit;
    the caller goes on with more room. `progress`: changes and steps done."""
    k, s, found = progress[0], progress[1], 0
    while s < steps:
        while k < len(row) and step[k] <= s:
            g = group[k]
            count[g] += sign[k]
            if sign[k] > 0 and count[g] == 1:
                alive[living[0]], alive_at[g] = g, living[0]
                living[0] += 1
            elif sign[k] < 0 and count[g] == 0:
                living[0] -= 1
                moved = alive[living[0]]
                alive[alive_at[g]], alive_at[moved] = moved, alive_at[g]
            _change_first(row[k], g, sign[k], fifo, first, last, following, root, child, sibling, previous, keys)
            k += 1
        if found + living[0] > len(after):
            break
        for x in range(living[0]):
            g = alive[x]
            after[found], of[found], leading[found], at[found] = k, g, first[g], s
            found += 1
        s += 1
    progress[0], progress[1] = k, s
    return found


@compiled
def all_rows(row: Ints, sign: Signs, step: Ints, steps: int, there: Ints, place: Ints, living: Ints, progress: Ints,
             found: Ints, at: Ints) -> int:  # fmt: skip
    """Apply all changes, and list after each step every row that is there. Stops as `every_group` does."""
    k, s, count = progress[0], progress[1], 0
    while s < steps:
        while k < len(row) and step[k] <= s:
            if sign[k] > 0:
                there[living[0]], place[row[k]] = row[k], living[0]
                living[0] += 1
            else:
                living[0] -= 1
                moved = there[living[0]]
                there[place[row[k]]], place[moved] = moved, place[row[k]]
            k += 1
        if count + living[0] > len(found):
            break
        for x in range(living[0]):
            found[count], at[count] = there[x], s
            count += 1
        s += 1
    progress[0], progress[1] = k, s
    return count
