"""`headgate bench plan`: what it costs to add a query to the shared plan as more and more queries run.

Adding includes every step: the text is parsed, bound, lowered to operators and added, and for each of its selections
the plan is asked what it is computed from. The workloads are those in which this search could grow with the
number of queries: all of them different, yet each related to many others.
"""

from __future__ import annotations

import random
import statistics
import time
import tracemalloc
from collections.abc import Iterator
from dataclasses import dataclass, replace

from headgate.bench import derived, setup_cost
from headgate.bench.harness import Goal, Plot, Progress, Report, Row, environment
from headgate.cql.queries import parse_query
from headgate.plan.expressions import Type
from headgate.plan.lowering import lower
from headgate.plan.merged import MergedPlan
from headgate.plan.nodes import Node
from headgate.plan.queries import Stream, bind_query

MOST_MS = 5.0
MOST_GROWTH = 3.0
_COLUMNS = (("patient", Type.INT), ("bp", Type.INT), ("pr", Type.INT), ("ward", Type.STRING))
_ASKED = "asked"
Cells = dict[str, str | int | float]


@dataclass(frozen=True)
class Sizes:
    """`running` queries while `samples` more are added, one at a time; memory is traced while `traced` are added."""

    running: tuple[int, ...]
    samples: int
    traced: int


QUICK = Sizes((1, 100, 1_000), samples=50, traced=500)
FULL = Sizes((1, 100, 1_000, 10_000), samples=300, traced=10_000)

WORKLOADS: dict[str, tuple[str, ...]] = {
    "different selections": ("SELECT patient, bp WHERE bp > {n} FROM vitals",),
    "one condition in common": (
        "SELECT patient, bp WHERE bp > 120 FROM vitals",
        *("SELECT patient, bp WHERE bp > 120 AND patient = {n} FROM vitals",) * 19,
    ),
    "windows of all sizes": ("SELECT AVG(bp) FROM vitals [ROWS {n}]",),
    "mixed": (
        "SELECT patient, bp WHERE bp > {n} FROM vitals",
        "SELECT patient WHERE bp > 120 AND patient = {n} FROM vitals",
        "SELECT patient WHERE patient IN ({n}, {m}, 7) AND pr < {m} FROM vitals",
        "SELECT AVG(bp), MAX(pr) WHERE bp > {m} FROM vitals [ROWS {n}]",
        "SELECT ward, STDDEV(bp) FROM vitals [RANGE {n} SECONDS SLIDE {m} SECONDS] GROUP BY ward HAVING COUNT(*) > {m}",
        "SELECT v.bp, w.pr WHERE v.patient = w.patient AND v.bp > {n} FROM vitals [ROWS {m}] v, monitors [ROWS {m}] w",
        "SELECT MIN(bp) FROM vitals [PARTITIONED BY patient ROWS {n}] WHERE pr > {m} OR bp < {n}",
    ),
}
"""Queries by number, taken in turn: {n} is different in each, {m} one of few."""


def run(quick: bool, progress: Progress) -> Report:
    """All parts: adding queries, selections from weaker ones, and what security adds to setting queries up."""
    report = measure(QUICK if quick else FULL, progress)
    derivations = list(derived.rows(quick, progress))
    setups = list(setup_cost.rows(quick, progress))
    return replace(
        report,
        rows=[*report.rows, *(row for row, _ in (*derivations, *setups))],
        goals=[*report.goals, *(goal for _, goal in (*derivations, *setups))],
        notes=[*report.notes, *setup_cost.NOTES],
        plots=[*report.plots, setup_cost.plot([row for row, _ in setups])],
    )


def measure(sizes: Sizes, progress: Progress) -> Report:
    rows: list[Row] = []
    goals: list[Goal] = []
    for found, reached in adding(sizes, progress):
        rows += found
        goals += reached
    return Report(
        title="Adding one query to the shared plan",
        rows=rows,
        goals=goals,
        notes=_NOTES,
        environment=environment(),
        plots=[
            Plot(
                "Adding one query to the shared plan (median)",
                "queries that run already",
                "ms of processor time",
                {
                    workload: [
                        (float(str(row["running"])), float(str(row["ms (median)"])))
                        for row in rows
                        if row["workload"] == workload
                    ]
                    for workload in WORKLOADS
                },
                log_x=True,
            )
        ],
    )


def adding(sizes: Sizes, progress: Progress) -> Iterator[tuple[list[Cells], list[Goal]]]:
    """Rows and goals of each workload."""
    most = max(sizes.running)
    progress.expect(len(WORKLOADS) * (len(sizes.running) + 1))
    for workload in WORKLOADS:
        texts = [written(workload, n) for n in random.Random(7).sample(range(10 * most), most + sizes.samples)]
        rows: list[Cells] = []
        plan = MergedPlan()
        for running in sizes.running:
            progress.step(f"{workload}, {running:,} running")
            _add(plan, texts[len(plan.queries) : running])
            rows.append({"workload": workload, "running": running, **_sampled(plan, texts[most:])})
        progress.step(f"{workload}, memory")
        rows[-1]["kB per query"] = _kilobytes(texts[: sizes.traced])
        yield rows, _goals(workload, rows)


def written(workload: str, number: int) -> str:
    templates = WORKLOADS[workload]
    return templates[number % len(templates)].format(n=number + 1, m=number % 90 + 1)


def plan_of(text: str) -> Node:
    """A query's operators, from its text."""
    return lower(bind_query(parse_query(text), lambda target: Stream(target.name, _COLUMNS)))


def _add(plan: MergedPlan, texts: list[str]) -> None:
    for name, text in enumerate(texts, len(plan.queries)):
        plan.add(str(name), plan_of(text))


def _sampled(plan: MergedPlan, texts: list[str]) -> Cells:
    """Each query is added to the same plan, and removed before the next one."""
    times = []
    based = 0
    for text in texts:
        start = time.process_time_ns()
        root = plan_of(text)
        plan.add(_ASKED, root)
        found = [plan.base(node) for node in root.walk()]
        times.append((time.process_time_ns() - start) / 1e6)
        based += any(found)
        plan.remove(_ASKED)
    return {
        "ms (median)": statistics.median(times),
        "ms (99 of 100)": sorted(times)[len(times) * 99 // 100],
        "with a base %": round(100 * based / len(texts)),
    }


def _kilobytes(texts: list[str]) -> float:
    """The peak of memory in use while the plan was built, for each query."""
    tracemalloc.start()
    try:
        _add(MergedPlan(), texts)
        return tracemalloc.get_traced_memory()[1] / len(texts) / 1000
    finally:
        tracemalloc.stop()


def _goals(workload: str, rows: list[Cells]) -> list[Goal]:
    """From 100 on: a plan of one query says little about growth."""
    slowest = max(float(row["ms (99 of 100)"]) for row in rows)
    few, many = rows[min(1, len(rows) - 1)], rows[-1]
    growth = float(many["ms (median)"]) / float(few["ms (median)"])
    return [
        Goal(f"{workload}: adding one, 99 of 100", slowest, MOST_MS, "ms"),
        Goal(f"{workload}: {many['running']:,} running against {few['running']:,}", growth, MOST_GROWTH, "times"),
    ]


_NOTES = (
    "The clock is processor time, garbage collection included.",
    "Adding: from the text of one query to what each of its selections is computed from.",
    "`with a base`: the part of the added queries that found another query's selection to be computed from.",
    "`from a weaker selection`: two stateless queries (or many) over a batch, each alone and one from the other.",
    "`kB per query`: Python objects at their peak, operators and index, while the plan was built (tracemalloc).",
)
