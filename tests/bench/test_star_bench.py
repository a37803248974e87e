"""What `bench star` computes from its runs, without Spark but for one job."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pytest

from headgate.bench import star
from headgate.bench.harness import Progress, Silent
from headgate.bench.star_figures import figures
from headgate.bench.star_runs import Ran, on_spark
from headgate.bench.star_tables import reproduction_rows, specification_rows, worst
from headgate.realtime.experiments import (
    Case,
    Outcome,
    fresh_cases,
    lattice_cases,
    paper_cases,
    repeated,
    run_case,
    sensitivity_cases,
    two,
)
from headgate.realtime.settings import STAR, STRICT
from headgate.realtime.summaries import Mean, summarise


def outcome(case: Case, miss: float = 1.0) -> Outcome:
    """A made-up run, whose numbers are easy to follow."""
    traces = tuple((0.0, miss, 0.0) for _ in case.shares)
    return Outcome(case, tuple(miss for _ in case.shares), 90.0, 60.0, 55.0, 1000, traces)


def test_the_experiments_are_those_of_the_paper() -> None:
    cases = paper_cases()
    parts = [case.part for case in cases]
    assert {part: parts.count(part) for part in dict.fromkeys(parts)} == {
        "set 1": 20,
        "set 2": 20,
        "set 3": 20,
        "set 4, 10,000 items": 10,
        "set 4, 100,000 items": 20,
    }
    assert all(sum(case.shares) == pytest.approx(200) for case in cases if case.part != "set 1")
    assert {case.items for case in cases} == {1_000, 10_000, 100_000}
    assert {case.levels for case in lattice_cases()} >= {"3, two incomparable", "5 with a diamond"}
    fresh, known = repeated(fresh_cases(), 2, 600.0, 1000), repeated(paper_cases(), 10, 600.0)
    assert not {case.seed for case in fresh} & {case.seed for case in known}
    assert len({case.setting for case in sensitivity_cases()}) == len(sensitivity_cases())


def test_confidence_intervals_are_students() -> None:
    mean = Mean.of([1.0, 2.0, 3.0])
    assert (mean.value, round(mean.half, 4)) == (2.0, 1.6859)  # t(0.95, 2) = 2.91999, s = 1
    assert str(Mean.of([4.0])) == "4.00 ± 0.00"


def test_settling_is_the_longest_stretch_above() -> None:
    case = Case("set 1", 0, STRICT, (1.0,))
    (summary,) = summarise([Outcome(case, (0.0,), 0, 0, 0, 0, ((6, 6, 0, 6, 6, 6, 5),))])
    assert summary.settling(0, 5.0, 5.05) == 15.0
    assert summary.peak(0) == 6


def test_every_setting_of_strict_star_is_held_against_the_specification() -> None:
    summaries = summarise(outcome(case) for case in repeated(paper_cases(), 2, 15.0))
    assert len(list(specification_rows(summaries))) == 24
    strict = [summary for summary in summaries if summary.case.approach == STRICT]
    assert worst(strict) == (1.0, 1.0, 0.0, 90.0)
    bad = summarise([outcome(Case("set 1", 200, STRICT, two(200, 20)), miss=7.0)])
    assert worst(bad) == (7.0, 7.0, 5.0, 90.0)


def test_every_number_of_the_papers_text_stands_beside_ours() -> None:
    rows = list(reproduction_rows(summarise(outcome(case) for case in paper_cases())))
    stated = {row["paper"] for row in rows}
    assert {"8.59 ± 1.79", "1.72 ± 0.49", "66.67 ± 3.67", "63.17 ± 7.03", "7.43 at 395 s", "7.39 at 130 s"} <= stated
    assert all(row["ours"] for row in rows)


def test_all_figures_are_drawn() -> None:
    plots = figures(summarise(outcome(case) for case in paper_cases()))
    assert [plot.title.split(":")[0] for plot in plots] == [f"Figure {number}" for number in range(4, 19)]
    assert all(set(plot.intervals) <= set(plot.series) for plot in plots)


def test_a_run_measures_what_its_transactions_did() -> None:
    found = run_case(Case("set 1", 70.0, STAR, two(30, 20), seconds=20.0))
    assert found.submitted > 300
    assert len(found.traces) == 2 and len(found.traces[0]) == 4
    assert 0 < found.utilisation < 35 and found.quality == 100


@pytest.mark.long
def test_the_bench_gives_the_same_numbers_on_spark_and_without() -> None:
    def alone(cases: Sequence[Case], progress: Progress) -> Ran:
        assert progress
        return Ran([run_case(case) for case in cases], 1.0)

    size = star.Size(1, 10.0, 1, 40.0)
    here, there = (star.run(False, Silent(), size, runner) for runner in (alone, None))
    assert list(here.rows) == list(there.rows)
    assert len(here.plots) == 15


def test_one_job_on_spark_runs_all_cases() -> None:
    cases = repeated([Case("set 1", 70.0, STAR, two(30, 20))], 9, 5.0)
    ran = on_spark(cases, Silent())
    assert ran.outcomes == [run_case(case) for case in cases]
    assert ran.seconds > 0
    assert re.match(r"9 of the runs took [\d.]+ s on one core of Spark and [\d.]+ s on 2 ", ran.compared)
