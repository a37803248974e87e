"""Exact sums of numbers, from which any number can be removed again: a window's sum is that of its tuples, whatever
came and went before, in whatever order. Rounding errors of doubles would stay forever.

A sum is a row of limbs: digits of 32 bits in 64-bit integers, sum(limbs[i] * 2**(low + 32 * i)), as in Kulisch's long
accumulator, but only as wide as the values so far need. A limb may be negative or exceed 32 bits, so adding carries
nothing. `exact_results.py` reads the sums.

INVARIANT: fewer than 2**30 numbers are held at once, and `low` is a multiple of 32.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from headgate.loops.arrays import grown
from headgate.loops.compiled import compiled, inlined

Ints = npt.NDArray[np.int64]
Doubles = npt.NDArray[np.float64]

DIGIT = 0xFFFFFFFF
_FRACTION, _HIDDEN, _EXPONENT = (1 << 52) - 1, 1 << 52, 0x7FF
_BIAS = 1075  # a double is mantissa * 2**(exponent field - 1075)
_BEFORE_CARRYING = 1 << 29
_NONE = 1 << 20  # no exponent is as great


@inlined
def _parts(value: float) -> tuple[int, int]:
    """Mantissa and exponent of the magnitude: mantissa * 2**exponent. The mantissa is 0 if it is not finite."""
    bits: int = np.float64(value).view(np.int64)  # type: ignore[assignment]  # compiled, they are one
    exponent, mantissa = (bits >> 52) & _EXPONENT, bits & _FRACTION
    if exponent == _EXPONENT:
        return 0, 0
    if exponent == 0:
        return mantissa, 1 - _BIAS
    return mantissa | _HIDDEN, exponent - _BIAS


@inlined
def add(limbs: Ints, low: int, group: int, value: float, sign: int) -> None:
    """Adds the value to a sum (sign 1) or removes it (sign -1). Infinities and NaN are left out: who has them counts
    them. INVARIANT: the value was covered."""
    mantissa, exponent = _parts(value)
    if mantissa == 0:
        return
    if value < 0:
        sign = -sign
    place = exponent - low
    limb, shift = place >> 5, np.uint64(place & 31)
    lower = np.uint64(mantissa) << shift
    limbs[group, limb] += sign * np.int64(lower & np.uint64(DIGIT))
    limbs[group, limb + 1] += sign * np.int64(lower >> np.uint64(32))
    limbs[group, limb + 2] += sign * np.int64((np.uint64(mantissa) >> np.uint64(1)) >> (np.uint64(63) - shift))


@inlined
def _square(magnitude: int) -> tuple[np.uint64, np.uint64]:
    """The square of a 64-bit number in two halves, the lower one first."""
    one = np.uint64(magnitude)
    high, low, half = one >> np.uint64(32), one & np.uint64(DIGIT), np.uint64(32)
    middle = high * low  # twice
    first = low * low
    second = (first >> half) + (middle & np.uint64(DIGIT)) + (middle & np.uint64(DIGIT))
    third = high * high + (middle >> half) + (middle >> half) + (second >> half)
    return (first & np.uint64(DIGIT)) | (second << half), third


@inlined
def add_square(limbs: Ints, low: int, group: int, value: float, sign: int) -> None:
    """Adds or removes the square of the value, exactly. INVARIANT: the value was covered with `squares`."""
    mantissa, exponent = _parts(value)
    if mantissa == 0:
        return
    place = 2 * exponent - low
    limb, shift, digit = place >> 5, np.uint64(place & 31), np.uint64(DIGIT)
    lower, upper = _square(mantissa)
    over = np.uint64(63) - shift
    first, half = lower << shift, np.uint64(32)
    second = (upper << shift) | ((lower >> np.uint64(1)) >> over)
    limbs[group, limb] += sign * np.int64(first & digit)
    limbs[group, limb + 1] += sign * np.int64(first >> half)
    limbs[group, limb + 2] += sign * np.int64(second & digit)
    limbs[group, limb + 3] += sign * np.int64(second >> half)
    limbs[group, limb + 4] += sign * np.int64((upper >> np.uint64(1)) >> over)


@inlined
def carry(limbs: Ints, group: int) -> None:
    """Makes all limbs but the highest digits of 32 bits; the sum is the same."""
    for limb in range(limbs.shape[1] - 1):
        limbs[group, limb + 1] += limbs[group, limb] >> 32
        limbs[group, limb] &= DIGIT


@compiled
def _carry_all(limbs: Ints) -> int:
    """Carries in every row; returns the greatest magnitude of a highest limb."""
    greatest = 0
    for group in range(len(limbs)):
        carry(limbs, group)
        greatest = max(greatest, abs(limbs[group, -1]))
    return greatest


@compiled
def _exponents(values: Doubles) -> tuple[int, int]:
    """The least and the greatest exponent of the finite values other than 0."""
    least, greatest = _NONE, -_NONE
    for value in values:
        mantissa, exponent = _parts(value)
        if mantissa:
            least, greatest = min(least, exponent), max(greatest, exponent)
    return least, greatest


@dataclass(frozen=True)
class Digits:
    """Exact sums apart from the groups that they belong to, a row each: sum(digits[i] * 2**(unit + 32 * i)). All digits
    but the last are between 0 and 2**32. `unit` is a multiple of 32."""

    digits: Ints
    unit: int = 0

    def at(self, rows: Ints) -> Digits:
        return Digits(self.digits[rows], self.unit)

    @staticmethod
    def together(parts: Sequence[Digits]) -> Digits:
        """All rows of these, with a common unit."""
        some = [x for x in parts if x.digits.shape[1]]
        unit = min((x.unit for x in some), default=0)
        width = max((x.digits.shape[1] + (x.unit - unit) // 32 for x in some), default=0)
        digits = np.zeros((sum(len(x.digits) for x in parts), width), np.int64)
        done = 0
        for x in parts:
            at = (x.unit - unit) // 32 if x.digits.shape[1] else 0
            digits[done : done + len(x.digits), at : at + x.digits.shape[1]] = x.digits
            done += len(x.digits)
        return Digits(digits, unit)


class ExactSums:
    """Sums of doubles, or of their squares, by group. `limbs` is replaced when it grows: read it again after `grow` and
    `cover`."""

    def __init__(self, *, squares: bool = False) -> None:
        self.limbs: Ints = np.zeros((0, 0), np.int64)
        self.low = 0
        self._squares = squares
        self._added = 0

    def grow(self, groups: int) -> None:
        """Makes room for this many groups; new sums are 0."""
        self.limbs = grown(self.limbs, groups)

    @property
    def nbytes(self) -> int:
        return self.limbs.nbytes

    def cover(self, values: Doubles) -> None:
        """Makes limbs that can hold these values; a loop may then add each of them once, and remove it any time."""
        least, greatest = _exponents(values)
        if least != _NONE:
            times, written = (2, 5) if self._squares else (1, 3)
            self._cover((times * least) >> 5, ((times * greatest) >> 5) + written)
        self._count(len(values))

    def digits(self) -> Digits:
        """All sums, by group."""
        if self.limbs.size:
            self._carry()
        return Digits(self.limbs.copy(), self.low)

    def add(self, groups: Ints, sums: Digits) -> None:
        """Adds sums to those of groups, which there is room for. A group may be given several times."""
        width = sums.digits.shape[1]
        if width and len(groups):
            first = sums.unit // 32
            self._cover(first, first + width)
            self._count(len(groups))
            np.add.at(self.limbs, (groups[:, np.newaxis], np.arange(width) + first - self.low // 32), sums.digits)

    def _count(self, numbers: int) -> None:
        """So many numbers will be added to sums; a limb has room for 2**30 of them."""
        self._added += numbers
        if self._added >= _BEFORE_CARRYING and self.limbs.size:
            self._added = numbers
            self._carry()

    def _carry(self) -> None:
        if _carry_all(self.limbs) > DIGIT:
            self._widen(0, 1)
            _carry_all(self.limbs)

    def _cover(self, first: int, end: int) -> None:
        """Makes limbs from 2**(32 * first) up to 2**(32 * end)."""
        if not self.limbs.shape[1]:
            self.low = first << 5
        below = max(self.low // 32 - first, 0)
        above = max(end - self.low // 32 - self.limbs.shape[1], 0)
        if below or above:
            self._widen(below, above)

    def _widen(self, below: int, above: int) -> None:
        """Adds limbs. A double has few exponents, so this happens at most some dozens of times."""
        self.limbs = np.pad(self.limbs, ((0, 0), (below, above)))
        self.low -= 32 * below
