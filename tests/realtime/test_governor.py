"""The driver by the real clock, by a clock that the test moves: overload, and what a level feels of others."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from headgate.labels.levels import Level, LevelOrder
from headgate.realtime.control import Controller
from headgate.realtime.governor import LEAST_SUM, PIECE, QUANTUM, Governor, lattice_of, live_settings
from headgate.realtime.lattice import SECOND
from headgate.realtime.settings import OPEN, STRICT, Approach

from .governed import CHAIN, START, Run, run

OVERLOAD = {"U": 66.7, "C": 66.7, "S": 66.6}
DIAMOND = LevelOrder({"A": frozenset("U"), "B": frozenset("U"), "T": frozenset("AB")})


def longest_above(trace: list[float], most: float) -> int:
    """In control periods."""
    longest = now = 0
    for value in trace:
        now = now + 1 if value > most else 0
        longest = max(longest, now)
    return longest


def test_under_twice_the_load_every_level_keeps_its_deadlines_and_the_processor_is_used() -> None:
    found = run(OVERLOAD, 150)
    for level in OVERLOAD:
        assert found.misses(level) < 5
        assert 5 * longest_above(found.late_after(level, 0), 5.05) <= 80
        assert found.of(level, "rejected") > 0
    assert found.utilisation(80) >= 80
    assert found.governor.overruns.count == 0


def test_without_the_governor_the_highest_level_misses_most() -> None:
    found = run(OVERLOAD, 30, approach=OPEN)
    assert found.misses("U") == 0
    assert found.misses("S") > found.misses("C") > 50
    assert found.misses("S") > 95


def test_estimates_that_are_half_of_the_truth_do_not_break_the_promise() -> None:
    found = run(OVERLOAD, 150, error=2.0)
    for level in OVERLOAD:
        assert found.misses(level) < 5


@pytest.mark.parametrize(
    ("order", "lower", "higher"), [(CHAIN, "U", "C S"), (CHAIN, "U C", "S"), (DIAMOND, "U A", "B T")]
)
def test_a_level_feels_nothing_of_levels_it_does_not_dominate(order: LevelOrder, lower: str, higher: str) -> None:
    def trace(load: float) -> dict[str, object]:
        found = run(dict.fromkeys(lower.split(), 60.0) | dict.fromkeys(higher.split(), load), 25, order=order)
        return {level: found.events[level] for level in lower.split()}

    assert trace(0) == trace(50) == trace(200)


def test_the_comparison_notices_a_shared_controller() -> None:
    """The same comparison fails where misses of all levels move one signal."""
    shared = Approach("shared", by_level=True, feedback="shared")

    def trace(load: float) -> Run:
        return run({"U": 60.0, "S": load}, 40, approach=shared)

    assert trace(0).events["U"] != trace(400).events["U"]


def test_turns_of_levels_are_constants_of_the_declared_order() -> None:
    """However many levels there are, those above others have half of the time for themselves at most."""
    chain = lattice_of(LevelOrder.total("U", *(f"L{i}" for i in range(9))))
    reserved = 9 * live_settings(chain).strict.reserve
    assert reserved == pytest.approx(0.5)
    assert live_settings(lattice_of(CHAIN)).strict.reserve == 0.15


def test_a_level_recovers_from_a_disturbance_within_80_seconds() -> None:
    """A controller that saw a period in which all was late asks for more again as soon as its sum has grown back."""
    settings = live_settings(lattice_of(CHAIN)).control

    def recovery(least: float) -> int:
        controller = Controller([0], replace(settings, least_sum=least, set_point=1.0))
        for _ in range(2):
            controller.sample({0: 45.0}, 50.0)
        return next(n for n in range(1000) if controller.sample({0: 0.0}, 50.0).change > 0)

    assert 5 * recovery(LEAST_SUM) <= 80
    assert 5 * recovery(-math.inf) > 300


def test_nothing_begins_that_does_not_fit_into_its_quantum() -> None:
    governor = Governor(CHAIN, START)
    assert governor.begins(START) == START
    number = governor.release(START, Level("U"), START + 2 * SECOND, PIECE)
    assert number is not None
    assert governor.next(START + QUANTUM - PIECE + 1) is None
    assert governor.next(START + QUANTUM - PIECE) == number
    assert governor.begins(START + 1) is None
    assert governor.next_quantum(START + 1) == START + QUANTUM
    assert governor.done(START + QUANTUM + 7, number, PIECE + 7)
    assert (governor.overruns.count, governor.overruns.longest) == (1, 7)


def test_several_pieces_of_one_level_run_before_the_first_is_done() -> None:
    governor, due = Governor(CHAIN, START), START + 2 * SECOND
    governor.begins(START)
    low = [governor.release(START, Level("U"), due + n, PIECE) for n in range(2)]
    high = governor.release(START, Level("S"), due, PIECE)
    assert [governor.next(START, Level("U")) for _ in range(3)] == [*low, None]
    assert governor.next(START) == high
    for number in (*low, high):
        assert number is not None
        assert governor.done(START + 3 * PIECE, number, PIECE)
    assert governor.next(START) is None


def test_work_that_comes_after_its_deadline_is_not_admitted() -> None:
    governor = Governor(CHAIN, START)
    governor.begins(START)
    assert governor.release(START, Level("U"), START, PIECE) is None
    assert governor.handler.state.levels[0]["submitted"] == 1


def test_work_that_waits_beyond_its_deadline_is_over_and_missed() -> None:
    governor = Governor(CHAIN, START, replace(STRICT, admission=False))
    governor.begins(START)
    number = governor.release(START, Level("U"), START + SECOND, PIECE)
    assert governor.expired(START + SECOND - 1) == []
    assert governor.expired(START + SECOND) == [number]
    assert governor.handler.state.levels[0]["tardy"] == 1
