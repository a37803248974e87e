"""`headgate bench deadlines` at a tiny size: that it runs, and what it counts."""

from __future__ import annotations

import time

import pytest

from headgate.bench.deadline_runs import LEVELS, ProcessorClock, by_processor
from headgate.bench.deadlines import CLOCKS, Outcome, capacity, plots
from headgate.realtime.settings import STRICT


@pytest.mark.long
@pytest.mark.parametrize("clock", CLOCKS)
def test_the_bench_counts_what_each_level_was_admitted(clock: str) -> None:
    outcome = Outcome(clock, STRICT, CLOCKS[clock](STRICT, capacity(5) / 10, 6))
    rows = [outcome.row(k) for k in range(len(LEVELS))]
    assert [row["level"] for row in rows] == list(LEVELS)
    assert all(0 < int(str(row["admitted"])) <= int(str(row["submitted"])) for row in rows)
    assert [plot.title for plot in plots(outcome.samples, LEVELS)] == ["Misses", "Utilisation", "QoS"]


def test_the_clock_of_the_processor_shows_what_this_process_computes_and_what_is_skipped() -> None:
    clock = ProcessorClock()
    first, computed = clock.now(), time.process_time()
    clock.skip_to(first + 100)
    clock.skip_to(first)  # it does not go back
    with clock.stopped():
        sum(range(1_000_000))
    assert first + 100 <= clock.now() <= first + 100 + time.process_time() - computed


@pytest.mark.long  # how long a piece takes depends on the machine
def test_with_little_load_no_level_misses_by_the_clock_of_the_processor() -> None:
    run = by_processor(STRICT, 100.0, 6)
    assert sum(int(x.tardy.sum()) for x in run.samples) == 0
    assert sum(int(x.timely.sum()) for x in run.samples) > 0
