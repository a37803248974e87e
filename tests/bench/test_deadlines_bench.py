"""`headgate bench deadlines` at a tiny size: that it runs, and what it counts."""

from __future__ import annotations

import pytest

from headgate.bench.deadlines import LEVELS, capacity, measure, plots
from headgate.realtime.settings import STRICT


@pytest.mark.long
def test_the_bench_counts_what_each_level_was_admitted() -> None:
    outcome = measure(STRICT, capacity(5) / 10, 6)
    rows = [outcome.row(k) for k in range(len(LEVELS))]
    assert [row["level"] for row in rows] == list(LEVELS)
    assert all(0 < int(str(row["admitted"])) <= int(str(row["submitted"])) for row in rows)
    assert [plot.title for plot in plots(outcome.samples, LEVELS)] == ["Misses", "Utilisation", "QoS"]
