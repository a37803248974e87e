"""One form for the arrays that compiled loops only read: contiguous and read-only.

Numba compiles a loop again for arrays that may be written and for arrays with gaps, which takes about a second in the
middle of a stream. Arrow's columns are read-only and numpy's results are not; with one form there is one version.
"""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

T = TypeVar("T", bound=np.generic)


def read_only(array: npt.NDArray[Any], kind: type[T]) -> npt.NDArray[T]:
    """The same values in this form; copied only if they have another type or lie apart."""
    view = np.ascontiguousarray(array, kind).view()
    view.flags.writeable = False
    return view


def whole(array: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """Whole numbers, as slots, keys and places are."""
    return read_only(array, np.int64)
