"""Names for the arrays that compiled code works on."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Records = Any
"""A numpy array of records; mypy does not know the fields of a record, numba does."""
