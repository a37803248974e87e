"""The benches of the engine, tiny: that they run, what they measure, which goals they are held against."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from headgate.bench import growth, joins, secfilter, state, users, windows
from headgate.bench.harness import Report, Silent
from headgate.bench.pipelines import measured
from headgate.bench.vitals import LABELS, ROLES, Vitals

TINY = users.Sizes((1, 60, 1_000), (4, 40), (1, 2), batch=2_000, repetitions=1, queries=5, windowed=100, batches=2)


def plain(report: Report) -> dict[str, Any]:
    """Its JSON, which has all that a goal needs."""
    found: dict[str, Any] = json.loads(report.to_json("x", quick=True))
    assert found["rows"]
    assert all(goal.keys() >= {"name", "measured", "goal", "holds"} for goal in found["goals"])
    assert all(points for plot in report.plots for points in plot.series.values())
    return found


def test_users() -> None:
    found = plain(users.measure(TINY, Silent()))
    assert [(row["workload"], row["users"]) for row in found["rows"]] == [
        *(("own alarms, rare", count) for _ in range(2) for count in (1, 60, 1_000)),
        ("own alarms, often", 1),
        ("own alarms, often", 2),
        ("one query, four views", 4),
        ("one query, four views", 40),
        ("5 windowed queries", 3),
    ]
    assert [goal["goal"] for goal in found["goals"]] == [1.6, 4, 1.6, 4, 1.2, 0.5]
    assert found["goals"][1]["measured"] > 1


def test_users_receive_what_their_roles_and_alarms_say() -> None:
    batch, snapshot = Vitals().batch(5_000), users.apart(8)
    rows = batch["hr"].to_pylist()
    with measured({0: snapshot}) as pipelines:
        pipelines[0].take(batch)
        counts = pipelines[0].pipeline.counts.results
    for number in range(8):
        alarm, role = 11_000 + (number + 1) * 1_237 % 4_000, ROLES[number % 4]
        expected = sum(row["hr"] > alarm and role in row["roles"] for row in rows)
        assert counts[f"q{number:04}", f"u{number}"] == expected
    assert len(LABELS) == 15


@pytest.mark.parametrize(("module", "long"), [(windows, (100,)), (joins, ())])
def test_windows_and_joins(module: Any, long: tuple[int, ...]) -> None:
    report = module.measure(growth.Sizes(batch=50, filling=1, batches=1, most=10), *long, Silent())
    found = plain(report)
    assert {row["grows"] for row in found["rows"]} >= {"views", "queries"}
    assert all(row["tuples per s"] > 0 for row in found["rows"])
    assert len(report.plots) == len({row["grows"] for row in found["rows"]} - {"tuples in all"})
    assert {case.grows for case in module.cases()} > {"keys", "views", "queries"}


def test_every_way_lets_every_tuple_out_once_and_its_overhead_is_held_against_the_goal() -> None:
    found = plain(secfilter.measure(secfilter.Sizes(1_000, 2), Silent()))
    assert [row["operators"] for row in found["rows"]] == [x for x in (4, 8, 16, 32, 64) for _ in range(3)]
    assert len(found["goals"]) == 6
    assert {goal["goal"] for goal in found["goals"]} == {1}


@pytest.mark.parametrize("operators", secfilter.OPERATORS)
def test_a_query_has_as_many_operators_as_are_said(operators: int) -> None:
    blocks = secfilter.query(operators).query.blocks
    assert len(blocks) == operators // 4


def test_state(tmp_path: Path) -> None:
    sizes = state.Sizes((300, 900), 9, views=(4,), filling=200)
    cases = [state.Case(kind, 4, held) for kind in sizes.kinds for held in sizes.held]
    rows = [state.measured_in(tmp_path / str(number), case, sizes) for number, case in enumerate(cases)]
    found = plain(state.report(rows, sizes))
    for row in found["rows"]:
        assert row["size"] / 2 <= row["held"] and (row["held"] < 3 * row["size"] or row["kind"] == "UNBOUNDED"), row
    assert len(found["goals"]) == 5
    written = next(goal for goal in found["goals"] if goal["name"].startswith("written"))
    assert 0 < written["measured"] <= 1  # bytes do not depend on the machine
