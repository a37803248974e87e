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
from functools import partial
from pathlib import Path
from typing import Protocol

import pyarrow as pa

from headgate.clock import Clock
from headgate.engine.chain import Chain, Make
from headgate.engine.demand import Demand, Gate
from headgate.engine.egress import Parcel
from headgate.engine.ingress import Ingress, Refused
from headgate.engine.kernels.limits import Limits
from headgate.engine.processor import Arrivals
from headgate.engine.sinks import Sink, plain_refused, refused_of
from headgate.engine.state import Saved, StateFolder
from headgate.engine.wanted import Wanted
from headgate.errors import Conflict


@dataclass
class Counts:
    """What happened, for the summary."""

    batches: int = 0
    tuples: Counter[str] = field(default_factory=Counter)
    refused: Counter[tuple[str, str]] = field(default_factory=Counter)
    unseen: Counter[str] = field(default_factory=Counter)
    results: Counter[tuple[str, str]] = field(default_factory=Counter)
    withheld: int = 0


class Incoming(Protocol):
    """A batch of a stream, to be read in one of two ways."""

    def compact(
        self, wanted: Wanted, now: int, learn: Callable[[Sequence[tuple[str | None, ...]]], Wanted]
    ) -> Compacted | None:
        """Only what is wanted, if that can be; `learn` reads labels that are new."""
        ...

    def whole(self) -> pa.Table:
        """All of it, in the order of arrival."""
        ...


class Compacted(Protocol):
    @property
    def arrivals(self) -> Arrivals: ...

    @property
    def tuples(self) -> int:
        """How many there were, unwanted ones included."""
        ...


@dataclass(frozen=True)
class TableBatch:
    """A batch that is here already."""

    table: pa.Table

    def compact(self, wanted: Wanted, now: int, learn: Callable[[Sequence[tuple[str | None, ...]]], Wanted]) -> None:
        pass

    def whole(self) -> pa.Table:
        return self.table


class Pipeline:
    """`make` makes what runs the cells of a program; `sinks` take what goes out."""

    def __init__(
        self, home: Path, gate: Gate, make: Make, sinks: Sequence[Sink], clock: Clock, limits: Limits | None = None
    ) -> None:
        home.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._alone = _hold(home / "lock")
        self._gate = gate
        self._sinks = sinks
        self._clock = clock
        self._lock = threading.Lock()
        self._states = StateFolder(home / "state")
        self._version = 0
        self._done: dict[str, int] = {}
        self._limits = limits
        self._chain = Chain(make, limits)
        self._ingress: dict[str, Ingress] = {}
        self._demand = Demand()
        self.counts = Counts()
        self._go_on()

    def close(self) -> None:
        os.close(self._alone)

    def _go_on(self) -> None:
        """From the newest state, if there is one."""
        saved, demand = self._states.newest(), self._gate.demand()
        if saved is None:
            self._meet(demand)
            return
        self._version, self._done = saved.version, dict(saved.rest["done"])
        self._chain.restore(saved.cells, saved.rest["chain"], saved.rest["labels"], demand)
        self._meet(demand)
        for sink in self._sinks:
            sink.restore(saved.rest["sinks"].get(sink.name))
        staged = {x.name: x.staged(saved.version) if x.keeps else saved.results for x in self._sinks}
        self._deliver(None, staged, [refused_of(x) for x in saved.rest["refused"]])

    def _meet(self, demand: Demand) -> None:
        """Brings queries, views and rights in line with what is wanted now."""
        if demand is self._demand:
            return
        self._chain.meet(demand)
        if demand.rules != self._demand.rules or demand.entrances != self._demand.entrances:
            number = self._chain.numbers.number
            self._ingress = {x.name: Ingress(x, demand.rules, number, self._limits) for x in demand.entrances.values()}
        self._demand = demand

    # Batches ----------------------------------------------------------------------------------------------------------

    def take(self, stream: str, number: int, given: Incoming | pa.Table) -> None:
        """The next tuples of a stream; a batch whose number was taken before is not taken again."""
        batch: Incoming = TableBatch(given) if isinstance(given, pa.Table) else given
        now = int(self._clock.now() * 1000)
        with self._lock:
            wanted = self._wanted(stream)
        compact = batch.compact(wanted, now, partial(self._learn, stream))  # meanwhile other streams go on
        whole = batch.whole() if compact is None else None
        with self._lock:
            if number <= self._done.get(stream, -1):
                return
            demand = self._gate.demand()
            self._meet(demand)
            self._done[stream] = number
            if stream not in self._ingress:  # whoever wanted it left while it was being read
                return
            self.counts.batches += 1
            if compact is not None and demand.queries == wanted.demand.queries:
                self._finish(demand, self._results(compact.arrivals, compact.tuples), ())
                return
            whole = batch.whole() if whole is None else whole  # other queries may read other columns
            arrivals, refused = self._ingress[stream].take(whole, now)
            self.counts.refused.update({(x.stream, x.reason): len(x.rows) for x in refused})
            self._finish(demand, self._results(arrivals, len(whole)), refused)

    def _learn(self, stream: str, texts: Sequence[tuple[str | None, ...]]) -> Wanted:
        with self._lock:
            self._ingress[stream].learn(texts)
            return self._wanted(stream)

    def _wanted(self, stream: str) -> Wanted:
        self._meet(self._gate.demand())
        return self._chain.wanted(stream, self._ingress[stream].known)

    def _results(self, arrivals: Arrivals, tuples: int) -> list[Parcel]:
        results = self._chain.batch([arrivals])
        self.counts.tuples[arrivals.stream] += tuples
        self.counts.unseen[arrivals.stream] += self._chain.unseen
        return results

    def end(self) -> None:
        """Nothing more will come: all that waits for its time is final."""
        with self._lock:
            demand = self._gate.demand()
            self._meet(demand)
            self._finish(demand, self._chain.batch([], last=True), ())

    def _finish(self, demand: Demand, results: Sequence[Parcel], refused: Sequence[Refused]) -> None:
        self._version += 1
        cells, chain = self._chain.save()
        rest = {
            "done": self._done,
            "chain": chain,
            "labels": self._chain.numbers.plain(),
            "refused": [plain_refused(x) for x in refused],
            "sinks": {sink.name: sink.state() for sink in self._sinks},
        }
        for sink in self._sinks:
            sink.stage(self._version, results)
        kept = () if all(sink.keeps for sink in self._sinks) else results
        self._states.save(Saved(self._version, cells, rest, kept))
        self._deliver(demand, dict.fromkeys((sink.name for sink in self._sinks), results), refused)

    def _deliver(
        self, computed: Demand | None, staged: Mapping[str, Sequence[Parcel]], refused: Sequence[Refused]
    ) -> None:
        """Under the rights of now, which nobody changes meanwhile."""
        with self._gate.open() as now:
            same = now is computed
            for sink in self._sinks:
                results = staged[sink.name]
                allowed = list(results) if same else [x for parcel in results for x in now.allowed(parcel)]
                sink.write(allowed, refused, as_staged=same)
        self.counts.withheld += _rows(results) - _rows(allowed)
        for parcel in allowed:
            self.counts.results.update(dict.fromkeys(((parcel.query, x) for x in parcel.subscribers), len(parcel)))


def _rows(parcels: Sequence[Parcel]) -> int:
    return sum(len(parcel) * len(parcel.subscribers) for parcel in parcels)


def _hold(file: Path) -> int:
    """One process at a time: two would write the same state."""
    descriptor = os.open(file, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise Conflict(f"another process works in `{file.parent}`", hint="end it first, or use another home") from None
    return descriptor
