"""Aggregates over windows that lose nothing by themselves, against the oracle: rights that come and go, columns that
are hidden, restarts, any number of partitions, in both modes."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from worlds import pipeline_worlds
from worlds.pipeline_replay import one_case
from worlds.unbounded_queries import unbounded_query

from headgate.operators.partition import Partition

pytestmark = pytest.mark.usefixtures("no_waiting_for_disks")


@pytest.fixture(autouse=True)
def unbounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of queries over streams with known columns."""
    for name in ("restless", "partitioned_query"):
        monkeypatch.setattr(pipeline_worlds, name, unbounded_query)


def check(first: int, cases: int, folder: Path) -> Counter[str]:
    counts: Counter[str] = Counter()
    for seed in range(first, first + cases):
        one_case(seed, folder / str(seed), counts, unrest=seed % 4 != 0)
    return counts


def test_everyone_receives_what_the_oracle_says(tmp_path: Path) -> None:
    counts = check(0, 40, tmp_path)
    assert counts["exact results"] > 100 and counts["cumulative results"] > 20
    assert counts["restart"] > 40 and counts["lost"] > 5


@pytest.mark.long
def test_everyone_receives_what_the_oracle_says_in_1000_cases(tmp_path: Path) -> None:
    print(dict(check(1000, 1000, tmp_path)))


def test_a_right_that_is_lost_but_not_taken_out_is_found_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Partition, "renumber_visibility", lambda *_: None)
    with pytest.raises(AssertionError):
        check(0, 40, tmp_path)
