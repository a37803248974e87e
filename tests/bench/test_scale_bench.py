"""What `bench scale` makes of runs; and, long, that its runs agree with what results must be."""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from headgate.bench import scale
from headgate.bench.harness import Silent
from headgate.bench.peers import data
from headgate.bench.plot import draw
from headgate.bench.processors import Spent
from headgate.bench.scale import Case, Measured, cases


def ended(case: Case, seconds: float, **more: object) -> Measured:
    spent_ = {"driver": 0.1, "spark": 1.0, "workers": 2 * seconds - 1.1}
    return Measured(case, {"seconds": seconds, "tuples": case.tuples, "agrees": True, "detail": spent_, **more})


def test_a_run_with_wrong_results_has_no_rate() -> None:
    assert ended(Case("W4r", 1_000), 2.0).rate == 500
    assert math.isnan(ended(Case("W4r", 1_000), 2.0, agrees=False).rate)
    assert math.isnan(Measured(Case("W4r", 1_000), {"failed": "no room"}).rate)
    assert Measured(Case("W4r", 1_000), {"failed": "no room"}).row()["agrees"] == "no room"


def test_every_size_runs_in_tasks_and_beside_the_driver_and_only_small_ones_in_structured_streaming() -> None:
    found = cases((10, 100, 10_000_000), 10)
    for workload in scale.WORKLOADS:
        for size in (10, 100, 10_000_000):
            assert Case(workload, size) in found and Case(workload, size, 0) in found
        assert {x.tuples for x in found if x.engine == "structured"} == {10, 100}
        assert Case(workload, 100, cores=1) in found
    assert {x.partitions for x in found if x.workload == "W3r" and x.tuples == 100} == {0, *scale.PARTITIONS}


def test_goals_compare_runs_with_equally_many_tuples(tmp_path: Path) -> None:
    sizes = (10, 1_000)
    found = [ended(case, 4.0 if case.cores == 1 else 2.0) for case in cases((10, *sizes), 10)]
    goals = {x.name: x for x in scale.goals(found, (10, *sizes))}
    assert goals["W3r: two cores as fast as one"].measured == 2 and goals["W3r: two cores as fast as one"].holds
    assert goals["W4r: the driver's processor time"].measured == pytest.approx(100 * 0.1 / 4)
    draw(scale.plots(found, (10, *sizes)), tmp_path / "plot.svg")
    assert (tmp_path / "plot.svg").stat().st_size


def test_the_report_has_a_row_for_each_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def stand_in(engine: str, workload: str, *_: object) -> Mapping[str, Any]:
        found = ended(Case(workload, 1_000), 2.0).found
        return found if engine == "headgate" else {"failed": "too slow"}

    monkeypatch.setattr(scale, "run_one", stand_in)
    monkeypatch.setattr(data, "make", lambda *_: None)
    report = scale.run(True, Silent())
    assert len(report.rows) == len(cases(scale.QUICK_SIZES, scale.QUICK_LIMIT))
    assert {row["agrees"] for row in report.rows} == {"yes", "too slow"} and report.plots


def test_processor_time_is_told_apart_by_process() -> None:
    """In a process of its own: other tests have left Spark running in this one."""
    program = """
from headgate.bench.processors import spent
import subprocess, sys
before = spent()
for _ in range(3_000_000):
    pass
subprocess.run([sys.executable, "-c", "for _ in range(5_000_000): pass"], check=True)
took = spent().since(before)
assert took.driver > 0 and took.spark == 0, took
"""
    subprocess.run([sys.executable, "-c", program], check=True)
    assert Spent(1.0, 2.0, 3.0).whole == 6


@pytest.mark.long
def test_runs_in_tasks_and_beside_the_driver_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scale, "QUICK_SIZES", (5_000, 20_000))
    monkeypatch.setattr(scale, "FEW", 1_000)
    monkeypatch.setattr(scale, "PARTITIONS", (1, 8))
    report = scale.run(True, Silent())
    assert {row["agrees"] for row in report.rows if row["where"] != scale.SPARK} == {"yes"}
