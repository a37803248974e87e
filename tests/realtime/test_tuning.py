"""Pole placement against the paper's numbers and against scipy."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.signal import place_poles

from headgate.errors import Conflict
from headgate.realtime.settings import Control, Gains
from headgate.realtime.tuning import Profile, place, poles_of, profile, settling

from .lattices import TWO

STATED = (0.778, 0.539)


def test_placed_poles_are_at_the_given_positions() -> None:
    gains = place(1.295, STATED)
    assert np.allclose(poles_of(1.295, gains), STATED)
    # The same by scipy: states are the value and the sum of errors.
    placed = place_poles(np.array([[1.0, 0.0], [-1.0, 1.0]]), np.array([[1.295], [0.0]]), STATED).gain_matrix[0]
    assert (gains.kp, gains.ki) == pytest.approx((placed[0] + placed[1], -placed[1]))


def test_the_utilisation_gains_come_from_the_stated_poles() -> None:
    gains, used = place(2.0, STATED), Control().utilisation_gains
    assert (round(gains.kp, 3), round(gains.ki, 3)) == (used.kp, used.ki)


def test_equation_1_as_printed_does_not_have_the_stated_poles() -> None:
    assert poles_of(1.295, Gains(0.224, 0.176))[0] == pytest.approx(0.741 + 0.401j, abs=1e-3)


@pytest.mark.parametrize(("gain", "kp", "ki"), [(1.295, 0.224, 0.176), (2.288, 0.127, 0.176)])
def test_factored_and_with_twice_the_gain_both_loops_have_the_stated_poles(gain: float, kp: float, ki: float) -> None:
    assert np.allclose(poles_of(2 * gain, Gains(kp, kp * ki)), STATED, atol=1.5e-3)


def test_settling_is_counted_in_samples() -> None:
    # Both poles at 0: the loop follows after two samples.
    assert settling(1.0, place(1.0, (0.0, 0.0)), 5.0) == 10.0


def test_no_poles_are_placed_without_gain() -> None:
    with pytest.raises(Conflict, match="cannot place poles for a gain of `0`: it must be more than 0"):
        place(0, STATED)


def test_a_profile_finds_the_steepest_rise() -> None:
    measured = Profile(0, (60, 70, 80, 100), (0.0, 1.0, 13.0, 30.0))
    assert measured.steepest() == (1.2, 70, 80)


def test_the_high_level_misses_earlier_than_the_low_one() -> None:
    low, high = profile(TWO, (0.5, 0.5), (60, 120), seconds=30.0)
    assert low.misses[1] < high.misses[1]
    assert high.steepest()[1:] == (60, 120)
