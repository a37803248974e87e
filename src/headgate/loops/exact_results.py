"""Results of exact sums: sum, mean and sample standard deviation. All are rounded once, from the exact number, so equal
windows have equal results, however they came about.

Reading a sum may rewrite its limbs, never its value."""

from __future__ import annotations

import math

import numpy as np

from headgate.loops.compiled import compiled, inlined
from headgate.loops.exact import DIGIT, Ints, carry

_DOUBLE, _LEAST, _ABOVE = 53, -1074, 1024  # bits of a double, exponent of the least one and above the greatest


@inlined
def _bits(number: int) -> int:
    """How many bits a positive number has."""
    count = math.frexp(float(number))[1]
    return count if number >> (count - 1) else count - 1  # conversion may have rounded up to a power of 2


@inlined
def _negate(limbs: Ints, group: int) -> None:
    for limb in range(limbs.shape[1]):
        limbs[group, limb] = -limbs[group, limb]


@inlined
def _make_positive(limbs: Ints, group: int) -> bool:
    """Makes the limbs digits of the magnitude; returns whether the sum is negative, so that its limbs are negated."""
    carry(limbs, group)
    width = limbs.shape[1]
    negative = width > 0 and limbs[group, width - 1] < 0
    if negative:
        _negate(limbs, group)
        carry(limbs, group)
    return bool(negative)


@inlined
def _divided(limbs: Ints, low: int, group: int, divisor: int) -> tuple[np.uint64, int, bool]:
    """The positive sum / divisor as its first 64 bits, their exponent, and whether other bits follow, by long division;
    the first bit is 1 unless the sum is 0. INVARIANT: the divisor is below 2**31."""
    window, held, exponent, rest, more = np.uint64(0), 0, 0, 0, False
    place = limbs.shape[1] - 1
    while place >= 0 or (held < 64 and rest):
        current = (rest << 32) + (limbs[group, place] if place >= 0 else 0)
        digit = current // divisor if divisor > 1 else current
        rest = current - digit * divisor
        if held == 0:
            if digit:
                held = _bits(digit)
                window, exponent = np.uint64(digit) << np.uint64(64 - held), low + 32 * place + held - 64
        elif held <= 32:
            window |= np.uint64(digit) << np.uint64(32 - held)
            held += 32
        elif held < 64:
            window |= np.uint64(digit) >> np.uint64(held - 32)
            more |= (digit & ((1 << (held - 32)) - 1)) != 0
            held = 64
        else:
            more |= digit != 0
        place -= 1
    return window, exponent, more or rest != 0


@inlined
def _nearest(window: np.uint64, exponent: int, more: bool) -> float:
    """The nearest double, half to even; infinity if it exceeds the doubles."""
    drop = max(64 - _DOUBLE, _LEAST - exponent)
    if window == 0 or drop > 64:
        return 0.0
    half = np.uint64(1) << np.uint64(drop - 1)
    kept = (window >> np.uint64(drop - 1)) >> np.uint64(1)
    dropped = window & (half | (half - np.uint64(1)))
    if dropped > half or (dropped == half and (more or kept & np.uint64(1))):
        kept += np.uint64(1)
    if kept == 0:
        return 0.0
    if exponent + drop + _bits(int(kept)) > _ABOVE:
        return math.inf
    return math.ldexp(float(kept), exponent + drop)


@compiled
def mean(limbs: Ints, low: int, group: int, count: int) -> float:
    """The sum / count, correctly rounded. The mean is finite even where the sum exceeds the doubles.
    INVARIANT: 0 < count < 2**31."""
    negative = _make_positive(limbs, group)
    window, exponent, more = _divided(limbs, low, group, count)
    found = _nearest(window, exponent, more)
    if negative:
        _negate(limbs, group)
        return -found
    return found


@compiled
def rounded(limbs: Ints, low: int, group: int) -> float:
    """The sum, correctly rounded; infinity if it exceeds the doubles."""
    return mean(limbs, low, group, 1)


