"""Whoever comes later sees of a query over results what its own view of these results gives, and nothing older."""

from __future__ import annotations

from pathlib import Path

import pytest
from worlds.harness import Bench, stream

NUMBERS = stream("numbers", "k INT")
COUNTS = "SELECT k, COUNT(*) AS n FROM numbers [ROWS 10] GROUP BY k"


@pytest.mark.parametrize("columns", ["k, n", "n"])
def test_a_reader_of_results_begins_with_nothing(tmp_path: Path, columns: str) -> None:
    """The readers of a query without windows share a view, but not what windows of another query hold for one of
    them."""
    bench = Bench(tmp_path, NUMBERS)
    bench.query("counts", COUNTS)
    bench.query("seen", f"SELECT {columns} FROM out.counts")
    bench.subscribed(ann=("seen", ""))
    for _ in range(3):
        bench.take("numbers", ("TRUE", 7))
    bench.subscribed(ann=("seen", ""), bob=("seen", ""))
    bench.take("numbers", ("TRUE", 7))
    bench.end()
    numbers = {who: [row[-1] for row in bench.fetched(who, "seen")] for who in ("ann", "bob")}
    assert numbers == {"ann": [1, 2, 3, 4], "bob": [1]}
