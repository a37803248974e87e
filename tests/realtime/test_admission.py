"""Admission by hand: estimates in, estimates out, versions in turn."""

from __future__ import annotations

import numpy as np

from headgate.realtime.admission import submit
from headgate.realtime.lattice import SECOND
from headgate.realtime.scheduler import advance, commit
from headgate.realtime.state import WHOLE, State, new_state

from .lattices import TWO

PERCENT = WHOLE // 100


def state(*, strict: bool = False, until_deadline: bool = False, limit: int = 100, one_always: bool = False) -> State:
    made = new_state(
        TWO,
        TWO.one_queue(),
        np.zeros(1, np.int64),
        groups=[0, 1] if strict else [0, 0],
        shared_sum=not strict,
        until_deadline=until_deadline,
        one_always=one_always,
        capacity=8,
    )
    made.levels["limit"] = limit * PERCENT
    return made


def arrives(made: State, level: int, percent: int, now: int = 0) -> bool:
    """A transaction with a deadline one second from now and an estimate of so many hundredths of a second."""
    return submit(made, now, level, now + SECOND, percent * SECOND // 100, 0) >= 0


def test_estimates_of_all_levels_count_in_the_paper() -> None:
    made = state()
    assert [arrives(made, 1, 60), arrives(made, 0, 40), arrives(made, 0, 1)] == [True, True, False]


def test_estimates_of_other_levels_do_not_count_in_strict_admission() -> None:
    made = state(strict=True)
    assert [arrives(made, 1, 60), arrives(made, 0, 70), arrives(made, 0, 30), arrives(made, 1, 40)] == [True] * 4
    assert [arrives(made, 0, 1), arrives(made, 1, 1)] == [False, False]


def test_an_estimate_is_released_at_the_end_of_its_transaction_or_at_its_deadline() -> None:
    for until_deadline in (False, True):
        made = state(until_deadline=until_deadline)
        assert arrives(made, 0, 100)
        now, t = advance(made, 0, SECOND // 2)
        assert t >= 0
        commit(made, now, t)
        assert arrives(made, 0, 100, SECOND // 2) is not until_deadline
        assert arrives(made, 0, 100, SECOND) is until_deadline


def test_a_level_may_always_have_one_transaction_where_that_is_promised() -> None:
    made = state(strict=True, limit=5, one_always=True)
    assert [arrives(made, 1, 60), arrives(made, 1, 1)] == [True, False]
    made = state(strict=True, limit=5)
    assert not arrives(made, 1, 60)


def test_versions_are_assigned_evenly() -> None:
    made = state()
    made.groups["quality"] = 0.6
    for _ in range(5):
        assert arrives(made, 0, 1)
    versions = sorted(made.transactions["version"][made.transactions["state"] != 0].tolist())
    assert versions == [0, 0, 1, 1, 1]
    assert int(made.levels[0]["promised"]) == 4 * PERCENT  # three whole, two halves


def test_a_level_that_has_no_room_turns_away_its_own_only() -> None:
    made = state(strict=True)
    assert [arrives(made, 1, 1) for _ in range(9)] == [True] * 8 + [False]
    assert arrives(made, 0, 1)


def test_rejected_transactions_are_counted() -> None:
    made = state(limit=10)
    arrives(made, 0, 50)
    arrives(made, 0, 5)
    assert (int(made.levels[0]["submitted"]), int(made.levels[0]["admitted"])) == (2, 1)
