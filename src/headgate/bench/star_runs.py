"""All runs of `headgate bench star` as one Spark job, and how much faster two cores are than one."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from pyspark import SparkContext
from pyspark.sql import SparkSession

from headgate.bench.harness import Progress
from headgate.ingress.spark import spark_session
from headgate.realtime.experiments import Case, Outcome, run_case, two
from headgate.realtime.settings import STAR

_GROUP = "star"
_CORES = 2
_PER_TASK = 4
_COMPARED = 24
_ROUNDS = 5


@dataclass(frozen=True)
class Ran:
    """What became of all runs."""

    outcomes: list[Outcome]
    """In the order of the cases."""
    seconds: float
    """How long they took once Spark was up."""
    compared: str = ""
    """How much faster two cores are than one, where that was measured."""


Runner = Callable[[Sequence[Case], Progress], Ran]


def on_spark(cases: Sequence[Case], progress: Progress) -> Ran:
    """Runs all cases as one Spark job and shows how far it is; then compares one core with two."""
    tasks = max(1, len(cases) // _PER_TASK)
    order = [
        place for first in range(tasks) for place in range(first, len(cases), tasks)
    ]  # long ones beside short ones
    with _context() as context, ThreadPoolExecutor(1) as waiting:
        progress.expect(tasks + 1)
        context.parallelize(range(_CORES), _CORES).map(_warm).collect()
        begun = time.perf_counter()
        result = waiting.submit(_job, context, [cases[place] for place in order], tasks)
        shown = 0
        while not result.done():
            time.sleep(0.2)
            done = _tasks_done(context.statusTracker())
            for _ in range(shown, done):
                progress.step("simulating")
            shown = max(shown, done)
        took = time.perf_counter() - begun
        progress.step("one core and two")
        outcomes = [outcome for _, outcome in sorted(zip(order, result.result(), strict=True), key=itemgetter(0))]
        return Ran(outcomes, took, _compare(context, cases[:: max(1, len(cases) // _COMPARED)]))


@contextmanager
def _context() -> Iterator[SparkContext]:
    """That of the session that is there, or of one for this bench alone."""
    others = SparkSession.getActiveSession()
    with TemporaryDirectory() as home:
        spark = others or spark_session(Path(home), master=f"local[{_CORES}]")
        try:
            yield spark.sparkContext
        finally:
            if others is None:
                spark.stop()


def _job(context: SparkContext, cases: Sequence[Case], tasks: int) -> list[Outcome]:
    context.setJobGroup(_GROUP, "experiments of paper 004")
    return context.parallelize(cases, tasks).map(run_case).collect()


def _warm(_: int) -> int:
    """Lets a worker load the compiled code."""
    return run_case(Case("warm-up", 0, STAR, two(100, 50), seconds=5.0)).submitted


def _tasks_done(tracker: object) -> int:
    stages = []
    for job in tracker.getJobIdsForGroup(_GROUP):  # type: ignore[attr-defined]
        info = tracker.getJobInfo(job)  # type: ignore[attr-defined]
        stages += [tracker.getStageInfo(stage) for stage in (info.stageIds if info else [])]  # type: ignore[attr-defined]
    return sum(stage.numCompletedTasks for stage in stages if stage)


def _compare(context: SparkContext, cases: Sequence[Case]) -> str:
    """The same cases as one task, which keeps one core busy, and as one task each, in turn: what else the machine does
    meets both alike."""
    one, two, loads = [], [], [os.getloadavg()[0]]
    for _ in range(_ROUNDS):
        one.append(_time(context, cases, 1))
        two.append(_time(context, cases, len(cases)))
        loads.append(os.getloadavg()[0])
    ratios = sorted(a / b for a, b in zip(one, two, strict=True))
    return (
        f"{len(cases)} of the runs took {median(one):.1f} s on one core of Spark and {median(two):.1f} s on {_CORES} "
        f"(medians of {_ROUNDS} rounds in turn): {median(ratios):.2f} times as fast, {ratios[0]:.2f} to "
        f"{ratios[-1]:.2f}. The load of the machine was {min(loads):.1f} to {max(loads):.1f} on {os.cpu_count()} cores."
    )


def _time(context: SparkContext, cases: Sequence[Case], tasks: int) -> float:
    begun = time.perf_counter()
    context.parallelize(cases, tasks).map(run_case).collect()
    return time.perf_counter() - begun
