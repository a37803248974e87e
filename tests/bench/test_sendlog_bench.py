"""What `bench sendlog` measures, at a tiny size and without Spark."""

from __future__ import annotations

import pytest

from headgate.bench.harness import Silent
from headgate.bench.sendlog import bench, networks, overlays, policies, scale
from headgate.sendlog.settings import Settings


def test_the_bench_reports_every_experiment() -> None:
    sizes = bench.Sizes((6,), (4,), (20,), (6,), rsa=6, people=100)
    report = bench.measure(sizes, Silent())
    assert {row["experiment"] for row in report.rows} == {"best path", "chord", "pier", "tracing", "policy decision"}
    assert len(report.goals) == 3 and len(report.plots) == 5
    assert all(float(str(row["% more bytes"])) > 0 for row in report.rows if row.get("% more bytes") is not None)


def test_the_overlays_are_measured_by_the_same_bench(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overlays, "QUICK", bench.Sizes(chord=(4,), pier=(20,), tracing=(6,)))
    report = overlays.run(True, Silent())
    assert {row["experiment"] for row in report.rows} == {"chord", "pier", "tracing"}


def test_signatures_cost_bytes_and_change_no_answer() -> None:
    bare, safe = (networks.best_path(6, Settings(scheme, batch=1)) for scheme in ("none", "ed25519"))
    assert bare.answer == safe.answer and bare.messages == safe.messages and bare.bytes < safe.bytes


def test_policy_decisions_are_those_of_cedar() -> None:
    found = policies.measure(50, 50, 200)
    assert found.facts == 100 and found.cedar is not None and found.decide < found.cedar


def test_links_connect_all_nodes() -> None:
    made = scale.links(10, 25)
    assert len(made) == 25 and {(i, (i + 1) % 10) for i in range(10)} <= {(i, j) for i, j, _ in made}


@pytest.mark.long
def test_the_answers_on_spark_are_those_of_scipy_and_duckdb() -> None:
    found = scale.measure([(50, 50), (200, 5)], (100, 1000, 5))
    assert [one.rows for one in found][:2] == [50 * 49, 200 * 5 - 5]
