"""What `bench shared` measures, without Spark: its data, its stores, its figures."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from headgate.bench.shared import (
    EXPERIMENTS,
    USERS,
    Experiment,
    Ran,
    checked,
    faster,
    goals,
    overhead,
    plot,
    prepared,
    rows,
)
from headgate.bench.shared_data import NAMES, make


def runs(seconds: float, *results: int) -> list[Ran]:
    return [Ran(seconds, 2 * seconds, results), Ran(seconds, 2 * seconds, results)]


FOUND = {
    x: runs(1.0 if x.sharing == "none" else 1.5 if x.roles == 3 else 0.5 if x.roles == 6 else 1.01, 7)
    for x in EXPERIMENTS
}


@pytest.mark.parametrize("roles", [1, 3, 6])
def test_streams_have_so_many_roles_and_are_made_once(tmp_path: Path, roles: int) -> None:
    made = make(tmp_path, 600, roles)
    assert make(tmp_path, 600, roles) == made
    for name in NAMES:
        table = pq.read_table(made / name)
        assert table.num_rows == 600
        assert set(table.column("roles").to_pylist()) == {f"R{number + 1}" for number in range(roles)}


@pytest.mark.parametrize("experiment", EXPERIMENTS, ids=lambda x: f"{x.name} {x.roles}")
def test_all_subscribers_of_an_experiment_read_the_same_query(experiment: Experiment, tmp_path: Path) -> None:
    headgate = prepared(experiment, make(tmp_path, 10, experiment.roles), tmp_path / "home")
    try:
        snapshot = headgate.snapshot()
        assert len(snapshot.queries) == 1
        assert len(snapshot.subscribers) == max(1, len(experiment.users))
        assert all(bool(x.labels) == bool(experiment.users) for x in snapshot.descriptors.values())
    finally:
        headgate.close()


def test_overheads_are_those_of_the_fastest_rounds_and_goals_hold_or_not() -> None:
    assert overhead(FOUND, EXPERIMENTS[1]) == pytest.approx(1.0)
    assert faster(FOUND, "EXACT") == pytest.approx(3.0)
    found = {goal.name: goal.holds for goal in goals(FOUND, 500)}
    assert found["user-level sharing, 1,000 tuples"]
    assert not found["role-level exact sharing, 1,000 tuples"]
    assert found["half dropped, exact, 1,000 tuples"]


def test_the_figures_of_the_paper_stand_beside_ours() -> None:
    table = rows(1_000_000, FOUND)
    assert [row["data"] for row in table[:3]] == ["DS4", "DS4", "DS4"]
    assert table[0]["the paper's seconds"] == 96.652
    assert table[0]["overhead %"] is None
    assert rows(77, FOUND)[0]["the paper's seconds"] is None


def test_each_way_of_sharing_is_a_line_over_the_sizes() -> None:
    drawn = plot([*rows(500_000, FOUND), *rows(1_000_000, FOUND)])
    assert len(drawn.series) == len(EXPERIMENTS)
    assert all([x for x, _ in points] == [1_000_000, 2_000_000] for points in drawn.series.values())


def test_the_bench_notices_results_that_differ() -> None:
    checked(FOUND)
    with pytest.raises(ValueError, match="instead of 7"):
        checked(FOUND | {EXPERIMENTS[1]: runs(1.0, 6, 7, 7)})
    with pytest.raises(ValueError, match="from run to run"):
        checked(FOUND | {Experiment("role-level", 3, USERS[1], "EXACT"): [Ran(1, 1, (1,)), Ran(1, 1, (2,))]})
