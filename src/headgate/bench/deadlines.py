"""`headgate bench deadlines`: live queries with deadlines at three levels under twice the load, with control or not.

The whole engine runs by the clock of the machine, without Spark: a thread sends tuples to a stream of each level, and a
thread does the work of the queries, as a server does. First the bench measures how many tuples a second the query takes
at full QoS; then it sends twice as many, a third to each level. Utilisation is that of the thread that does the work,
which includes writing state and delivery; reading tuples is not part of it. Without control (the paper's Open) lower
levels go first and everything is admitted.
"""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from headgate.bench.harness import Goal, Plot, Progress, Report, Row, environment
from headgate.bench.pipelines import Unchanging
from headgate.clock import SystemClock
from headgate.cql.deadlines import Deadline, Version
from headgate.cql.queries import parse_query
from headgate.egress.mailbox import Mailbox
from headgate.execution.executors import LocalExecutor
from headgate.expressions.duck import evaluate
from headgate.expressions.sql.types import ARROW
from headgate.labels import Clearance, Level, LevelOrder, Rules
from headgate.model.query import ContinuousQuery
from headgate.model.snapshot import CatalogSnapshot, Subscriber
from headgate.model.stream import StreamDescriptor
from headgate.plan.expressions import Type
from headgate.plan.queries import Stream, bind_query
from headgate.realtime.governor import warm
from headgate.realtime.handler import Sample
from headgate.realtime.lattice import MILLISECOND, SECOND
from headgate.realtime.settings import OPEN, STRICT, Approach
from headgate.recovery.deadlines import Governing
from headgate.recovery.pipeline import Pipeline
from headgate.service.timekeeper import DEADLINES, Timekeeper

LEVELS = ("U", "C", "S")
LOAD = 2.0
SECONDS, OPEN_SECONDS, QUICK_SECONDS = 600.0, 120.0, 15.0
CALIBRATION, ROUNDS, LIGHT = 35.0, 2, 8_000.0
"""How long each measurement of the cost of tuples takes, in seconds, how many there are, and the tuples a second that
the first one takes for the whole processor."""
LEARNING = 20.0
"""In these first seconds of a run the engine does not know yet what tuples cost, so estimates tell no load."""
EVERY = 0.5
"""How often, in seconds, a batch of each stream comes."""
_DUE = Deadline(2000, (Version(sample=0.5), Version(sample=0.25)))
_TEXT = (
    "SELECT a.k, COUNT(*) AS n, SUM(b.v) AS s FROM {0} [ROWS 1000] a, {0} [ROWS 1000] b WHERE a.k = b.k GROUP BY a.k"
)
_COLUMNS, _TIME = (("k", Type.INT), ("v", Type.INT)), "at"
_SETTLED = 80.0
_PROMISE = 5.0


@dataclass(frozen=True)
class Outcome:
    """What one run came to."""

    approach: Approach
    samples: Sequence[Sample]
    overruns: int
    longest: float
    load: float
    """AppLoad: the estimated work that came, at full QoS, in percent of the processor."""

    def misses(self, level: int) -> float:
        """In percent of the admitted work that ended."""
        timely, tardy = (sum(int(getattr(x, name)[level]) for x in self.samples) for name in ("timely", "tardy"))
        return 100 * tardy / max(1, timely + tardy)

    def settling(self, level: int) -> float:
        """The longest time that misses stayed above the promise, in seconds."""
        longest = now = 0
        for x in self.samples:
            now = now + 1 if x.miss_ratio(level) > 1.01 * _PROMISE else 0
            longest = max(longest, now)
        return 5.0 * longest

    def utilisation(self, level: int | None = None) -> float:
        """In percent of the processor, after the time that it has to settle."""
        after = [x for x in self.samples if x.time > _SETTLED] or list(self.samples)
        return float(np.mean([sum(x.utilisation) if level is None else x.utilisation[level] for x in after]))

    def row(self, level: int) -> Row:
        submitted, admitted = (sum(int(getattr(x, name)[level]) for x in self.samples) for name in _COUNTED)
        return {
            "control": self.approach.name,
            "level": LEVELS[level],
            "submitted": submitted,
            "admitted": admitted,
            "misses %": self.misses(level),
            "settling s": self.settling(level),
            "utilisation %": self.utilisation(level),
            "QoS %": float(np.mean([100 * x.quality[level] for x in self.samples])),
        }


_COUNTED = ("submitted", "admitted")


def run(quick: bool, progress: Progress) -> Report:
    seconds = (QUICK_SECONDS, QUICK_SECONDS) if quick else (SECONDS, OPEN_SECONDS)
    progress.expect(3)
    progress.step("how fast the query is")
    warm()
    rate = capacity()
    outcomes = []
    for approach, length in zip((STRICT, OPEN), seconds, strict=True):
        progress.step(f"{approach.name}, {length:.0f} s")
        outcomes.append(measure(approach, LOAD * rate / len(LEVELS), length))
    governed, free = outcomes
    return Report(
        "Live queries with deadlines under twice the load",
        [outcome.row(k) for outcome in outcomes for k in range(len(LEVELS))],
        [] if quick else _goals(governed, free),
        [
            f"The query takes {rate:,.0f} tuples a second at full QoS; {LOAD * rate:,.0f} a second came.",
            f"By the estimates of the engine that was an AppLoad of {governed.load:.0f} % with control.",
            f"Deadline 2 s; versions of the query: {', '.join(map(str, reversed(_DUE.versions)))}.",
            f"With control, {governed.overruns} pieces outlasted their quantum, by {governed.longest:.0f} ms at most.",
        ],
        environment("numpy", "pyarrow", "duckdb", "numba"),
        plots(governed.samples, LEVELS),
    )