@inlined
def _subtract(limbs: Ints, low: int, group: int, value: float, sign: int) -> None:
    """Subtracts the rounded sum (sign 1), or adds it again (sign -1). It may be a bit longer than the limbs, so the
    highest limb takes all higher bits. INVARIANT: the value is a multiple of 2**low."""
    fraction, exponent = math.frexp(abs(value))
    mantissa, place = np.int64(math.ldexp(fraction, _DOUBLE)), exponent - _DOUBLE - low
    if place < 0:
        mantissa, place = mantissa >> -place, 0
    if value < 0:
        sign = -sign
    last = limbs.shape[1] - 1
    limb, shift = min(place >> 5, last), place - 32 * min(place >> 5, last)
    if limb == last:
        limbs[group, limb] -= sign * (mantissa << shift)
        return
    first = (mantissa & (DIGIT >> shift)) << shift
    rest = mantissa >> (32 - shift)
    limbs[group, limb] -= sign * first
    if limb + 1 == last:
        limbs[group, limb + 1] -= sign * rest
        return
    limbs[group, limb + 1] -= sign * (rest & DIGIT)
    limbs[group, limb + 2] -= sign * (rest >> 32)


@compiled
def total(limbs: Ints, low: int, group: int) -> tuple[float, float]:
    """The sum as two doubles: the sum correctly rounded, and what that left, correctly rounded."""
    high = rounded(limbs, low, group)
    if high == 0 or math.isinf(high):
        return high, 0.0
    _subtract(limbs, low, group, high, 1)
    left = rounded(limbs, low, group)
    _subtract(limbs, low, group, high, -1)
    return high, left


@inlined
def _subtract_square_of(limbs: Ints, group: int, into: Ints, start: int) -> None:
    """Subtracts the square of the positive sum, by digits, from the row `into`, whose digit `start` has the unit of the
    square of the lowest limb. The highest limb counts as two digits."""
    width, half = limbs.shape[1], np.uint64(32)
    for i in range(width + 1):
        one = np.uint64(limbs[group, i] & DIGIT if i < width else limbs[group, width - 1] >> 32)
        if one == 0:
            continue
        for j in range(width + 1):
            other = np.uint64(limbs[group, j] & DIGIT if j < width else limbs[group, width - 1] >> 32)
            product = one * other
            into[0, start + i + j] -= np.int64(product & np.uint64(DIGIT))
            into[0, start + i + j + 1] -= np.int64(product >> half)


@compiled
def deviation(sums: Ints, sums_low: int, squares: Ints, squares_low: int, group: int, count: int) -> float:
    """The sample standard deviation of `count` >= 2 numbers. The difference count * squares - sum**2 is exact, so
    nothing cancels; only then it is rounded."""
    if squares.shape[1] == 0:  # all numbers are 0
        return 0.0
    base = min(2 * sums_low, squares_low)
    from_sums, from_squares = (2 * sums_low - base) >> 5, (squares_low - base) >> 5
    width = max(from_sums + 2 * sums.shape[1] + 3, from_squares + squares.shape[1] + 3)
    difference = np.zeros((1, width), np.int64)
    carry(squares, group)
    for limb in range(squares.shape[1] + 1):
        digit = squares[group, limb] if limb < squares.shape[1] else squares[group, limb - 1] >> 32
        product = (digit & DIGIT) * count
        difference[0, from_squares + limb] += product & DIGIT
        difference[0, from_squares + limb + 1] += product >> 32
    negative = _make_positive(sums, group)
    _subtract_square_of(sums, group, difference, from_sums)
    if negative:
        _negate(sums, group)
    carry(difference, 0)
    window, exponent, _ = _divided(difference, base, 0, 1)
    if window == 0:
        return 0.0
    scaled = float(window)
    if exponent & 1:
        scaled, exponent = scaled * 2, exponent - 1
    root = math.sqrt(scaled / float(count * (count - 1)))
    if math.frexp(root)[1] + (exponent >> 1) > _ABOVE:
        return math.inf
    return math.ldexp(root, exponent >> 1)
