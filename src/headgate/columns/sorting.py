"""Orders and places in them: by counting, where numbers lie close enough together, or by comparing."""

from __future__ import annotations

from functools import cached_property

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

_FEW = 1024
_SMALL = 1 << 16


class Constant:
    """Columns of one number, again and again: cut from one that is kept, since fresh memory costs more than reading."""

    def __init__(self) -> None:
        self._kept: Ints = np.empty(0, np.int64)

    def of(self, number: int, size: int) -> Ints:
        """So many times this number, not to be written to."""
        if not len(self._kept) or len(self._kept) < size or self._kept[0] != number:
            self._kept = np.full(max(size, 1), number, np.int64)
            self._kept.flags.writeable = False
        return self._kept[:size]

    def spelt_out(self, numbers: Ints) -> Ints:
        """What is `repeated`, in memory."""
        return self.of(int(numbers[0]), len(numbers)) if len(numbers) and numbers.strides == (0,) else numbers


def repeated(number: int, size: int) -> Ints:
    """A column of one number that takes no memory, not to be written to."""
    return np.broadcast_to(np.int64(number), size)


def close(low: int, high: int, count: int) -> bool:
    """Whether so many numbers lie so close together that counting them all is less work than comparing."""
    return high - low <= 4 * count + _FEW


def same(values: Ints) -> bool:
    """Whether all are one number; there is at least one."""
    return values.strides == (0,) or bool(values[0] == values[-1] and (values == values[0]).all())


def dense(values: Ints) -> tuple[Ints, Ints]:
    """The different values, in order, and for each row the place of its value among them."""
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
    """The different values, in order."""
    if len(values) and close(low := int(values.min()), int(values.max()), len(values)):
        return np.flatnonzero(np.bincount(values - low)) + low
    values = np.sort(values)
    return values[np.flatnonzero(np.concatenate([values[:1] == values[:1], values[1:] != values[:-1]]))]


def stable_order(keys: Ints) -> Ints:
    """By key, those of one key as they stand."""
    if len(keys) and keys.min() >= 0 and keys.max() < _SMALL:
        return np.argsort(keys.astype(np.uint16), kind="stable")  # by digits
    return np.argsort(keys, kind="stable")


def rising(values: Ints) -> bool:
    return bool((values[1:] >= values[:-1]).all())


def in_sequence(values: Ints) -> Ints:
    """Sorted, which they nearly always are."""
    return values if rising(values) else np.sort(values)


def in_rows_order(sides: tuple[Ints, ...], before: Ints | None = None) -> Ints | None:
    """The order of rows by their sides (and something before these); None if that is how they stand."""
    keys = sides if before is None else (before, *sides)
    if len(keys[0]) < 2:
        return None
    tied: Bools = np.ones(len(keys[0]) - 1, np.bool_)
    for key in keys:
        steps = np.diff(key)
        if (tied & (steps < 0)).any():
            return np.lexsort(tuple(reversed(keys)))
        tied &= steps == 0
        if not tied.any():
            return None
    return None


class Positions:
    """Of numbers in order: how many are there up to any other number."""

    def __init__(self, values: Ints) -> None:
        self._values = values

    def __len__(self) -> int:
        return len(self._values)

    def up_to(self, numbers: Ints) -> Ints:
        """As a search for the place to the right of each number."""
        if self._counts is None or len(numbers) < len(self._counts) >> 4:
            return np.searchsorted(self._values, numbers, side="right")
        low, high = self._values[0] - 1, self._values[-1]
        found: Ints = self._counts[np.clip(numbers, low, high) - low]
        return found

    @cached_property
    def _counts(self) -> Ints | None:
        """How many there are up to each number, from the one before the first."""
        values = self._values
        if not len(values) or not close(int(values[0]), int(values[-1]), len(values)):
            return None
        return np.cumsum(np.bincount(values - (values[0] - 1)))
