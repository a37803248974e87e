"""What the handler makes of a period: hand-computed utilisation, what is left to a level, and its limit."""

from __future__ import annotations

import numpy as np
import pytest

from headgate.realtime.admission import submit
from headgate.realtime.handler import Handler, Sample
from headgate.realtime.lattice import SECOND, Lattice
from headgate.realtime.scheduler import advance, begin, commit
from headgate.realtime.settings import STAR, STRICT, Approach, Settings
from headgate.realtime.state import NOBODY, START

from .lattices import FORK, TWO

PERIOD = 5 * SECOND


def after_a_period(lattice: Lattice, approach: Approach, work: dict[int, float]) -> tuple[Handler, Sample]:
    """A period of 5 s in which each level has one transaction with so many seconds of work."""
    handler = Handler(lattice, np.zeros(1, np.int64), approach, Settings())
    places = {}
    for level, seconds in work.items():
        t = submit(handler.state, 0, level, 100 * SECOND, SECOND // 10, 0)
        assert t != NOBODY
        places[t] = round(seconds * SECOND)
    now = 0
    while True:
        now, t = advance(handler.state, now, PERIOD)
        if t == NOBODY:
            return handler, handler.sample(now)
        if handler.state.transactions[t].phase == START:
            begin(handler.state, now, t, -1, 0, places[t])
        else:
            commit(handler.state, now, t)


def test_the_limit_of_a_level_is_a_share_of_what_lower_levels_left_of_its_turns() -> None:
    handler, sample = after_a_period(TWO, STRICT, {0: 2.5, 1: 1.0})
    assert sample.utilisation == (50.0, 20.0)
    assert sample.limit == pytest.approx((5.0, 5.0))
    handler.actuators[0].limit, handler.actuators[1].limit = 60.0, 60.0
    following = handler.sample(2 * PERIOD)  # nothing ran: all turns are left
    assert following.utilisation == (0.0, 0.0)
    low, high = (actuators.limit for actuators in handler.actuators)
    assert handler.sample(3 * PERIOD).limit == pytest.approx((low * 0.85, high * 1.0))


def test_what_a_lower_level_uses_counts_as_far_as_it_takes_the_levels_own_turns() -> None:
    """`A` has 50 % of the processor. Half of the turns of `U` are also turns of `A`: where `U` uses 49 % in all, it
    takes 24.5 % of that, and leaves 25.5 %."""
    handler, _ = after_a_period(FORK, STRICT, {0: 2.45})
    limits = handler.state.levels["limit"] / 1e7
    assert limits[0] == pytest.approx(handler.actuators[0].limit * 0.70)
    for k in (1, 2):
        assert handler.actuators[k].limit * 0.255 < 5.0
        assert limits[k] == pytest.approx(5.0)  # the floor, in percent of the processor
    handler.actuators[1].limit = 60.0
    handler._actuate()
    assert handler.state.levels["limit"][1] / 1e7 == pytest.approx(60.0 * 0.255)


def test_what_a_higher_level_uses_changes_nothing_below() -> None:
    quiet, _ = after_a_period(TWO, STRICT, {0: 2.5})
    busy, _ = after_a_period(TWO, STRICT, {0: 2.5, 1: 2.0})
    assert quiet.state.levels["limit"][0] == busy.state.levels["limit"][0]
    assert quiet.actuators[0].quality == busy.actuators[0].quality


def test_signals_of_strict_control_are_in_percent_of_a_levels_turns() -> None:
    """`A` of the fork runs in half of the time: floor and start, 5 % of the processor, are 10 % of its turns. Nothing
    missed, so the miss ratio lets it rise by (0.127 + 0.176) x 1 % of its turns."""
    handler, sample = after_a_period(FORK, STRICT, {1: 1.0})
    assert sample.utilisation[1] == 20.0
    assert handler.actuators[1].settings.limit_floor == pytest.approx(10.0)
    assert handler.actuators[1].limit == pytest.approx(10.303)
    assert handler.state.levels["limit"][1] / 1e7 == pytest.approx(10.303 * 0.5)


def test_the_papers_limit_is_in_percent_of_the_processor_and_the_same_for_all_levels() -> None:
    handler, _ = after_a_period(TWO, STAR, {0: 2.5, 1: 1.0})
    limits = handler.state.levels["limit"] / 1e7
    assert limits == pytest.approx([handler.actuators[0].limit] * 2)
