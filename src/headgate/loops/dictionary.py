"""Numbers of a dictionary, given anew in the order in which they occur."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from headgate.loops.compiled import compiled

Numbers = npt.NDArray[np.int32]


@compiled
def by_occurrence(numbers: Numbers, found: Numbers, places: Numbers, order: Numbers) -> int:
    """Replaces each number by the place at which it occurs first among all that occur. `places` has -1 for every
    number; `order` gets the numbers that occur, in order, and their count is returned."""
    count = 0
    for row in range(len(numbers)):
        number = numbers[row]
        if places[number] < 0:
            places[number] = count
            order[count] = number
            count += 1
        found[row] = places[number]
    return count
