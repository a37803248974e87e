"""A right is lost, a version is committed, and the process ends before anything else comes: those who saw the same
until then keep their windows."""

from __future__ import annotations

from pathlib import Path

import pytest
from worlds.harness import Bench, stream

NUMBERS = stream("numbers", "k INT")
QUERIES = {
    "ann": "SELECT COUNT(*) AS n FROM numbers [ROWS 100]",
    "bob": "SELECT MAX(k) AS n FROM numbers [ROWS 100]",
    "cyd": "SELECT COUNT(*) AS n FROM numbers [PARTITIONED BY k ROWS 100]",
    "dan": "SELECT COUNT(*) AS n FROM numbers [UNBOUNDED]",
}
EXPECTED = {"ann": [7, 8], "bob": [9, 9], "cyd": [6, 1], "dan": [7, 8]}


@pytest.mark.parametrize("loser", QUERIES)
@pytest.mark.parametrize("roles", ["", "nurse"])
def test_one_reader_loses_a_right_and_the_windows_of_others_are_whole_after_a_restart(
    tmp_path: Path, loser: str, roles: str
) -> None:
    bench = Bench(tmp_path, NUMBERS)
    for who, text in QUERIES.items():
        bench.query(f"of_{who}", text)
    bench.subscribed(**{who: (f"of_{who}", "doctor") for who in QUERIES})
    for k in (9, 7, 7):
        bench.take("numbers", ("doctor", k), ("doctor", 7))
    bench.subscribed(**{who: (f"of_{who}", roles if who == loser else "doctor") for who in QUERIES})
    pipeline = bench.pipeline
    assert pipeline is not None
    pipeline.settle()
    pipeline.commit()
    pipeline.close()
    bench.begin()
    bench.take("numbers", ("doctor", 7), ("TRUE", 1))
    bench.end()
    for who, expected in EXPECTED.items():
        values = [n for (n,) in bench.fetched(who, f"of_{who}")]
        assert values == [1] if who == loser else values[-2:] == expected
