"""Narrow integer columns: memory dominates the cost of whole columns, and most label columns have few distinct numbers.

A column of at most 255 kinds (numbers 0, 1, 2, ...) is stored as bytes, any other unchanged. Callers widen a column
before they do arithmetic with it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from headgate.columns.sorting import Bools, Ints

MOST = 255
_FEW = 24
"""Up to this many kinds, comparing with each kind takes a fraction of the time that counting takes."""


def narrowed(numbers: Ints, kinds: int) -> Ints:
    """The same numbers, in the narrowest type that holds this many kinds."""
    return numbers.astype(np.uint8) if kinds <= MOST and numbers.dtype != np.uint8 else numbers


def widened(numbers: Ints) -> Ints:
    return numbers.astype(np.int64, copy=False)


def offsets(numbers: Ints) -> tuple[int, Ints]:
    """The least number, and how far each lies above it, in the narrowest type that holds that; or 0 and the numbers
    themselves, where they lie too far apart."""
    least, most = (int(numbers.min()), int(numbers.max())) if len(numbers) else (0, 0)
    if most - least >= 1 << 63:
        return 0, numbers
    return least, (numbers - least if least else numbers).astype(np.min_scalar_type(most - least))


def above(least: int, distances: Ints) -> Ints:
    """The numbers that `offsets` was given, as 64-bit ones."""
    return distances.astype(np.int64) + least


def used(numbers: Ints, kinds: int) -> Bools:
    """For each kind, whether it occurs."""
    if numbers.dtype == np.uint8 and kinds <= _FEW:
        return np.array([bool((numbers == kind).any()) for kind in range(kinds)], np.bool_)
    return np.bincount(numbers, minlength=kinds) > 0


def positions_of(there: Bools) -> list[int]:
    """For each kind its position among the kinds that occur."""
    places: list[int] = np.maximum(np.cumsum(there) - 1, 0).tolist()
    return places


def renumbered(numbers: Ints, others: Sequence[int]) -> Ints:
    """Replaces number n by `others[n]`. INVARIANT: the new numbers fit the type that the old ones have."""
    if numbers.dtype == np.uint8:
        return np.frombuffer(numbers.tobytes().translate(bytes(others).ljust(256, b"\0")), np.uint8)
    return np.array(others, np.int64)[numbers]


def of_kinds(numbers: Ints, chosen: Sequence[bool]) -> Bools:
    """The rows whose number is one of the chosen kinds."""
    if numbers.dtype == np.uint8:
        return renumbered(numbers, [int(x) for x in chosen]).view(np.bool_)
    return np.array(chosen, np.bool_)[numbers]