def _goals(governed: Outcome, free: Outcome) -> list[Goal]:
    levels = range(len(LEVELS))
    return [
        Goal("highest miss ratio of any level", max(map(governed.misses, levels)), _PROMISE, "%"),
        Goal("longest time above it", max(map(governed.settling, levels)), _SETTLED, "s"),
        Goal("utilisation after 80 s", governed.utilisation(), 80, "%", "at least"),
        Goal("without control: misses of the highest level", free.misses(len(LEVELS) - 1), 50, "%", "at least"),
    ]


def plots(samples: Sequence[Sample], levels: Sequence[str]) -> list[Plot]:
    """Misses, utilisation and QoS of each level over time."""

    def lines(values: Sequence[Sequence[float]]) -> dict[str, list[tuple[float, float]]]:
        return {
            level: [(x.time, row[k]) for x, row in zip(samples, values, strict=True)] for k, level in enumerate(levels)
        }

    misses = [[x.miss_ratio(k) for k in range(len(levels))] for x in samples]
    return [
        Plot("Misses", "time, s", "miss ratio, %", lines(misses), {"promised: 5 %": _PROMISE}),
        Plot("Utilisation", "time, s", "utilisation, %", lines([x.utilisation for x in samples])),
        Plot("QoS", "time, s", "at full QoS, %", lines([[100 * y for y in x.quality] for x in samples])),
    ]


# Pipelines ------------------------------------------------------------------------------------------------------------


def _snapshot(levels: Sequence[str]) -> CatalogSnapshot:
    """A stream, a query and a reader at each level."""
    streams = {name: Stream(name, _COLUMNS) for name in LEVELS}
    descriptors = {name: StreamDescriptor(name, (*_COLUMNS, (_TIME, Type.TIMESTAMP)), _TIME) for name in LEVELS}
    meant = {x: bind_query(parse_query(_TEXT.format(x)), lambda target: streams[target.name]) for x in levels}
    queries = [ContinuousQuery(f"q{x}", meant[x], Level(x), deadline=_DUE) for x in levels]
    readers = [
        Subscriber(f"reader{x}", f"q{x}", Clearance(frozenset(), Level(x), frozenset({x})), level=x) for x in levels
    ]
    return CatalogSnapshot(Rules(LevelOrder.total(*LEVELS)), descriptors, tuple(queries), tuple(readers))


def _pipeline(home: Path, snapshot: CatalogSnapshot, governing: Governing | None) -> tuple[Pipeline, Mailbox]:
    mailbox = Mailbox(1000)
    pipeline = Pipeline(
        home,
        Unchanging(snapshot),
        lambda _, program, schema: LocalExecutor(program, schema, evaluate),
        [mailbox],
        SystemClock(),
        governing=governing,
    )
    return pipeline, mailbox


def _tuples(rng: np.random.Generator, count: int, came: int) -> pa.Table:
    """Tuples of the time before they came, in milliseconds, each with a time of its own: the work of a piece then
    depends on its own tuples, and not on those of one moment that came in several pieces."""
    times = (1000 * came - np.linspace(1e6 * EVERY, 0, count, endpoint=False)).astype(np.int64)
    return pa.table(
        {
            "k": rng.integers(0, 50, count, dtype=np.int32),
            "v": rng.integers(0, 1_000, count, dtype=np.int32),
            _TIME: pa.array(times).cast(pa.timestamp("us")).cast(ARROW[Type.TIMESTAMP]),
        }
    )


def capacity(seconds: float = CALIBRATION) -> float:
    """Tuples a second that are the work of the whole processor at full QoS, by the estimates of the engine. Pieces are
    larger under load, and then a tuple takes less; so this is measured under the load that follows from it."""
    rate = LIGHT
    for _ in range(ROUNDS):
        rate *= 100 * LOAD / max(1.0, measure(STRICT, LOAD * rate / len(LEVELS), seconds).load)
    return rate


def measure(approach: Approach, rate: float, seconds: float) -> Outcome:
    """So many tuples a second at each level, for so many seconds."""
    with tempfile.TemporaryDirectory() as folder:
        pipeline, mailbox = _pipeline(Path(folder), _snapshot(LEVELS), Governing(approach, seed=1))
        timekeeper = Timekeeper(pipeline, Path(folder) / DEADLINES)
        try:
            timekeeper.start()
            learning = _send(pipeline, mailbox, rate, seconds)
        finally:
            timekeeper.stop()
            pipeline.close()
        governor = pipeline.deadlines.governor
        assert governor is not None  # noqa: S101
        return Outcome(
            approach,
            list(governor.samples),
            governor.overruns.count,
            governor.overruns.longest / MILLISECOND,
            100 * (sum(pipeline.deadlines.offered.values()) - learning) / max(1.0, (seconds - LEARNING) * SECOND),
        )


def _send(pipeline: Pipeline, mailbox: Mailbox, rate: float, seconds: float) -> int:
    """Sends a batch of each stream every `EVERY` seconds, one after the other. Returns the estimated work of the first
    seconds."""
    learning = 0
    rngs = [np.random.default_rng(k) for k in range(len(LEVELS))]
    count, pause = max(1, round(rate * EVERY)), threading.Event()
    begun = time.monotonic()
    for number in range(int(seconds / EVERY)):
        if number == int(LEARNING / EVERY):
            learning = sum(pipeline.deadlines.offered.values())
        for level, rng in zip(LEVELS, rngs, strict=True):
            came = int(time.time() * 1000)
            pipeline.take(level, number, _tuples(rng, count, came), came)
            mailbox.fetch(f"reader{level}", f"q{level}", CatalogSnapshot())
        pause.wait(max(0.0, begun + (number + 1) * EVERY - time.monotonic()))
    return learning
