"""What `bench peers` makes of runs, without running any engine."""

from __future__ import annotations

import math
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from headgate.bench.peers.bench import (
    AS_WRITTEN,
    HEADGATE,
    SPARK,
    Outcome,
    Way,
    best,
    goals,
    installed,
    judged,
    plot,
    ways,
)
from headgate.bench.peers.every import ENGINES, _ended
from headgate.bench.peers.workloads import WORKLOADS
from headgate.bench.plot import draw


def found(workload: str, engine: str, seconds: float, *, tuples: int = 1_000, agrees: bool = True) -> Outcome:
    return Outcome(Way(engine), workload, tuples, seconds, agrees)


def test_a_wrong_result_has_no_time() -> None:
    wrong = judged(Way(SPARK), "W1", 1_000, {"seconds": 2.0, "agrees": False})
    assert math.isnan(wrong.rate)
    assert wrong.row()["tuples/s"] is None
    assert wrong.row()["agrees"] == "no"
    assert best([wrong]) is None
    assert judged(Way(SPARK), "W1", 1_000, {"seconds": 2.0, "agrees": True}).row()["tuples/s"] == 500


def test_a_run_that_takes_too_long_is_a_bound() -> None:
    late = judged(Way(SPARK), "W3r", 3_000, {"failed": "not done within 300 s", "limit": 300})
    assert late.rate == 10
    assert late.row()["agrees"] == "more than 300 s"
    done = found("W3r", SPARK, 299)
    assert best([late, done]) == done
    assert best([late]) == late


def test_a_run_that_fails_says_why() -> None:
    failed = judged(Way("flink"), "W1", 1_000, {"failed": "no room"})
    assert failed.row()["agrees"] == "no room"
    assert best([failed]) is None


def test_goals_are_ratios_at_the_largest_size_to_the_best_of_others() -> None:
    runs = [
        found("W3r", HEADGATE, 1),
        found("W3r", HEADGATE, 2, tuples=10_000),
        found("W3r", SPARK, 20, tuples=10_000),
        Outcome(AS_WRITTEN["W3r"], "W3r", 10_000, 200, True),
        found("W3r", "flink", 40, tuples=10_000),
        found("W3r", "bytewax", 20, tuples=10_000),
    ]
    by_name = {goal.name: goal for goal in goals(runs)}
    assert by_name["W3r: as fast as Structured Streaming as its guide writes it"].measured == 100
    assert by_name["W3r: as fast as Structured Streaming with time as a key"].measured == 10
    assert by_name["W3r: as fast as the best other peer"].measured == 10
    assert by_name["W3r: as fast as Structured Streaming as its guide writes it"].holds
    assert not by_name["W3r: as fast as Structured Streaming with time as a key"].holds
    assert not by_name["W1: as fast as Structured Streaming"].holds


def test_what_is_right_and_in_time_is_drawn(tmp_path: Path) -> None:
    late, wrong = found("W2", SPARK, 300), found("W2", "flink", 1, agrees=False)
    runs = [
        found("W1", HEADGATE, 1),
        found("W3r", HEADGATE, 4),
        found("W1", SPARK, 2),
        replace(late, done=False),
        wrong,
    ]
    drawn = plot([*runs, Outcome(AS_WRITTEN["W3r"], "W3r", 1_000, 200, True)])
    assert drawn.series == {"headgate": [(0, 1000), (3, 250)], "structured streaming": [(0, 500)]}
    draw([drawn], tmp_path / "peers.svg")
    assert b"<svg" in (tmp_path / "peers.svg").read_bytes()


@pytest.mark.parametrize("workload", WORKLOADS)
def test_every_way_is_one_the_engine_knows(workload: str) -> None:
    assert all(way.variant in ENGINES[way.engine][name] for name, way in AS_WRITTEN.items())
    for engine, tried in ways(workload).items():
        assert tried
        assert all(engine == HEADGATE or way.variant in ENGINES[engine][workload] for way in tried)


def test_engines_that_are_not_here_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADGATE_PEERS", str(tmp_path))
    here, notes = installed()
    assert here == [HEADGATE, SPARK]
    assert len(notes) == 2


def test_the_limit_counts_from_when_the_run_began(tmp_path: Path) -> None:
    begun = tmp_path / "begun"
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    try:
        begun.touch()
        os.utime(begun, (time.time() - 100,) * 2)
        assert not _ended(process, begun, 99)
    finally:
        process.kill()
        process.wait()
    assert _ended(process, begun, 99)
