"""The bench of the shared plan, tiny: its rows and goals, and that its queries are what it says they are."""

from __future__ import annotations

import pytest

from headgate.bench import derived
from headgate.bench.harness import Silent
from headgate.bench.plan import FULL, WORKLOADS, Sizes, measure, plan_of, written
from headgate.plan.merged import MergedPlan
from headgate.plan.steps import different


def test_each_workload_is_measured_at_each_size_and_held_against_its_goals() -> None:
    report = measure(Sizes((1, 4, 40), samples=5, traced=20), Silent())
    measured = [(row["workload"], row["running"]) for row in report.rows]
    assert measured == [(workload, running) for workload in WORKLOADS for running in (1, 4, 40)]
    assert all(0 < float(str(row["ms (median)"])) <= float(str(row["ms (99 of 100)"])) for row in report.rows)
    assert [row.get("kB per query", 0) != 0 for row in report.rows] == [False, False, True] * len(WORKLOADS)
    assert [goal.name for goal in report.goals[:2]] == [
        "different selections: adding one, 99 of 100",
        "different selections: 40 running against 4",
    ]
    assert [goal.goal for goal in report.goals] == [5, 3] * len(WORKLOADS)


@pytest.mark.parametrize("workload", WORKLOADS)
def test_queries_of_a_workload_find_others_to_be_computed_from(workload: str) -> None:
    plan = MergedPlan()
    for number in range(60):
        plan.add(str(number), plan_of(written(workload, number)))
    found = different(plan.queries.values()).values()
    assert sum(plan.base(x.node) is not None or bool(plan.partners(x)) for x in found) > 30


def test_the_full_bench_goes_up_to_ten_thousand_queries() -> None:
    assert FULL.running == (1, 100, 1_000, 10_000)


def test_a_selection_from_a_weaker_one_is_measured_beside_one_alone() -> None:
    alone, shared, ratio = derived.measure(["v > 500", "v > 510 AND w LIKE '%5%'"], size=50, rounds=1)
    assert alone > 0 and shared > 0 and ratio > 0
