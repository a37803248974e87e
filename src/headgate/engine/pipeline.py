"""A pipeline: batches of tuples go in, everyone's results come out, once each, whatever is interrupted.

A batch counts when its state is written down, with its results in it; only then they go out, under the rights of that
very moment. After a crash the newest state is where it goes on: batches it knows are not taken again, and its results,
which may or may not have gone out, go out once more, which changes nothing for whoever has them.
"""

from __future__ import annotations

import fcntl
import os
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from headgate.clock import Clock
from headgate.engine.demand import Demand, Gate
from headgate.engine.ingress import Ingress, Refused
from headgate.engine.kernels.cell import Program
from headgate.engine.processor import Carrier, Delivery, Processor
from headgate.engine.sights import View
from headgate.engine.sinks import Sink, delivery_of, plain_delivery, plain_refused, refused_of
from headgate.engine.state import Saved, StateFolder
from headgate.errors import Conflict
from headgate.labels import Label
from headgate.labels.text import parse_any_label

Make = Callable[[Program, pa.Schema], Carrier]


@dataclass
class Counts:
    """What happened, for the summary."""

    batches: int = 0
    tuples: Counter[str] = field(default_factory=Counter)
    refused: Counter[tuple[str, str]] = field(default_factory=Counter)
    unseen: Counter[str] = field(default_factory=Counter)
    results: Counter[tuple[str, str]] = field(default_factory=Counter)
    withheld: int = 0


class Numbers:
    """Labels by number. They are kept with the state, so a number means the same for as long as the state lives."""

    def __init__(self) -> None:
        self.labels: list[Label] = []
        self._numbers: dict[Label, int] = {}

    def number(self, label: Label) -> int:
        if label not in self._numbers:
            self._numbers[label] = len(self.labels)
            self.labels.append(label)
        return self._numbers[label]

    def plain(self) -> list[str]:
        return [str(label) for label in self.labels]

    def restore(self, texts: Sequence[str]) -> None:
        for text in texts:
            self.number(parse_any_label(text, limit=1 << 40))


class Pipeline:
    """`carrier` makes what runs the cells of a program; `sinks` take what goes out."""

    def __init__(self, home: Path, gate: Gate, carrier: Make, sinks: Sequence[Sink], clock: Clock) -> None:
        home.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._alone = _hold(home / "lock")
        self._gate = gate
        self._carrier = carrier
        self._sinks = sinks
        self._clock = clock
        self._lock = threading.Lock()
        self._states = StateFolder(home / "state")
        self._version = 0
        self._done: dict[str, int] = {}
        self._numbers = Numbers()
        self._known = 0
        self._demand = Demand()
        self._views: dict[tuple[str, str], View] = {}
        self._ingress: dict[str, Ingress] = {}
        self.counts = Counts()
        self._processor = Processor((), self._demand.rules, carrier)
        self._go_on(gate.demand())

    def close(self) -> None:
        os.close(self._alone)

    # What is wanted ---------------------------------------------------------------------------------------------------

    def _go_on(self, demand: Demand) -> None:
        """From the newest state, if there is one."""
        saved = self._states.newest()
        if saved is None:
            self._meet(demand)
            return
        self._version, self._done = saved.version, dict(saved.rest["done"])
        self._numbers.restore(saved.rest["labels"])
        self._meet(demand, saved.cell, saved.rest["processor"])
        for sink in self._sinks:
            sink.restore(saved.rest["sinks"].get(sink.name))
        results, refused = saved.rest["results"], saved.rest["refused"]
        self._deliver(demand, [delivery_of(x) for x in results], [refused_of(x) for x in refused])

    def _meet(self, demand: Demand, cell: Any = None, rest: Mapping[str, Any] | None = None) -> None:
        """Brings queries, views and rights in line with what is wanted now."""
        if demand is self._demand and rest is None:
            return
        if demand.queries != self._demand.queries or rest is not None:
            if rest is None:
                cell, rest = self._processor.save()
            self._processor = Processor(demand.queries, demand.rules, self._carrier)
            self._processor.restore(cell, rest)
            self._views = {
                (name, view.running.name): view for view in self._processor.views for name in view.clearances
            }
            self._known = 0
        if demand.rules != self._demand.rules or demand.entrances != self._demand.entrances:
            self._ingress = {x.name: Ingress(x, demand.rules, self._numbers.number) for x in demand.entrances.values()}
        self._meet_subscribers(demand)
        self._demand = demand

    def _meet_subscribers(self, demand: Demand) -> None:
        self._know()
        for key, view in list(self._views.items()):
            if key not in demand.clearances:
                self._processor.change(view, {key[0]: None})
                del self._views[key]
        for (name, query), clearance in demand.clearances.items():
            known = self._views.get((name, query))
            if known is None:
                self._views[name, query] = self._processor.subscribe(query, {name: clearance})
            elif known.clearances.get(name) != clearance:
                self._processor.change(known, {name: clearance})

    def _know(self) -> None:
        new = range(self._known, len(self._numbers.labels))
        self._processor.know({number: self._numbers.labels[number] for number in new})
        self._known = len(self._numbers.labels)

    # Batches ----------------------------------------------------------------------------------------------------------

    def take(self, stream: str, number: int, batch: pa.Table) -> None:
        """The next tuples of a stream; a batch whose number was taken before is not taken again."""
        with self._lock:
            if number <= self._done.get(stream, -1):
                return
            demand = self._gate.demand()
            self._meet(demand)
            arrivals, refused = self._ingress[stream].take(batch, int(self._clock.now() * 1000))
            self._know()
            self._done[stream] = number
            self.counts.batches += 1
            self.counts.tuples[stream] += batch.num_rows
            self.counts.refused.update({(x.stream, x.reason): len(x.rows) for x in refused})
            self._finish(demand, self._processor.batch([arrivals]), refused)

    def end(self) -> None:
        """Nothing more will come: all that waits for its time is final."""
        with self._lock:
            demand = self._gate.demand()
            self._meet(demand)
            self._finish(demand, self._processor.batch([], last=True), ())

    def _finish(self, demand: Demand, results: Sequence[Delivery], refused: Sequence[Refused]) -> None:
        self._version += 1
        cell, processor = self._processor.save()
        rest = {
            "done": self._done,
            "labels": self._numbers.plain(),
            "processor": processor,
            "results": [plain_delivery(x) for x in results],
            "refused": [plain_refused(x) for x in refused],
            "sinks": {sink.name: sink.state() for sink in self._sinks},
        }
        self._states.save(Saved(self._version, cell, rest))
        self._deliver(demand, results, refused)

    def _deliver(self, computed: Demand, results: Sequence[Delivery], refused: Sequence[Refused]) -> None:
        """Under the rights of now, which nobody changes meanwhile."""
        with self._gate.open() as now:
            same = now is computed
            allowed = [x for x in results if same or now.permits(x.subscriber, x.query, x.block, x.label)]
            for sink in self._sinks:
                sink.write(allowed, refused)
        self.counts.withheld += len(results) - len(allowed)
        self.counts.results.update((x.query, x.subscriber) for x in allowed)


def _hold(file: Path) -> int:
    """One process at a time: two would write the same state."""
    descriptor = os.open(file, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise Conflict(f"another process works in `{file.parent}`", hint="end it first, or use another home") from None
    return descriptor
