"""A processor against the oracle: random queries that share, several views each, rights that change, late tuples, any
split into batches.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from worlds.processor_replay import one_case

from headgate.plan.secure import Mode


def check(mode: Mode, first: int, cases: int) -> Counter[str]:
    counts: Counter[str] = Counter()
    for seed in range(first, first + cases):
        one_case(seed, mode, counts)
    assert counts["results"] > cases
    return counts


@pytest.mark.parametrize("mode", Mode)
def test_everyone_receives_what_the_oracle_says(mode: Mode) -> None:
    check(mode, 0, 30)


def test_a_processor_goes_on_from_saved_state(tmp_path: Path) -> None:
    counts: Counter[str] = Counter()
    for seed in range(500, 520):
        one_case(seed, Mode.EXACT, counts, tmp_path)
    assert counts["restarts"] > 20 and counts["results"] > 20


@pytest.mark.long
@pytest.mark.parametrize("mode", Mode)
def test_everyone_receives_what_the_oracle_says_in_many_cases(mode: Mode) -> None:
    print(dict(check(mode, 10_000, 1_000)))
