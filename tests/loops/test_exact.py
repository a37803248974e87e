"""Exact sums against fractions: what is added and removed in any order leaves the sum of what is held."""

from __future__ import annotations

import math
import statistics
import sys
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.loops.exact import Digits, ExactSums, add, add_square, carry
from headgate.loops.exact_results import deviation, mean, rounded, total

doubles = st.one_of(
    st.floats(allow_nan=False, allow_infinity=False),
    st.floats(-1e6, 1e6),
    st.sampled_from([5e-324, -5e-324, 2.0**-1022, 1e308, -1e308, sys.float_info.max, 0.0, -0.0, 1.0, 2.0**53, 0.1]),
    st.integers(-1074, 1023).map(lambda exponent: math.ldexp(1.0, exponent)),
)
close = st.floats(-1.0, 1.0).map(lambda number: 1e9 + number * 1e-3)
fast = settings(max_examples=200, deadline=None)


def as_double(number: Fraction) -> float:
    """The nearest double; infinite beyond them."""
    try:
        return float(number)
    except OverflowError:
        return math.inf if number > 0 else -math.inf


def filled(values: Sequence[float], gone: Sequence[float], *, squares: bool = False, groups: int = 3) -> ExactSums:
    """The sum of `values` in group 1, to which `gone` were added first and from which they were removed last."""
    sums = ExactSums(squares=squares)
    sums.grow(groups)
    step = add_square if squares else add
    for value in [*gone, *values]:
        sums.cover(np.array([value]))  # widens while sums are held
        step(sums.limbs, sums.low, 1, value, 1)
    for value in gone:
        step(sums.limbs, sums.low, 1, value, -1)
    return sums


@fast
@given(st.lists(doubles, max_size=12), st.lists(doubles, max_size=12))
def test_a_sum_is_that_of_the_values_held_correctly_rounded(values: list[float], gone: list[float]) -> None:
    sums = filled(values, gone)
    exact = sum((Fraction(value) for value in values), Fraction(0))
    assert rounded(sums.limbs, sums.low, 1) == as_double(exact)
    high, low = total(sums.limbs, sums.low, 1)
    assert high == as_double(exact)
    assert low == (float(exact - Fraction(high)) if math.isfinite(high) else 0.0)
    assert total(sums.limbs, sums.low, 1) == (high, low), "reading changes nothing"
    assert total(sums.limbs, sums.low, 0) == (0.0, 0.0) == total(sums.limbs, sums.low, 2), "other groups are untouched"


@fast
@given(st.lists(doubles, min_size=1, max_size=12), st.lists(doubles, max_size=5), st.integers(1, 2**31 - 1))
def test_a_mean_is_the_fraction_correctly_rounded(values: list[float], gone: list[float], count: int) -> None:
    sums = filled(values, gone)
    exact = sum((Fraction(value) for value in values), Fraction(0))
    assert mean(sums.limbs, sums.low, 1, len(values)) == as_double(exact / len(values))
    assert mean(sums.limbs, sums.low, 1, count) == as_double(exact / count)
    assert rounded(sums.limbs, sums.low, 1) == as_double(exact), "reading changes nothing"


@fast
@given(st.lists(doubles, max_size=8), st.lists(doubles, max_size=8))
def test_sums_of_squares_are_exact(values: list[float], gone: list[float]) -> None:
    sums = filled(values, gone, squares=True)
    exact = sum((Fraction(value) ** 2 for value in values), Fraction(0))
    assert total(sums.limbs, sums.low, 1)[0] == as_double(exact)


def held(limbs: np.ndarray[tuple[int, ...], np.dtype[np.int64]], low: int, group: int) -> Fraction:
    return sum(
        (Fraction(int(limb)) * Fraction(2) ** (low + 32 * n) for n, limb in enumerate(limbs[group])), Fraction(0)
    )


@fast
@given(st.lists(st.tuples(doubles, st.sampled_from([1, -1]), st.integers(0, 3)), max_size=40))
def test_limbs_hold_exactly_what_was_added_and_removed(steps: list[tuple[float, int, int]]) -> None:
    sums, squares = ExactSums(), ExactSums(squares=True)
    exact = [[Fraction(0), Fraction(0)] for _ in range(4)]
    for sums_ in (sums, squares):
        sums_.grow(4)
        sums_.cover(np.array([value for value, _, _ in steps], np.float64))
    for n, (value, sign, group) in enumerate(steps):
        add(sums.limbs, sums.low, group, value, sign)
        add_square(squares.limbs, squares.low, group, value, sign)
        exact[group][0] += sign * Fraction(value)
        exact[group][1] += sign * Fraction(value) ** 2
        if n % 7 == 6:  # reading and carrying between the steps
            total(sums.limbs, sums.low, group)
            mean(squares.limbs, squares.low, group, 3)
            carry(sums.limbs, group)
        assert held(sums.limbs, sums.low, group) == exact[group][0]
        assert held(squares.limbs, squares.low, group) == exact[group][1]


def exact_deviation(values: Sequence[float]) -> float:
    numbers = [Fraction(value) for value in values]
    middle = sum(numbers, Fraction(0)) / len(numbers)
    variance = sum(((number - middle) ** 2 for number in numbers), Fraction(0)) / (len(numbers) - 1)
    scale = 0
    while variance and variance < Fraction(2) ** (200 - 2 * scale):
        scale += 100
    while variance and variance > Fraction(2) ** (400 - 2 * scale):
        scale -= 100
    root = math.isqrt(int(variance * 4**scale if scale >= 0 else variance / 4**-scale))
    return as_double(Fraction(root) * Fraction(2) ** -scale)


