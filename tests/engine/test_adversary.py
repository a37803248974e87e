"""Attacks on what several people's queries have in common while they are computed: threads, limits, and each other."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import pytest

from engine.harness import NOW, Bench, Row, stream
from headgate.engine.kernels import threads


def bench(home: Path, **queries: str) -> Bench:
    found = Bench(home, stream("s", "a INT, w STRING"))
    for name, text in queries.items():
        found.query(name, text)
    return found


def rows(count: int, label: str = "TRUE") -> list[Row]:
    return [(label, number % 5, "abc") for number in range(count)]


def ended(found: Bench, who: str, query: str) -> list[str]:
    return [parcel.ended for parcel in found.mailbox.fetch(who, query, found.now) if parcel.ended]


@pytest.mark.parametrize(("milliseconds", "tuples"), [(1 << 52, 4096), (8_640_000_000_000_000, 1100)])
def test_instants_whose_number_is_more_than_a_number_holds_are_too_many(
    milliseconds: int, tuples: int, tmp_path: Path
) -> None:
    """Counted with 64 bits these would be none at all, or less than none, and end everybody's work."""
    slides = f"SELECT COUNT(*) AS n FROM s [RANGE {milliseconds} MILLISECONDS SLIDE 1 MILLISECOND]"
    found = bench(tmp_path, greedy=slides, other="SELECT a FROM s")
    found.subscribed(eve=("greedy", ""), dora=("other", ""))
    found.take("s", *rows(tuples), times=[NOW] * tuples)
    found.end()
    assert ended(found, "eve", "greedy") == ["it has more than 10,000,000 rows at once"]
    assert len(found.fetched("dora", "other")) == tuples
