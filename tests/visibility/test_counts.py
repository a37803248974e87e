"""The counts for the owner of a stream: how many tuples nobody sees, and how many were late."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import pytest
from worlds.harness import NOW, Bench, stream


def after(*seconds: float) -> list[dt.datetime | None]:
    return [NOW + dt.timedelta(seconds=x) for x in seconds]


def told(bench: Bench, name: str = "s") -> tuple[int, int, int]:
    """Tuples, those that nobody sees, and those that are late."""
    assert bench.pipeline is not None
    counts = bench.pipeline.counts
    return counts.tuples[name], counts.unseen[name], counts.late[name]


QUERIES = {
    "passing": "SELECT a FROM s WHERE a > 3",
    "windowed": "SELECT COUNT(*) AS n FROM s [ROWS 3]",
    "over": "SELECT n FROM out.windowed",
    "again": "SELECT MAX(n) AS n FROM out.windowed [ROWS 2]",
}


@pytest.mark.parametrize("who", [["passing"], ["windowed"], ["passing", "windowed"], ["again"], [*QUERIES]], ids=str)
@pytest.mark.parametrize("readers", [1, 2])
def test_unseen_tuples_are_those_that_no_subscriber_may_see(tmp_path: Path, who: list[str], readers: int) -> None:
    """It counted late tuples for one reader and none for two, and did not count those labelled FALSE."""
    bench = Bench(tmp_path, stream("s", "a INT"))
    for name, text in QUERIES.items():
        bench.query(name, text)
    bench.subscribed(**{f"{query}{n}": (query, ("r", "q")[n]) for query in who for n in range(readers)})
    bench.take("s", ("r", 1), ("FALSE", 9), ("FALSE", 1), ("q", 9), ("r", 9))
    assert told(bench)[:2] == (5, 2 if readers == 2 else 3)


def test_late_tuples_are_counted_separately_and_once(tmp_path: Path) -> None:
    bench = Bench(tmp_path, stream("s", "a INT"))
    for name, text in QUERIES.items():
        bench.query(name, text)
    bench.subscribed(ann=("windowed", "r"), bob=("windowed", "r,q"), cyd=("passing", "r"), dan=("again", "r"))
    bench.clock.advance(60)
    bench.take("s", ("r", 1), ("r", 9), ("r", 9), times=after(10, 5, 11))  # the second is late
    assert told(bench) == (3, 0, 1)
    bench.take("s", ("r", 1), ("FALSE", 1), ("q", 1), times=after(1, 1, 1))  # so are r and, for bob, q
    assert told(bench) == (6, 1, 3)


def test_a_tuple_of_a_stateless_query_is_never_late(tmp_path: Path) -> None:
    bench = Bench(tmp_path, stream("s", "a INT"))
    bench.query("passing", QUERIES["passing"])
    bench.subscribed(ann=("passing", "r"))
    bench.take("s", ("r", 1), ("r", 9), times=after(10, 5))
    assert told(bench) == (2, 0, 0) and bench.fetched("ann", "passing") == [(9,)]
