"""Aggregates of groups whose rows come and go, for each emission of a batch (`grouping.py`). A change with sign 0 does
not count."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from headgate.loops import counts as multiset
from headgate.loops import exact, exact_results, heaps
from headgate.loops.compiled import compiled

Ints = npt.NDArray[np.int64]
Signs = npt.NDArray[np.int8]
Bools = npt.NDArray[np.bool_]
Doubles = npt.NDArray[np.float64]
SUM, MEAN = range(2)


@compiled
def counted(row: Ints, group: Ints, sign: Signs, known: Bools, after: Ints, of: Ints, count: Ints, found: Ints) -> None:
    """How many rows of the group have a value; all rows if `known` is empty."""
    every, k = len(known) == 0, 0
    for m in range(len(after) + 1):
        end = after[m] if m < len(after) else len(row)
        while k < end:
            if every or known[row[k]]:
                count[group[k]] += sign[k]
            k += 1
        if m < len(after):
            found[m] = count[of[m]]


@compiled
def whole_sums(
    row: Ints, group: Ints, sign: Signs, value: Any, known: Bools, after: Ints, of: Ints, high: Ints, low: Ints,
    high_found: Ints, low_found: Ints,
) -> None:  # fmt: skip
    """Exact sums of whole numbers in two parts, high * 2^32 + low, because a sum may not fit 64 bits."""
    every, k = len(known) == 0, 0
    for m in range(len(after) + 1):
        end = after[m] if m < len(after) else len(row)
        while k < end:
            if every or known[row[k]]:
                x, g = np.int64(value[row[k]]), group[k]
                high[g] += sign[k] * (x >> 32)
                low[g] += sign[k] * (x & 0xFFFFFFFF)
            k += 1
        if m < len(after):
            high_found[m], low_found[m] = high[of[m]], low[of[m]]


@compiled
def double_sums(
    kind: int, row: Ints, group: Ints, sign: Signs, value: Any, known: Bools, after: Ints, of: Ints, limbs: Ints,
    unit: int, count: Ints, found: Doubles, counts_found: Ints,
) -> None:  # fmt: skip
    """Sums or means of doubles, rounded once from the exact sum."""
    every, k = len(known) == 0, 0
    for m in range(len(after) + 1):
        end = after[m] if m < len(after) else len(row)
        while k < end:
            if sign[k] != 0 and (every or known[row[k]]):
                exact.add(limbs, unit, group[k], np.float64(value[row[k]]), sign[k])
                count[group[k]] += sign[k]
            k += 1
        if m < len(after):
            counts_found[m] = count[of[m]]
            if count[of[m]] > 0:
                found[m] = exact_results.mean(limbs, unit, of[m], count[of[m]] if kind == MEAN else 1)


@compiled
def deviations(
    row: Ints, group: Ints, sign: Signs, value: Any, known: Bools, after: Ints, of: Ints, sums: Ints, sums_unit: int,
    squares: Ints, squares_unit: int, count: Ints, found: Doubles, counts_found: Ints,
) -> None:  # fmt: skip
    """Sample standard deviations, from exact sums and sums of squares."""
    every, k = len(known) == 0, 0
    for m in range(len(after) + 1):
        end = after[m] if m < len(after) else len(row)
        while k < end:
            if sign[k] != 0 and (every or known[row[k]]):
                exact.add(sums, sums_unit, group[k], np.float64(value[row[k]]), sign[k])
                exact.add_square(squares, squares_unit, group[k], np.float64(value[row[k]]), sign[k])
                count[group[k]] += sign[k]
            k += 1
        if m < len(after):
            counts_found[m] = count[of[m]]
            if count[of[m]] > 1:
                found[m] = exact_results.deviation(sums, sums_unit, squares, squares_unit, of[m], count[of[m]])


@compiled
def extremes(
    order: int, row: Ints, group: Ints, sign: Signs, keys: Any, known: Bools, after: Ints, of: Ints,
    root: Any, child: Any, sibling: Any, previous: Any, found: Ints,
) -> None:  # fmt: skip
    """The row with the least (order 1) or greatest (order -1) value of the group; -1 if no row has a value."""
    every, k = len(known) == 0, 0
    for m in range(len(after) + 1):
        end = after[m] if m < len(after) else len(row)
        while k < end:
            if every or known[row[k]]:
                if sign[k] > 0:
                    heaps.push(root, child, sibling, previous, keys, order, group[k], row[k])
                elif sign[k] < 0:
                    heaps.remove(root, child, sibling, previous, keys, order, group[k], row[k])
            k += 1
        if m < len(after):
            found[m] = root[of[m]]


@compiled
def first_and_last(
    row: Ints, group: Ints, sign: Signs, code: Ints, known: Bools, table: Ints, seed: Any, used: Ints, found: Signs
) -> None:
    """The changes that count where each value counts once: the first row with a value that enters, and the last one
    that leaves."""
    every = len(known) == 0
    for k in range(len(row)):
        found[k] = 0
        if every or known[row[k]]:
            left = multiset.change(table, seed, used, group[k], code[row[k]], sign[k])
            if (sign[k] > 0 and left == 1) or (sign[k] < 0 and left == 0):
                found[k] = sign[k]
