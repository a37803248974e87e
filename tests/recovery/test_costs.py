"""What pieces of work cost is learned; a disturbed measurement does not spoil it."""

from __future__ import annotations

from headgate.realtime.governor import LONGEST, PIECE, warm
from headgate.recovery.costs import Costs

MILLISECOND = 1_000_000


def learned(*disturbed: int) -> Costs:
    """Work of 4 ms and 20 us a tuple; some pieces took long for other reasons."""
    costs = Costs()
    for n in range(60):
        size = (200, 500, 800)[n % 3]
        costs.measured(size, 4_000 * MILLISECOND if n in disturbed else 4 * MILLISECOND + 20_000 * size)
    return costs


def test_a_line_is_learned() -> None:
    costs = learned()
    assert abs(costs.estimate(600) / (16 * MILLISECOND) - 1) < 0.05
    assert abs(costs.tuples_in(PIECE, LONGEST // 2) / 800 - 1) < 0.1


def test_a_first_piece_that_loads_code_and_a_hiccup_do_not_make_pieces_tiny() -> None:
    costs = learned(0, 30)
    assert abs(costs.estimate(600) / (16 * MILLISECOND) - 1) < 0.25
    assert costs.tuples_in(PIECE, LONGEST // 2) > 400


def test_pieces_share_a_commit_and_the_last_of_them_needs_time_for_all_of_it() -> None:
    costs = Costs()
    for n in range(60):
        costs.measured((120, 130, 140)[n % 3], 10 * MILLISECOND, 15 * MILLISECOND, pieces=5)
    assert abs(costs.estimate(130) / (13 * MILLISECOND) - 1) < 0.05
    assert abs(costs.bound(130) / (1.05 * 25 * MILLISECOND) - 1) < 0.1


def test_the_governor_warms_up() -> None:
    warm()
