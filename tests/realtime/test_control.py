"""Controllers and actuators against traces computed by hand, with the paper's gains."""

from __future__ import annotations

import pytest

from headgate.realtime.actuators import Actuators
from headgate.realtime.control import Controller, Pi, Threshold, combine
from headgate.realtime.settings import Control, Gains


def test_a_pi_controller_follows_equation_1() -> None:
    pi = Pi(Gains(0.224, 0.176))
    assert pi.signal(5.0) == pytest.approx(0.224 * 5 + 0.176 * 5)
    pi.integrate(5.0)
    assert pi.signal(-10.0) == pytest.approx(0.224 * -10 + 0.176 * -5)  # -3.12
    assert pi.signal(-10.0) == pytest.approx(-3.12)  # asking twice changes nothing


def test_negative_signals_add_up_and_otherwise_the_smallest_counts() -> None:
    assert combine([-2.0, -3.0]) == -5.0
    assert combine([-2.0, 3.0]) == -2.0
    assert combine([2.0, 3.0]) == 2.0
    assert combine([-1.0, 4.0, -2.0]) == -3.0


def test_the_threshold_creeps_up_and_falls_back() -> None:
    threshold = Threshold(80, 2, 85)
    threshold.update(no_misses=True, misses_in_control=False)
    assert threshold.value == 82
    threshold.update(no_misses=True, misses_in_control=False)
    threshold.update(no_misses=True, misses_in_control=False)
    assert threshold.value == 84  # 86 would exceed its top
    threshold.update(no_misses=False, misses_in_control=False)
    assert threshold.value == 84
    threshold.update(no_misses=True, misses_in_control=True)
    assert threshold.value == 80


def test_the_smaller_of_both_signals_is_carried_out_and_only_its_integrator_runs() -> None:
    settings = Control(utilisation_gains=Gains(0.3, 0.05))
    controller = Controller([0, 1], settings)
    # Misses are few: both miss signals are 0.4 x 5 = 2 and 0.303 x 5 = 1.515; utilisation asks for 0.35 x 2 = 0.7.
    signal = controller.sample({0: 0.0, 1: 0.0}, 78.0)
    assert signal.change == pytest.approx(0.7)
    assert signal.by_level == pytest.approx({0: 2.0, 1: 1.515})
    assert controller.of_utilisation.total == pytest.approx(2.0)
    assert [pi.total for pi in controller.of_misses.values()] == [0.0, 0.0]
    assert controller.threshold.value == 82
    # Level 1 misses 15 %: its signal is 0.303 x -10; level 0 has no part in it.
    signal = controller.sample({0: 0.0, 1: 15.0}, 82.0)
    assert signal.change == pytest.approx(-3.03)
    assert signal.misses_in_control
    assert [pi.total for pi in controller.of_misses.values()] == [0.0, -10.0]
    assert controller.of_utilisation.total == pytest.approx(2.0)
    assert controller.threshold.value == 80
    # Both miss: both signals add up, both integrators run. 0.4 x -5 = -2; 0.127 x -1 + 0.176 x -11 = -2.063.
    signal = controller.sample({0: 10.0, 1: 6.0}, 90.0)
    assert signal.of_misses == pytest.approx(-4.063)
    assert [pi.total for pi in controller.of_misses.values()] == [-5.0, -11.0]


def test_nobody_integrates_while_nothing_is_held_back() -> None:
    controller = Controller([0], Control())
    for _ in range(50):
        controller.sample({0: 0.0}, 50.0, saturated=True)
    assert controller.of_utilisation.total == controller.of_misses[0].total == 0.0


def test_the_factored_form_multiplies_both_gains() -> None:
    controller = Controller([0], Control(form="factored"))
    assert controller.of_misses[0].signal(5.0) == pytest.approx(0.224 * (5 + 0.176 * 5))


def test_qos_is_degraded_before_admission() -> None:
    actuators = Actuators(Control(start=60.0), (0.5, 1.0))
    # All at full QoS use 90 %. To take away 9 points, mean work falls from 1 to 0.9: quality 0.8.
    actuators.apply(-9.0, 90.0)
    assert actuators.quality == pytest.approx(0.8)
    assert actuators.limit == pytest.approx(60.0)
    # Mean work falls from 0.9 to its least, 0.75: that is 15 points of 90; the other 5 are admission's.
    actuators.apply(-20.0, 90.0)
    assert actuators.quality == 0.5
    assert actuators.limit == pytest.approx(55.0)
    actuators.apply(-500.0, 90.0)
    assert actuators.limit == 5.0  # its floor


def test_admission_recovers_before_qos() -> None:
    actuators = Actuators(Control(start=70.0), (0.5, 1.0))
    actuators.quality = 0.5
    actuators.apply(3.0, 60.0)
    assert (actuators.limit, actuators.quality) == (73.0, 0.5)
    actuators.apply(8.0, 60.0)  # 2 points for admission, 6 of 60 for QoS: mean work from 0.75 to 0.825
    assert actuators.limit == 75.0
    assert actuators.quality == pytest.approx(0.65)
    actuators.apply(100.0, 60.0)
    assert actuators.saturated


def test_more_than_two_versions_share_the_range_of_quality() -> None:
    actuators = Actuators(Control(quality_floor=0.0), (0.25, 0.5, 1.0))
    assert [actuators.work(q) for q in (0.0, 0.5, 0.75, 1.0)] == [0.25, 0.5, 0.75, 1.0]
    actuators.apply(-50.0, 80.0)  # mean work from 1 to 0.375, halfway between the first two versions
    assert actuators.quality == pytest.approx(0.25)
    single = Actuators(Control(), (1.0,))
    single.apply(-10.0, 80.0)
    assert (single.quality, single.limit) == (0.5, 5.0)


def test_degradation_relieves_the_load_of_the_papers_table_1() -> None:
    work = Actuators(Control(), (0.5, 1.0)).work
    relieved = [[round(load * (1 - work(q / 10)), 6) for q in range(5, 11)] for load in (150, 200)]
    assert relieved == [[37.5, 30, 22.5, 15, 7.5, 0], [50, 40, 30, 20, 10, 0]]


def test_the_papers_pair_of_throughput_and_qos_exceeds_the_processor() -> None:
    """66.67 % of a load of 200 % at a QoS of 63.17 % is more work than there is time, and far more than 90 % of it."""
    work = Actuators(Control(), (0.5, 1.0)).work
    assert 200 * 0.6667 * work(0.6317) == pytest.approx(108.8, abs=0.1)
    assert 200 * 0.6667 * work(0.55) == pytest.approx(103.3, abs=0.1)  # what the paper also says of its QoS
    assert 200 * (0.6667 - 0.0367) * work(0.6317 - 0.0703) > 98  # at the low ends of both intervals
