"""Sorting and positions in sorted columns: by counting where the numbers lie close together, else by comparing."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

_FEW = 1024
_SMALL = 1 << 16


class Constant:
    """Constant columns, sliced from one that is kept: allocating memory costs more than reading it."""

    def __init__(self) -> None:
        self._kept: Ints = np.empty(0, np.int64)

    def of(self, number: int, size: int) -> Ints:
        """A read-only column of `size` times this number."""
        if not len(self._kept) or len(self._kept) < size or self._kept[0] != number:
            self._kept = np.full(max(size, 1), number, np.int64)
            self._kept.flags.writeable = False
        return self._kept[:size]

    def spelt_out(self, numbers: Ints) -> Ints:
        """A column made by `repeated` as one in memory; any other column unchanged."""
        return self.of(int(numbers[0]), len(numbers)) if len(numbers) and numbers.strides == (0,) else numbers


def repeated(number: int, size: int) -> Ints:
    """A read-only column of one number that takes no memory (stride 0)."""
    return np.broadcast_to(np.int64(number), size)


def close(low: int, high: int, count: int) -> bool:
    """Whether `count` numbers between `low` and `high` lie so close that counting takes less work than comparing."""
    return high - low <= 4 * count + _FEW


def same(values: Ints) -> bool:
    """Whether all values are equal. INVARIANT: there is at least one value."""
    return values.strides == (0,) or bool(values[0] == values[-1] and (values == values[0]).all())


def dense(values: Ints) -> tuple[Ints, Ints]:
    """The distinct values in order, and for each row the position of its value among them."""
    if not len(values):
        return values, values
    if same(values):
        return values[:1], np.zeros(len(values), np.int64)
    low, high = int(values.min()), int(values.max())
    if not close(low, high, len(values)):
        order = np.argsort(values)
        changes = np.diff(values[order], prepend=values[order[0]]) != 0
        places = np.empty(len(values), np.int64)
        places[order] = np.cumsum(changes)
        changes[0] = True
        return values[order[changes]], places
    there, places = np.zeros(high - low + 1, np.bool_), values - low
    there[places] = True
    kinds = np.flatnonzero(there)
    if len(kinds) < len(there):
        places = (np.cumsum(there) - 1)[places]
    return kinds + low, places


def distinct(values: Ints) -> Ints:
    """The distinct values in order."""
    if len(values) and close(low := int(values.min()), int(values.max()), len(values)):
        return np.flatnonzero(np.bincount(values - low)) + low
    values = np.sort(values)
    return values[np.flatnonzero(np.concatenate([values[:1] == values[:1], values[1:] != values[:-1]]))]


def stable_order(keys: Ints) -> Ints:
    """The order of rows by key; rows of equal keys keep their order."""
    if len(keys) and keys.min() >= 0 and keys.max() < _SMALL:
        return np.argsort(keys.astype(np.uint16), kind="stable")  # radix sort
    return np.argsort(keys, kind="stable")
