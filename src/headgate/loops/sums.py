"""Aggregates of groups whose rows come and go, for each emission of a batch (`grouping.py`). A change with sign 0 does
not count."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from headgate.loops import counts as multiset
from headgate.loops import exact, exact_results, heaps
from headgate.loops.compiled import compiled, inlined

Ints = npt.NDArray[np.int64]
Signs = npt.NDArray[np.int8]
Bools = npt.NDArray[np.bool_]
Doubles = npt.NDArray[np.float64]
SUM, MEAN = range(2)
_EXACT = 1 << 53


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


@inlined
def _add_whole(
    row: Ints, group: Ints, sign: Signs, value: Any, known: Bools, start: int, end: int, count: Ints, high: Ints,
    low: Ints,
) -> None:  # fmt: skip
    every = len(known) == 0
    for k in range(start, end):
        if every or known[row[k]]:
            x, g = np.int64(value[row[k]]), group[k]
            count[g] += sign[k]
            high[g] += sign[k] * (x >> 32)
            low[g] += sign[k] * (x & 0xFFFFFFFF)


@compiled
def whole_sums(
    row: Ints, group: Ints, sign: Signs, value: Any, known: Bools, after: Ints, of: Ints, count: Ints, high: Ints,
    low: Ints, counts_found: Ints, high_found: Ints, low_found: Ints,
) -> None:  # fmt: skip
    """Exact sums of whole numbers in two parts, high * 2^32 + low, because a sum may not fit 64 bits."""
    k = 0
    for m in range(len(after)):
        _add_whole(row, group, sign, value, known, k, after[m], count, high, low)
        k = max(k, after[m])
        g = of[m]
        counts_found[m], high_found[m], low_found[m] = count[g], high[g], low[g]
    _add_whole(row, group, sign, value, known, k, len(row), count, high, low)


@compiled
def whole_means(
    row: Ints, group: Ints, sign: Signs, value: Any, known: Bools, after: Ints, of: Ints, count: Ints, high: Ints,
    low: Ints, found: Doubles, counts_found: Ints, great: Ints, high_found: Ints, low_found: Ints,
) -> tuple[int, int]:  # fmt: skip
    """Means of whole numbers. Sums that are no doubles are left to the caller: `great` are their emissions, with both
    parts of the sum. Returns how many groups have no value, and how many sums are great."""
    k = missing = many = 0
    for m in range(len(after)):
        _add_whole(row, group, sign, value, known, k, after[m], count, high, low)
        k = max(k, after[m])
        g = of[m]
        counts_found[m] = count[g]
        total = np.float64(high[g]) * 4294967296.0 + np.float64(low[g])
        if count[g] == 0:
            missing += 1
            found[m] = 0.0
        elif abs(total) < _EXACT:
            found[m] = total / count[g]
        else:
            great[many], high_found[many], low_found[many] = m, high[g], low[g]
            many += 1
    _add_whole(row, group, sign, value, known, k, len(row), count, high, low)
    return missing, many


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
