"""Deadlines without covert channels: all experiments of paper 004 beside what it states, and what strict control adds.

One run is 600 simulated seconds; a number is a mean over 10 runs (2 where a setting is varied) with its 90 % confidence
interval. All runs are one Spark job over all settings. Beside them: what an observer learns through each covert
channel, the profile that the controllers are tuned by, and how fast the simulator is. `--quick` has 2 runs of 60 s.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from pyspark.sql import SparkSession

from headgate.bench.harness import Goal, Progress, Report, environment
from headgate.bench.star_figures import figures
from headgate.bench.star_tables import (
    channel_rows,
    lattice_rows,
    profile_rows,
    reproduction_rows,
    sensitivity_rows,
    specification_rows,
    worst,
)
from headgate.ingress.spark import spark_session
from headgate.realtime.experiments import (
    Case,
    Outcome,
    Summary,
    fresh_cases,
    lattice_cases,
    lattice_named,
    paper_cases,
    repeated,
    run_case,
    sensitivity_cases,
    summarise,
    two,
)
from headgate.realtime.settings import OPEN, STAR, STRICT
from headgate.realtime.tuning import profile

_GROUP = "star"
_PER_TASK = 4
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


Runner = Callable[[Sequence[Case], Progress], tuple[list[Outcome], float]]


def run(quick: bool, progress: Progress, size: Size | None = None, runner: Runner | None = None) -> Report:
    """All of it, on Spark; a runner in its place gives the same numbers, for they depend on the seeds alone."""
    size = size or (QUICK if quick else FULL)
    cases = [
        *repeated(paper_cases(), size.runs, size.seconds),
        *repeated(lattice_cases(), size.runs, size.seconds),
        *repeated(fresh_cases(), size.runs, size.seconds, _OTHER_SEEDS),
        *repeated(sensitivity_cases(), size.probes, size.seconds),
    ]
    outcomes, took = (runner or on_spark)(cases, progress)
    summaries = summarise(outcomes)
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
        _goals(strict, speed, took, size),
        _notes(outcomes, took, speed),
        environment("pyspark", "numba", "numpy", "control"),
        figures(paper),
    )


def on_spark(cases: Sequence[Case], progress: Progress, cores: int = 2) -> tuple[list[Outcome], float]:
    """Runs all cases as one Spark job and shows how far it is; also tells the seconds it took once Spark was up."""
    others = SparkSession.getActiveSession()
    with TemporaryDirectory() as home:
        spark = others or spark_session(Path(home), master=f"local[{cores}]")
        context = spark.sparkContext
        try:
            tasks = max(1, len(cases) // _PER_TASK)
            mixed = [case for start in range(tasks) for case in cases[start::tasks]]  # long and short ones together

            def job() -> list[Outcome]:
                context.setJobGroup(_GROUP, "experiments of paper 004")
                return context.parallelize(mixed, tasks).map(run_case).collect()

            progress.expect(tasks)
            context.parallelize(range(cores), cores).map(_warm).collect()
            begun = time.perf_counter()
            with ThreadPoolExecutor(1) as waiting:
                result = waiting.submit(job)
                shown = 0
                while not result.done():
                    time.sleep(0.2)
                    done = _tasks_done(context.statusTracker())
                    for _ in range(shown, done):
                        progress.step("simulating")
                    shown = max(shown, done)
                took = time.perf_counter() - begun
                return result.result(), took
        finally:
            if others is None:
                spark.stop()


def _warm(_: int) -> int:
    """Lets a worker load the compiled code."""
    return run_case(Case("warm-up", 0, STAR, two(100, 50), seconds=5.0)).submitted


def _tasks_done(tracker: object) -> int:
    stages = []
    for job in tracker.getJobIdsForGroup(_GROUP):  # type: ignore[attr-defined]
        info = tracker.getJobInfo(job)  # type: ignore[attr-defined]
        stages += [tracker.getStageInfo(stage) for stage in (info.stageIds if info else [])]  # type: ignore[attr-defined]
    return sum(stage.numCompletedTasks for stage in stages if stage)


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


def _notes(outcomes: Sequence[Outcome], took: float, speed: dict[str, float]) -> list[str]:
    total = sum(outcome.submitted for outcome in outcomes)
    busy = sum(outcome.processor_s for outcome in outcomes)
    named = ", ".join(f"{name} {value:,.0f}" for name, value in speed.items())
    return [
        f"{len(outcomes):,} runs of {total:,} transactions took {busy:,.0f} s of processor and {took:,.0f} s in all.",
        f"So they ran {busy / took:.2f} times as fast as on one core that has nothing else to do.",
        f"Transactions per second of processor on one core: {named}.",
    ]
