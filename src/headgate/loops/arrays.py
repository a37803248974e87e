"""Arrays that grow with what they are indexed by.

Large ones have pages of their own, straight from the system, with more room behind them than they need: what is not
used yet takes no memory, so they grow without being copied, and one that was replaced leaves no hole among others.
"""

from __future__ import annotations

import math
import mmap
from typing import Any, TypeVar

import numpy as np

from headgate.errors import HeadgateError

Array = TypeVar("Array", bound=np.ndarray[Any, Any])

MOST_SLOTS = 2**31 - 1
"""Slots and groups are kept in 32 bits."""
_LARGE = 1 << 22
_ROOM = 8
"""So many times what a large array needs is reserved for it."""


def zeros(shape: int | tuple[int, ...], dtype: Any) -> np.ndarray[Any, Any]:
    """A new array of zeros."""
    kind = np.dtype(dtype)
    size = math.prod(shape) if isinstance(shape, tuple) else shape
    if size * kind.itemsize < _LARGE:
        return np.zeros(shape, kind)
    try:
        pages = mmap.mmap(-1, _ROOM * size * kind.itemsize, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except OSError:  # the system reserves nothing that it does not have
        return np.zeros(shape, kind)
    return np.frombuffer(pages, kind, size).reshape(shape)


def grown(array: Array, size: int, fill: int = 0) -> Array:
    """The array, or a longer one with at least `size` elements; the new ones have the value `fill`. It may lie where
    the array lies, so nobody uses the array itself any more."""
    if len(array) >= size:
        return array
    shape = (max(size, len(array) + len(array) // 2), *array.shape[1:])
    pages, count = _pages(array), math.prod(shape)
    if pages is not None and count * array.itemsize <= len(pages):
        new = np.frombuffer(pages, array.dtype, count).reshape(shape)
    else:
        new = zeros(shape, array.dtype)
        new[: len(array)] = array
    if fill:
        new[len(array) :] = fill
    return new  # type: ignore[return-value]


def _pages(array: np.ndarray[Any, Any]) -> mmap.mmap | None:
    """The pages of a large array that `zeros` or `grown` made; None for any other array, also for a part of one."""
    whole = array
    while isinstance(whole.base, np.ndarray):
        whole = whole.base
    pages = whole.base.obj if isinstance(whole.base, memoryview) else None
    return pages if isinstance(pages, mmap.mmap) and whole.size == array.size else None


def few_slots(count: int) -> None:
    """Refuses more rows, tuples or groups than 32 bits can number: they would be taken for one another."""
    if count > MOST_SLOTS:
        raise HeadgateError(f"cannot keep {count:,} tuples or groups in one partition: use more partitions")