@fast
@given(st.one_of(st.lists(doubles, min_size=2, max_size=8), st.lists(close, min_size=2, max_size=40)))
def test_a_deviation_is_right_to_the_last_digits(values: list[float]) -> None:
    sums, squares = filled(values, [0.1, 1e300]), filled(values, [0.1, 1e300], squares=True)
    found = deviation(sums.limbs, sums.low, squares.limbs, squares.low, 1, len(values))
    wanted = exact_deviation(values)
    if math.isinf(found) or math.isinf(wanted):  # at the end of the doubles either side may round over it
        assert min(found, wanted) >= sys.float_info.max * (1 - 1e-15)
    else:
        assert abs(found - wanted) <= max(1e-15 * wanted, 5e-324)
    assert rounded(sums.limbs, sums.low, 1) == as_double(sum((Fraction(value) for value in values), Fraction(0)))


@settings(max_examples=50, deadline=None)
@given(st.lists(close, min_size=2, max_size=40))
def test_a_deviation_is_that_of_the_statistics_module_on_a_small_spread(values: list[float]) -> None:
    sums, squares = filled(values, []), filled(values, [], squares=True)
    found = deviation(sums.limbs, sums.low, squares.limbs, squares.low, 1, len(values))
    assert found == pytest.approx(statistics.stdev(values), rel=1e-15, abs=0)


@pytest.mark.parametrize("value", [0.0, 0.1, -1e9, 1e300, 5e-324, 1e9 + 1e-3])
def test_equal_values_have_the_deviation_zero(value: float) -> None:
    sums, squares = filled([value] * 7, [3.3]), filled([value] * 7, [3.3], squares=True)
    assert deviation(sums.limbs, sums.low, squares.limbs, squares.low, 1, 7) == 0.0


def test_ordinary_values_need_few_limbs() -> None:
    values = np.random.default_rng(7).lognormal(3, 3, 100_000)
    sums, squares = ExactSums(), ExactSums(squares=True)
    for sums_, most in ((sums, 5), (squares, 9)):
        sums_.grow(10)
        sums_.cover(values)
        assert sums_.limbs.shape[1] <= most


def test_many_values_have_the_sum_that_fsum_finds() -> None:
    values = np.random.default_rng(3).normal(0, 1e6, 20_000)
    sums = filled([], [])
    sums.cover(values)
    for value in values:
        add(sums.limbs, sums.low, 1, value, 1)
    assert rounded(sums.limbs, sums.low, 1) == math.fsum(values)


def test_carrying_before_limbs_overflow_keeps_the_sum() -> None:
    sums = filled([1.5], [])
    sums.limbs[1] += np.int64(1) << 60  # as after very many additions
    before = held(sums.limbs, sums.low, 1)
    sums._added = 1 << 29
    sums.cover(np.array([2.5]))
    assert held(sums.limbs, sums.low, 1) == before
    assert np.abs(sums.limbs).max() <= 0xFFFFFFFF


def test_values_that_are_not_finite_are_left_out() -> None:
    sums = filled([1.0], [])
    for value in (math.nan, math.inf, -math.inf):
        sums.cover(np.array([value]))
        add(sums.limbs, sums.low, 1, value, 1)
    assert rounded(sums.limbs, sums.low, 1) == 1.0


def test_growing_keeps_sums() -> None:
    sums = filled([1.0, 2.0], [])
    sums.grow(100)
    assert len(sums.limbs) >= 100
    assert rounded(sums.limbs, sums.low, 1) == 3.0
    assert sums.nbytes == sums.limbs.nbytes


@fast
@given(st.lists(st.lists(doubles, max_size=6), min_size=1, max_size=4), st.lists(doubles, max_size=6), st.booleans())
def test_sums_that_were_taken_apart_add_up(parts: list[list[float]], values: list[float], squares: bool) -> None:
    """In one step or one after the other, as they are or with a common unit."""
    sums = [filled(part, [], squares=squares) for part in parts]
    apart = [x.digits().at(np.array([1])) for x in sums]
    exact = sum((Fraction(x) ** (2 if squares else 1) for part in [*parts, values] for x in part), Fraction(0))
    one_by_one, at_once = filled(values, [], squares=squares), filled(values, [], squares=squares)
    for digits in apart:
        one_by_one.add(np.array([1]), digits)
    at_once.add(np.ones(len(parts), np.int64), Digits.together(apart))
    for found in (one_by_one, at_once):
        assert rounded(found.limbs, found.low, 1) == as_double(exact)
        assert rounded(found.limbs, found.low, 0) == 0.0 == rounded(found.limbs, found.low, 2)


def test_digits_carry_so_that_many_sums_can_be_added() -> None:
    """A limb holds 2**30 numbers; sums that are added again and again are one number each."""
    sums = ExactSums()
    sums.grow(1)
    sums.cover(np.array([1.0, -1.0]))
    add(sums.limbs, sums.low, 0, 1.0, 1)
    for _ in range(200):  # 2**200
        digits = sums.digits()
        assert (digits.digits[:, :-1] >= 0).all() and (abs(digits.digits) < 2**32).all()
        sums.add(np.zeros(1, np.int64), digits)
    assert rounded(sums.limbs, sums.low, 0) == 2.0**200
