"""The attacks: they succeed on the paper's design, each channel on its own, and fail on the strict one."""

from __future__ import annotations

import numpy as np
import pytest

from headgate.errors import Conflict
from headgate.realtime.covert import Attack, capacity, leaks, low_trace
from headgate.realtime.settings import COVERT_AC, OPEN_AC, STAR, STRICT, Approach, Settings

from .lattices import TWO

SUM_OPEN = Approach("strict signal, shared sum", feedback="dominated", counted="shared")
SIGNAL_OPEN = Approach("shared signal, strict sum", feedback="shared", counted="own")
UNTIL_DEADLINE = Settings().but("control.released", "deadline").but("control.limit", 100.0)
ATTACK = Attack(symbol_s=0.5, seconds=300.0)


def bits(approach: Approach, settings: Settings | None = None) -> dict[str, float]:
    return {leak.observable: leak.bits_per_second for leak in leaks(TWO, approach, ATTACK, settings)}


@pytest.mark.parametrize("settings", [Settings(), UNTIL_DEADLINE])
def test_the_papers_admission_tells_the_low_level_about_the_high_one(settings: Settings) -> None:
    assert bits(OPEN_AC, settings)["admission"] > 1
    assert bits(STAR, settings)["admission"] > 0.5


def test_closing_only_the_control_signal_leaves_the_sum() -> None:
    assert bits(SUM_OPEN, UNTIL_DEADLINE)["admission"] > 1


def test_closing_only_the_sum_leaves_the_control_signal() -> None:
    assert bits(SIGNAL_OPEN)["QoS"] > 0.05


def test_deadlines_across_levels_tell_by_response_times() -> None:
    assert bits(COVERT_AC)["response time"] > 0.3


@pytest.mark.parametrize("settings", [Settings(), UNTIL_DEADLINE])
def test_nothing_comes_through_strict_control(settings: Settings) -> None:
    assert bits(STRICT, settings) == {"admission": 0.0, "QoS": 0.0, "response time": 0.0}
    silent, noisy = (low_trace(TWO, STRICT, ATTACK, np.full(400, bit), settings) for bit in (False, True))
    assert np.array_equal(silent, noisy)


def test_an_attack_that_is_too_short_to_learn_from_is_refused() -> None:
    with pytest.raises(Conflict, match="cannot learn from 3 symbols: send for at least 40 s"):
        leaks(TWO, STRICT, Attack(symbol_s=10.0, seconds=30.0))


def test_capacity_is_that_of_a_binary_symmetric_channel() -> None:
    assert [capacity(error) for error in (0.0, 0.5, 0.7)] == [1.0, 0.0, 0.0]
    assert capacity(0.11) == pytest.approx(0.5, abs=1e-3)
