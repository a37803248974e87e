"""Random events through one processor, compared with the oracle."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from random import Random

import numpy as np
import pyarrow as pa
from plan import test_meaning as random_plans

from headgate.egress.filter import ResultFilter
from headgate.execution.executors import LocalExecutor
from headgate.execution.processor import Processor
from headgate.expressions.duck import evaluate
from headgate.expressions.sql.types import ARROW
from headgate.labels import Clearance, Label
from headgate.labels.levels import Level
from headgate.model.query import ContinuousQuery
from headgate.model.results import DeliveredResult, delivered_results
from headgate.model.tuples import TupleBatch
from headgate.model.view import View
from headgate.plan.queries import Query, Stream
from headgate.plan.secure import Mode
from headgate.recovery.state import Saved, StateFolder
from headgate.testing.oracle import Change, Event, OracleResult, Tuple, cumulative, exact

TOP = Level("TS")


ROLES = (frozenset({"doctor"}), frozenset({"nurse"}), frozenset({"doctor", "nurse"}), frozenset[str]())


class Replay:
    """Events through a processor; what each subscriber of each query received."""

    def __init__(
        self, queries: dict[str, Query], lateness: dict[str, int], subscribers: dict[str, Clearance], mode: Mode
    ) -> None:
        self.running = [ContinuousQuery(name, query, TOP, lateness, mode) for name, query in queries.items()]
        self.processor = self.fresh()
        self.views: list[tuple[str, View]] = []
        for query in queries:
            alone = [{name: clearance} for name, clearance in subscribers.items()]
            for together in alone if mode == Mode.EXACT else [subscribers]:
                view = self.processor.subscribe(query, together)
                self.views += [(name, view) for name in together]
        self.numbers: dict[Label, int] = {}
        self.received: list[DeliveredResult] = []

    def fresh(self) -> Processor:
        return Processor(
            self.running,
            random_plans.RULES,
            lambda program, schema: LocalExecutor(program, schema, evaluate),
            ResultFilter,
        )

    def save(self, folder: Path) -> None:
        """Writes a version."""
        states = StateFolder(folder)
        states.save(Saved(max(states.versions(), default=0) + 1, *self.processor.save(states.write)))

    def restart(self, folder: Path) -> None:
        """What was written down is all that is left."""
        self.save(folder)
        self.processor = self.fresh()
        self.processor.add_labels({number: label for label, number in self.numbers.items()})
        states = StateFolder(folder)
        found = states.newest()
        assert found is not None
        self.processor.restore(states.stored(found.partitions), found.rest)
        self.views = [(name, view) for view in self.processor.views for name in view.clearances]

    def batch(self, tuples: Sequence[Tuple], *, last: bool = False) -> None:
        for label in {tuple_.label for tuple_ in tuples}:
            self.numbers.setdefault(label, len(self.numbers) + 1)
        self.processor.add_labels({number: label for label, number in self.numbers.items()})
        runs: list[list[Tuple]] = []
        for tuple_ in tuples:  # neighbours of one stream arrive together
            if runs and runs[-1][0].stream == tuple_.stream:
                runs[-1].append(tuple_)
            else:
                runs.append([tuple_])
        self.received += delivered_results(self.processor.batch([self.arrivals(run) for run in runs], last=last))

    def arrivals(self, tuples: Sequence[Tuple]) -> TupleBatch:
        stream = tuples[0].stream
        known = (r.stream for q in self.running for b in q.query.blocks for r in b.readings)
        columns = next((x.columns for x in known if x.name == stream), ())
        return TupleBatch(
            stream,
            np.array([x.time for x in tuples], np.int64),
            np.array([self.numbers[x.label] for x in tuples], np.int64),
            {name: pa.array([x.values.get(name) for x in tuples], ARROW[type_]) for name, type_ in columns},
        )

    def change(self, event: Change) -> None:
        for name, view in self.views:
            if name == event.subscriber:
                self.processor.change(view, {name: event.clearance})

    def results(self, query: str, subscriber: str) -> list[OracleResult]:
        return [
            OracleResult(x.time, x.values, x.label, x.block)  # type: ignore[arg-type]
            for x in self.received
            if (x.query, x.subscriber) == (query, subscriber)
        ]


def in_order(query: Query, results: list[OracleResult]) -> list[OracleResult]:
    """What merely passes has no certain place among the rest."""
    return sorted(results, key=lambda result: query.blocks[result.block].stateless)


def random_events(rng: Random, tuples: list[Tuple], subscribers: Sequence[str]) -> list[Event]:
    events: list[Event] = list(tuples)
    for _ in range(rng.choice((0, 1, 2, 3))):
        rights = Clearance(rng.choice(ROLES), TOP) if rng.random() < 0.8 else None
        change = Change(rng.choice(subscribers), rights)
        events.insert(rng.randrange(len(events) + 1), change)
    return events


def one_case(seed: int, mode: Mode, counts: Counter[str], restarts: Path | None = None) -> None:
    rng = Random(seed)
    means = exact if mode == Mode.EXACT else cumulative
    queries, tuples = random_plans.random_set(rng)
    if {x.stream for x in tuples} <= {"s", "t"}:
        tuples += random_plans.random_tuples(rng, random_plans.STREAMS, 14)
    streams: dict[str, Stream] = {
        r.stream.name: r.stream for query in queries.values() for b in query.blocks for r in b.readings
    }
    lateness = {name: rng.choice((0, 0, 2000, 10_000)) for name in streams}
    subscribers = {f"u{i}": Clearance(rng.choice(ROLES), TOP) for i in range(rng.randint(1, 4))}
    events = random_events(rng, tuples, list(subscribers))
    replay = Replay(queries, lateness, subscribers, mode)
    waiting: list[Tuple] = []
    for event in events:
        if isinstance(event, Change):
            replay.batch(waiting)
            waiting = []
            replay.change(event)
        elif isinstance(event, Tuple):
            waiting.append(event)
            if rng.random() < 0.3:
                replay.batch(waiting)
                waiting = []
                if restarts is not None and rng.random() < 0.7:
                    replay.save(restarts)
                if restarts is not None and rng.random() < 0.5:
                    counts["restarts"] += 1
                    replay.restart(restarts)
    replay.batch(waiting, last=True)
    for name, query in queries.items():
        expected = means(query, events, subscribers, rules=random_plans.RULES, lateness=lateness, level=TOP)
        for subscriber in subscribers:
            found = in_order(query, replay.results(name, subscriber))
            assert random_plans.agree(found, in_order(query, expected[subscriber])), (
                f"seed {seed}, {subscriber}: {name}"
            )
            counts["results"] += len(found)
        counts["queries"] += 1
