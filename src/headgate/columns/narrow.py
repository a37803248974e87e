"""Numbers of few kinds, a byte each: memory is what whole columns cost, and most columns of labels have few kinds.

Numbers from 0 up to fewer than 256 are bytes, others as they were. Whoever computes with them widens them first.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from headgate.columns.sorting import Bools, Ints

MOST = 255
_FEW = 24
"""Kinds that are looked for one by one, each in a fraction of the time that counting takes."""


def narrowed(numbers: Ints, kinds: int) -> Ints:
    """The same numbers, in as little memory as so many kinds need."""
    return numbers.astype(np.uint8) if kinds <= MOST and numbers.dtype != np.uint8 else numbers


def widened(numbers: Ints) -> Ints:
    return numbers.astype(np.int64, copy=False)


def used(numbers: Ints, kinds: int) -> Bools:
    """Which of so many kinds there are."""
    if numbers.dtype == np.uint8 and kinds <= _FEW:
        return np.array([bool((numbers == kind).any()) for kind in range(kinds)], np.bool_)
    return np.bincount(numbers, minlength=kinds) > 0


def positions_of(there: Bools) -> list[int]:
    """For each kind its place among those that there are."""
    places: list[int] = np.maximum(np.cumsum(there) - 1, 0).tolist()
    return places


def renumbered(numbers: Ints, others: Sequence[int]) -> Ints:
    """Another number in the place of each, none of them greater than the greatest there may have been."""
    if numbers.dtype == np.uint8:
        return np.frombuffer(numbers.tobytes().translate(bytes(others).ljust(256, b"\0")), np.uint8)
    return np.array(others, np.int64)[numbers]


def of_kinds(numbers: Ints, chosen: Sequence[bool]) -> Bools:
    """Which rows are of the chosen kinds."""
    if numbers.dtype == np.uint8:
        return renumbered(numbers, [int(x) for x in chosen]).view(np.bool_)
    return np.array(chosen, np.bool_)[numbers]
