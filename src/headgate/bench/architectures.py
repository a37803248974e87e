"""`headgate bench architectures`: what it costs to keep levels apart (paper 002, section 3.2).

The same tuples and queries go through one trusted processor, through replicated and through kernelized ones. Replicated
and kernelized processors are processes of their own, with users of their own if the bench runs as root.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from statistics import median

import pyarrow as pa

from headgate.bench.battlefield import Soldiers, snapshot
from headgate.bench.harness import Plot, Progress, Report, Row, environment
from headgate.bench.pipelines import Unchanging
from headgate.clock import SystemClock
from headgate.egress.mailbox import Mailbox
from headgate.egress.sinks import Sink
from headgate.execution.executors import LocalExecutor
from headgate.expressions.duck import evaluate
from headgate.labels import Level
from headgate.levels.child import ProcessChild, Resources
from headgate.levels.lane import Lane
from headgate.levels.shepherd import LevelsSetting, Shepherd
from headgate.model.snapshot import CatalogSnapshot
from headgate.plan.analysis import ViewCounts
from headgate.recovery.pipeline import Pipeline

_BATCH, _WARM = 2_000, 2
_TRUSTED = {
    "trusted": ("headgate.recovery.pipeline", "headgate.execution.executors", "headgate.expressions.duck"),
    "apart": ("headgate.levels.shepherd", "headgate.levels.child", "headgate.levels.enter"),
}
_SHOWN = (
    ("Throughput", "tuples per second", "tuples per s"),
    ("Latency", "ms", "latency (ms)"),
    ("Memory", "MB", "memory (MB)"),
    ("Copied", "bytes per tuple", "copied (bytes per tuple)"),
)
_NOTES = [
    f"Streams and queries of paper 002, Table 1; batches of {_BATCH:,} tuples of each of two streams, without Spark.",
    "Tuples per second: by the clock, from the first batch until all results are out; processors had started before.",
    "Latency: the median time from handing over a batch until all results of it are out, one batch at a time.",
    "Memory: proportional set size of all processes together, with the bench itself.",
    "Copied: bytes of tuples written for processors, and through their pipes.",
    "Trusted lines: of the modules that the deciding process imports; server and access, which all have, are left out.",
]


def run(quick: bool, progress: Progress) -> Report:
    sizes = [(2, 8)] if quick else [(2, 1), (2, 8), (2, 200), (4, 8), (4, 200), (8, 8), (8, 200)]
    batches = 4 if quick else 10
    progress.expect(3 * len(sizes))
    lines = {name: trusted_lines(modules) for name, modules in _TRUSTED.items()}
    rows: list[Row] = []
    for levels, queries in sizes:
        for architecture in ("trusted", "replicated", "kernelized"):
            progress.step(f"{architecture}, {levels} levels, {queries} queries")
            rows.append(_row(architecture, levels, queries, batches, lines))
    return Report(
        title="Levels in one processor, and apart",
        rows=rows,
        notes=_NOTES,
        environment=environment("numpy", "pyarrow", "duckdb"),
        plots=_plots(rows),
    )


def _row(architecture: str, levels: int, queries: int, batches: int, lines: Mapping[str, int]) -> Row:
    catalog, soldiers = snapshot(levels, queries), Soldiers(levels)
    with ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        engine = engine_of(architecture, home, catalog)
        stack.callback(engine.close)
        for _ in range(_WARM):
            engine.take(soldiers.batch(_BATCH))
            engine.wait()
        before, begin = engine.copied, time.perf_counter()
        for _ in range(batches):
            engine.take(soldiers.batch(_BATCH))
        engine.wait()
        taken, copied = time.perf_counter() - begin, engine.copied - before
        delays = list[float]()
        for _ in range(batches):
            start = time.perf_counter()
            engine.take(soldiers.batch(_BATCH))
            engine.wait()
            delays.append(time.perf_counter() - start)
        return {
            "architecture": architecture,
            "levels": levels,
            "queries": queries,
            "tuples per s": round(2 * _BATCH * batches / taken),
            "latency (ms)": round(1000 * median(delays), 1),
            "memory (MB)": round(sum(map(_memory, (*engine.pids(), "self"))) / 1e6),
            "copied (bytes per tuple)": round(copied / (2 * _BATCH * batches), 1),
            "results": sum(engine.results().values()),
            "trusted lines": lines["trusted" if architecture == "trusted" else "apart"],
        }


def _few_kept() -> Sink:
    return Mailbox(10)


def engine_of(
    architecture: str, home: Path, catalog: CatalogSnapshot, sink: Callable[[], Sink] = _few_kept
) -> TrustedEngine | ApartEngine:
    """`sink` makes a sink for the results of each processor."""
    if architecture == "trusted":
        return TrustedEngine(home, catalog, sink)
    return ApartEngine(home, catalog, architecture, sink)


class TrustedEngine:
    """One processor for all levels; who has how many results is by query and subscriber."""

    copied = 0

    def __init__(self, home: Path, catalog: CatalogSnapshot, sink: Callable[[], Sink]) -> None:
        self._pipeline = Pipeline(
            home,
            Unchanging(catalog),
            lambda _, program, schema: LocalExecutor(program, schema, evaluate),
            [sink()],
            SystemClock(),
        )
        self._numbers = count()
        self.close: Callable[[], None] = self._pipeline.close

    def take(self, batch: Mapping[str, pa.Table]) -> None:
        number = next(self._numbers)
        for stream, table in batch.items():
            self._pipeline.take(stream, number, table)

    def wait(self) -> None:
        """Everything is done when a batch is taken."""

    def pids(self) -> list[str]:
        return []

    def results(self) -> dict[tuple[str, str], int]:
        return dict(self._pipeline.counts.results)

    def work(self, query: str) -> set[tuple[str, int]]:
        return _work(self._pipeline.profile(query))


class ApartEngine:
    """A process for each level."""

    def __init__(self, home: Path, catalog: CatalogSnapshot, architecture: str, sink: Callable[[], Sink]) -> None:
        sinks: dict[Level | None, Sink] = {}
        self._shepherd = Shepherd(
            home,
            Unchanging(catalog),
            lambda level: [sinks.setdefault(level, sink())],
            SystemClock(),
            LevelsSetting(architecture, ProcessChild, lambda *_: Resources()),
        )
        self._numbers = count()
        self.close: Callable[[], None] = self._shepherd.close

    def take(self, batch: Mapping[str, pa.Table]) -> None:
        number = next(self._numbers)
        for stream, table in batch.items():
            self._shepherd.take(stream, number, table)

    def wait(self) -> None:
        self._shepherd.wait_for_processors()

    @property
    def copied(self) -> int:
        return self._shepherd.copied

    def pids(self) -> list[str]:
        children = (lane.child for lane in self._shepherd.lanes.values())
        return [str(child.pid) for child in children if isinstance(child, ProcessChild)]

    def results(self) -> dict[tuple[str, str], int]:
        return dict(self._shepherd.counts.results)

    def work(self, query: str) -> set[tuple[str, int]]:
        return _work(self._shepherd.profile(query))

    @property
    def lanes(self) -> Mapping[Level, Lane]:
        return self._shepherd.lanes


def _work(views: Sequence[ViewCounts]) -> set[tuple[str, int]]:
    """The operators that worked for a query, each with its processor time."""
    return {(name, step.nanoseconds) for view in views for name, step in view.steps.items() if step.nanoseconds}


def _memory(pid: str) -> int:
    found = Path(f"/proc/{pid}/smaps_rollup").read_text().split("Pss:")[1]
    return int(found.split()[0]) * 1024


def trusted_lines(modules: tuple[str, ...]) -> int:
    """The lines of all modules of Headgate that a process has after it imported these, without blank ones."""
    script = (
        f"import sys, {', '.join(modules)}\n"
        "files = [m.__file__ for n, m in sys.modules.items() if n.split('.')[0] == 'headgate' and m.__file__]\n"
        "print(sum(bool(line.strip()) for file in files for line in open(file, encoding='utf-8')))"
    )
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return int(found.stdout)


def _plots(rows: Sequence[Row]) -> list[Plot]:
    """By number of levels, with the most queries."""
    most = max(int(str(row["queries"])) for row in rows)
    shown = [row for row in rows if row["queries"] == most]
    return [_plot(f"{title}, {most} queries", unit, shown, column) for title, unit, column in _SHOWN]


def _plot(title: str, unit: str, rows: Sequence[Row], column: str) -> Plot:
    series: dict[str, list[tuple[float, float]]] = {}
    for row in rows:
        point = float(str(row["levels"])), float(str(row[column]))
        series.setdefault(str(row["architecture"]), []).append(point)
    return Plot(title, "levels", unit, series)
