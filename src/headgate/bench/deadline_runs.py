"""Live queries with deadlines at three levels, by one of two clocks: the engine of `headgate bench deadlines`.

By the clock of the machine, a thread sends tuples and a thread does the work of the queries, as in a server. What other
programs do on the same machine then delays both. By the clock of the processor, one thread does everything, and time
passes while this process computes, or is skipped while it has nothing to do: the same engine and the same work, and
nothing of other programs. That clock does not count waiting for a disk.
"""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa

from headgate.bench.pipelines import Unchanging
from headgate.clock import Clock, SystemClock
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
from headgate.realtime.handler import Sample
from headgate.realtime.lattice import MILLISECOND, SECOND
from headgate.realtime.settings import Approach
from headgate.recovery.deadline_samples import DEADLINES
from headgate.recovery.deadlines import Governing
from headgate.recovery.pipeline import Pipeline
from headgate.service.timekeeper import Timekeeper

LEVELS = ("U", "C", "S")
LEARNING = 20.0
"""In these first seconds of a run, half of a shorter one, the engine does not know yet what tuples cost, so estimates
tell no load."""
EVERY = 0.5
"""How often, in seconds, a batch of each stream comes."""
DUE = Deadline(2000, (Version(sample=0.5), Version(sample=0.25)))
_TEXT = (
    "SELECT a.k, COUNT(*) AS n, SUM(b.v) AS s FROM {0} [ROWS 1000] a, {0} [ROWS 1000] b WHERE a.k = b.k GROUP BY a.k"
)
_COLUMNS, _TIME = (("k", Type.INT), ("v", Type.INT)), "at"


@dataclass(frozen=True)
class Measured:
    """A run: its control periods, the pieces that outlasted their quantum and by how many milliseconds at most, and the
    estimated work that came, at full QoS, in percent of the processor (AppLoad)."""

    samples: Sequence[Sample]
    overruns: int
    longest: float
    load: float


Measure = Callable[[Approach, float, float], Measured]
"""Runs an approach with so many tuples a second at each level, for so many seconds."""


class ProcessorClock:
    """It shows the time for which this process has computed, and what was skipped."""

    def __init__(self) -> None:
        self._origin = time.time() - time.process_time()

    def now(self) -> float:
        return self._origin + time.process_time()

    def skip_to(self, moment: float) -> None:
        self._origin += max(0.0, moment - self.now())

    @contextmanager
    def stopped(self) -> Iterator[None]:
        before = self.now()
        yield
        self._origin -= self.now() - before


def by_machine(approach: Approach, rate: float, seconds: float) -> Measured:
    with _running(SystemClock(), approach, seconds) as run:
        timekeeper = Timekeeper(run.pipeline, run.home / DEADLINES)
        try:
            timekeeper.start()
            pause, begun = threading.Event(), time.monotonic()
            for number in range(int(seconds / EVERY)):
                for level in LEVELS:
                    run.take(level, number, run.tuples(level, rate, time.time()), time.time())
                pause.wait(max(0.0, begun + (number + 1) * EVERY - time.monotonic()))
        finally:
            timekeeper.stop()
        return run.measured(seconds)


def by_processor(approach: Approach, rate: float, seconds: float) -> Measured:
    clock = ProcessorClock()
    with _running(clock, approach, seconds) as run:
        number, begun = 0, clock.now()
        while clock.now() < begun + seconds:
            if clock.now() >= (due := begun + number * EVERY):
                for level in LEVELS:
                    with clock.stopped():
                        tuples = run.tuples(level, rate, due)
                    run.take(level, number, tuples, due)
                number += 1
            again = run.pipeline.work()
            clock.skip_to(min(due + EVERY if number else due, begun + seconds if again is None else again))
        return run.measured(seconds)


# Pipelines ------------------------------------------------------------------------------------------------------------


@dataclass
class _Run:
    home: Path
    pipeline: Pipeline
    mailbox: Mailbox
    learning: int
    """How many batches belong to the first seconds."""
    learned: int = 0
    """The estimated work of these."""
    rngs: dict[str, np.random.Generator] = field(
        default_factory=lambda: {level: np.random.default_rng(k) for k, level in enumerate(LEVELS)}
    )

    def take(self, level: str, number: int, tuples: pa.Table, came: float) -> None:
        if number == self.learning and level == LEVELS[0]:
            self.learned = sum(self.pipeline.deadlines.offered.values())
        self.pipeline.take(level, number, tuples, int(came * 1000))
        self.mailbox.fetch(f"reader{level}", f"q{level}", CatalogSnapshot())

    def tuples(self, level: str, rate: float, came: float) -> pa.Table:
        """Tuples of the time before they came, each with a time of its own: the work of a piece then depends on its own
        tuples, and not on those of one moment that came in several pieces."""
        count, rng = max(1, round(rate * EVERY)), self.rngs[level]
        times = (1000 * int(came * 1000) - np.linspace(1e6 * EVERY, 0, count, endpoint=False)).astype(np.int64)
        return pa.table(
            {
                "k": rng.integers(0, 50, count, dtype=np.int32),
                "v": rng.integers(0, 1_000, count, dtype=np.int32),
                _TIME: pa.array(times).cast(pa.timestamp("us")).cast(ARROW[Type.TIMESTAMP]),
            }
        )

    def measured(self, seconds: float) -> Measured:
        governor, offered = self.pipeline.deadlines.governor, sum(self.pipeline.deadlines.offered.values())
        assert governor is not None  # noqa: S101
        return Measured(
            list(governor.samples),
            governor.overruns.count,
            governor.overruns.longest / MILLISECOND,
            100 * (offered - self.learned) / ((seconds - EVERY * self.learning) * SECOND),
        )


@contextmanager
def _running(clock: Clock, approach: Approach, seconds: float) -> Iterator[_Run]:
    """A pipeline with a stream, a query and a reader at each level."""
    mailbox = Mailbox(1000)
    with tempfile.TemporaryDirectory() as folder:
        pipeline = Pipeline(
            Path(folder),
            Unchanging(_snapshot()),
            lambda _, program, schema: LocalExecutor(program, schema, evaluate),
            [mailbox],
            clock,
            governing=Governing(approach, seed=1),
        )
        try:
            yield _Run(Path(folder), pipeline, mailbox, int(min(LEARNING, seconds / 2) / EVERY))
        finally:
            pipeline.close()


def _snapshot() -> CatalogSnapshot:
    streams = {name: Stream(name, _COLUMNS) for name in LEVELS}
    descriptors = {name: StreamDescriptor(name, (*_COLUMNS, (_TIME, Type.TIMESTAMP)), _TIME) for name in LEVELS}
    meant = {x: bind_query(parse_query(_TEXT.format(x)), lambda target: streams[target.name]) for x in LEVELS}
    queries = [ContinuousQuery(f"q{x}", meant[x], Level(x), deadline=DUE) for x in LEVELS]
    readers = [
        Subscriber(f"reader{x}", f"q{x}", Clearance(frozenset(), Level(x), frozenset({x})), level=x) for x in LEVELS
    ]
    return CatalogSnapshot(Rules(LevelOrder.total(*LEVELS)), descriptors, tuple(queries), tuple(readers))
