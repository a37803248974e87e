"""Queries at work: sources are read, everyone's results go to their sinks, rights are those of each moment.

It needs no session of its own: whoever may start it can read the store and the sources anyway. What it hands out is
decided result by result, for the sessions that subscribed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from headgate.clock import Clock, SystemClock
from headgate.engine.carriers import LocalCarrier
from headgate.engine.demand import Gate
from headgate.engine.duck import evaluate
from headgate.engine.memory import keep_freed
from headgate.engine.pipeline import Counts, Pipeline
from headgate.engine.runner import Runner
from headgate.engine.session import spark_session
from headgate.engine.sinks import Address, Sink
from headgate.engine.sources import StreamSource
from headgate.service.headgate import Headgate

OFTEN = 0.5
"""How often, in seconds, it is looked whether other streams are to be read."""


class Processing:
    def __init__(
        self,
        headgate: Headgate,
        home: Path,
        sinks: Sequence[Sink],
        *,
        gate: Gate | None = None,
        master: str = "local[2]",
        clock: Clock | None = None,
    ) -> None:
        keep_freed()
        self._headgate = headgate
        self._gate = gate or headgate
        self._pipeline = Pipeline(
            home,
            self._gate,
            lambda _, program, schema: LocalCarrier(program, schema, evaluate),
            sinks,
            clock or SystemClock(),
        )
        self._spark = spark_session(home, master=master)  # last: what is refused is refused before it takes seconds
        self._runner = Runner(self._spark, home, self._pipeline)

    @property
    def counts(self) -> Counts:
        return self._pipeline.counts

    def replay(self, watch: Callable[[], None] = lambda: None, *, end: bool = True) -> None:
        """All that the sources hold and that was not read before, to its end. `watch` is called now and then. Unless
        more comes later, what waits for its time is final at the end."""
        self._runner.read(self._sources(), finite=True)
        while not self._runner.wait(OFTEN):
            watch()
        self._runner.stop()
        if end:
            self._pipeline.end()

    def follow(self, watch: Callable[[], None] = lambda: None) -> None:
        """What is there and what comes, until it is interrupted."""
        while True:
            self._runner.read(self._sources())
            self._runner.wait(OFTEN)
            watch()

    def close(self) -> None:
        self._runner.stop()
        self._pipeline.close()

    def _sources(self) -> dict[str, StreamSource]:
        demand, inputs = self._gate.demand(), self._headgate.demands.inputs()
        return {
            name: StreamSource(demand.entrances[name], found["format"], found["options"])
            for name, found in inputs.items()
            if any(name in query.streams for query in demand.queries) and name in demand.entrances
        }


class Folders:
    """Where results go in a folder: one folder for each user, a file for each stream and session in it."""

    def __init__(self, headgate: Headgate) -> None:
        self._headgate = headgate

    def of(self, subscriber: str, query: str) -> Address:
        out = self._headgate.demands.outgoing(subscriber, query)
        return Address((out.user, f"{out.stream}.{out.session}"), out.columns)

    def of_refused(self, stream: str) -> tuple[str, ...]:
        return (self._headgate.demands.owner(stream), f"{stream}.refused")
