"""Arrays that grow with what they are indexed by."""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np

Array = TypeVar("Array", bound=np.ndarray[Any, Any])


def grown(array: Array, size: int, fill: int = 0) -> Array:
    """The array, or a longer copy with at least `size` elements; the new ones have the value `fill`."""
    if len(array) >= size:
        return array
    new = np.full((max(size, len(array) + len(array) // 2), *array.shape[1:]), fill, array.dtype)
    new[: len(array)] = array
    return new  # type: ignore[return-value]
