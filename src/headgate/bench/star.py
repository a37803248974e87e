"""Deadlines without covert channels: all experiments of paper 004 beside what it states, and what strict control adds.

One run is 600 simulated seconds; a number is a mean over 10 runs (2 where a setting is varied) with its 90 % confidence
interval. All runs are one Spark job over all settings. Beside them: what an observer learns through each covert
channel, the profile that the controllers are tuned by, and how fast the simulator is. `--quick` has 2 runs of 60 s.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from headgate.bench.harness import Goal, Progress, Report, environment
from headgate.bench.star_channels import channel_rows
from headgate.bench.star_figures import figures
from headgate.bench.star_runs import Ran, Runner, on_spark
from headgate.bench.star_tables import (
    lattice_rows,
    profile_rows,
    reproduction_rows,
    sensitivity_rows,
    specification_rows,
    worst,
)
from headgate.realtime.experiments import (
    Case,
    fresh_cases,
    lattice_cases,
    lattice_named,
    paper_cases,
    repeated,
    run_case,
    sensitivity_cases,
    two,
)
from headgate.realtime.settings import OPEN, STAR, STRICT
from headgate.realtime.summaries import Summary, summarise
from headgate.realtime.tuning import profile

_OTHER_SEEDS = 1000
_GOAL_SPEED = 100_000.0


@dataclass(frozen=True)
class Size:
    runs: int
    seconds: float
    probes: int
    """Runs of each case of the sensitivity table."""
    attack_s: float


FULL, QUICK = Size(10, 600.0, 2, 600.0), Size(2, 60.0, 1, 200.0)


def run(quick: bool, progress: Progress, size: Size | None = None, runner: Runner | None = None) -> Report:
    """All of it, on Spark; a runner in its place gives the same numbers, for they depend on the seeds alone."""
    size = size or (QUICK if quick else FULL)
    cases = [
        *repeated(paper_cases(), size.runs, size.seconds),
        *repeated(lattice_cases(), size.runs, size.seconds),
        *repeated(fresh_cases(), size.runs, size.seconds, _OTHER_SEEDS),
        *repeated(sensitivity_cases(), size.probes, size.seconds),
    ]
    ran = (runner or on_spark)(cases, progress)
    summaries = summarise(ran.outcomes)
    paper = [summary for summary in summaries if summary.case.part.startswith("set")]
    lattices = [summary for summary in summaries if summary.case.part == "lattices"]
    fresh = [summary for summary in summaries if summary.case.part.startswith("other seeds")]
    progress.expect(3)
    progress.step("covert channels")
    channels = channel_rows(size.attack_s)
    progress.step("profile")
    both = lattice_named("2 levels")
    profiles = {hcr: profile(both, two(1, hcr), seconds=size.seconds) for hcr in (20.0, 50.0, 100.0)}
    progress.step("speed")
    speed = speeds(size.seconds)
    strict = [summary for summary in [*paper, *lattices, *fresh] if summary.case.approach == STRICT]
    return Report(
        "Deadlines without covert channels",
        [
            *reproduction_rows(paper),
            *specification_rows([*paper, *fresh]),
            *lattice_rows(lattices),
            *channels,
            *profile_rows(profiles),
            *sensitivity_rows(summaries, paper),
        ],
        _goals(strict, speed, ran.seconds, size),
        _notes(ran, speed),
        environment("pyspark", "numba", "numpy", "control"),
        figures(paper),
    )


def speeds(seconds: float) -> dict[str, float]:
    """Submitted transactions per second of processor on one core, workload generation included."""
    found = {}
    for approach in (OPEN, STAR, STRICT):
        case = Case("speed", 0, approach, two(200, 20), seconds=seconds)
        run_case(case)
        begun = time.process_time()
        submitted = run_case(case).submitted
        found[approach.name] = submitted / (time.process_time() - begun)
    return found


def _goals(strict: Sequence[Summary], speed: dict[str, float], took: float, size: Size) -> list[Goal]:
    """Runs shorter than the paper's are mostly start-up, and prove nothing of the promises."""
    speeds = [
        Goal(
            "transactions per second on one core, slowest approach", min(speed.values()), _GOAL_SPEED, "/s", "at least"
        ),
        Goal("all runs on Spark", took / 60, 15, "minutes"),
    ]
    if size.seconds < FULL.seconds:
        return speeds
    misses, peak, settling, utilisation = worst(strict)
    return [
        Goal("strict STAR: highest miss ratio of any level, interval included", misses, 5, "%"),
        Goal("strict STAR: highest value of a mean trace", peak, 6, "%"),
        Goal("strict STAR: longest time of a mean trace above 5.05 %", settling, 80, "s"),
        Goal("strict STAR: lowest utilisation where load allows 80 %", utilisation, 80, "%", "at least"),
        *speeds,
    ]


def _notes(ran: Ran, speed: dict[str, float]) -> list[str]:
    total = sum(outcome.submitted for outcome in ran.outcomes)
    busy = sum(outcome.processor_s for outcome in ran.outcomes)
    named = ", ".join(f"{name} {value:,.0f}" for name, value in speed.items())
    runs = f"{len(ran.outcomes):,} runs of {total:,} transactions"
    return [
        f"{runs} took {busy:,.0f} s of processor and {ran.seconds:,.0f} s in all.",
        *([ran.compared] if ran.compared else []),
        f"Transactions per second of processor on one core: {named}.",
    ]
