"""Random chains of up to three queries, UNION ALL of every mixture of blocks among them, and what comes in: tuples of
two streams, some of which not everybody may see, and changes of rights. The same events go through the oracle and,
split in any way, through a query graph.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random

import numpy as np
import pyarrow as pa

from headgate.cql.queries import parse_query
from headgate.execution.executors import Executor, LocalExecutor
from headgate.expressions.sql.types import ARROW
from headgate.labels import Clearance, Label, Level, Rules, parse_label
from headgate.model.query import ContinuousQuery
from headgate.model.results import ResultBatch, delivered_results
from headgate.model.snapshot import CatalogSnapshot, Subscriber
from headgate.model.stream import StreamDescriptor
from headgate.model.tuples import TupleBatch
from headgate.operators.program import Program
from headgate.plan.expressions import Type
from headgate.plan.queries import Stream, bind_query
from headgate.recovery.query_graph import QueryGraph
from headgate.testing.oracle import (
    CascadedQuery,
    CascadeSetting,
    Change,
    ClockEvent,
    Event,
    Limit,
    OracleResult,
    Tuple,
    cascade,
)
from headgate.testing.queries import finder
from worlds.oracle_expressions import evaluate

STREAMS = tuple(Stream(name, (("v", Type.BIGINT),)) for name in ("A", "B"))
ANN, BOB = "ann", "bob"
ROLES = {ANN: ("nurse",), BOB: ("nurse", "doctor")}
HIDDEN = "clerk"
"""The label of tuples that neither sees."""
_ALONE = (
    "SELECT v FROM {}",
    "SELECT v + 1 AS v WHERE v > 1 FROM {}",
    "SELECT v FROM {} [ROWS 2]",
    "SELECT DSTREAM v FROM {} [RANGE 2 SECONDS]",
    "SELECT DISTINCT v FROM {} [RANGE 3 SECONDS]",
    "SELECT MAX(v) AS v FROM {} [RANGE 2 SECONDS SLIDE 1 SECOND]",
    "SELECT COUNT(*) AS v FROM {} [UNBOUNDED]",
)
_BOTH = ("SELECT x.v FROM {} [ROWS 1] x, {} [ROWS 2] y", "SELECT x.v FROM {} [NOW] x, {} [RANGE 1 SECOND] y")


@dataclass(frozen=True)
class World:
    texts: tuple[str, ...]
    links: tuple[CascadedQuery, ...]
    events: tuple[Event, ...]
    setting: CascadeSetting
    people: Mapping[str, Clearance] = field(default_factory=lambda: {x: clearance(ROLES[x]) for x in (ANN, BOB)})

    def wanted(self) -> dict[tuple[str, str], list[OracleResult]]:
        """By subscriber and output, as the oracle has it."""
        found = cascade(self.links, self.events, self.people, self.setting)
        return {(name, output): results for output, own in found.items() for name, results in own.items()}


def clearance(roles: Sequence[str], without: Collection[str] = ()) -> Clearance:
    """Without the right to read these streams."""
    streams = {"A", "B", *(f"O{number}" for number in range(1, 6))}
    return Clearance(frozenset(roles), Level("U"), frozenset(streams.difference(without)))


def random_world(rng: Random, *, tuples: int = 24, delay: bool = False) -> World:
    streams, texts = [x.name for x in STREAMS], list[str]()
    for number in range(1, rng.choice((2, 3, 3)) + 1):
        texts.append(_union(rng, streams))
        streams.append(f"O{number}")
    late = {x.name: rng.choice((0, 0, 1000)) for x in STREAMS}
    delays = {x.name: rng.choice((0, 500, 2000)) for x in STREAMS if rng.random() < 0.8} if delay else {}
    world = chained(texts, _events(rng, tuples, delays), CascadeSetting(Rules(), late, delays))
    rights = Random(f"rights {rng.random()}")
    return _with_closed_streams(rights, world) if rights.random() < 0.5 else world


def random_lines(rng: Random, *, tuples: int = 60) -> World:
    """Queries that read one stream each, so that results go on without moments; two may read the same one."""
    streams, texts = [x.name for x in STREAMS], list[str]()
    for number in range(1, rng.choice((2, 3, 4)) + 1):
        stateless = rng.random() < 0.3
        texts.append(
            " UNION ALL ".join(
                text.format(read, read)
                for read in [rng.choice(streams[-2:])]
                for text in rng.choices(_ALONE[:2] if stateless else (*_ALONE[2:], *_BOTH), k=rng.choice((1, 1, 2)))
            )
        )
        streams.append(f"O{number}")
    late = {x.name: rng.choice((0, 1000, 3000)) for x in STREAMS}
    events = [x for x in _events(rng, tuples, {}) if not isinstance(x, Limit)]
    return chained(texts, events, CascadeSetting(Rules(), late))


def chained(texts: Sequence[str], events: Sequence[Event], setting: CascadeSetting | None = None) -> World:
    """Queries whose results are the streams O1, O2 and so on."""
    streams, links = list(STREAMS), list[CascadedQuery]()
    for number, text in enumerate(texts, 1):
        query = bind_query(parse_query(text), finder(streams))
        links.append(CascadedQuery(query, f"O{number}"))
        streams.append(Stream(f"O{number}", query.columns))
    declared = {x.name: parse_label(f"TRUE FROM {x.name}") for x in STREAMS}
    return World(tuple(texts), tuple(links), tuple(events), replace(setting or CascadeSetting(), declared=declared))


def _with_closed_streams(rng: Random, world: World) -> World:
    """In which people may not read all streams: from the beginning, or from some event on, or until then; one stream
    may be declared for doctors only."""

    def some(name: str) -> Clearance:
        closed = [x for x in ("A", "B", "B", "O1", "O2") if rng.random() < 0.2]
        return clearance(ROLES[name][: rng.choice((1, 2))], closed)

    events: list[Event] = [x for x in world.events if not isinstance(x, Change)]
    for name in (ANN, BOB):
        for _ in range(rng.choice((0, 1, 1, 2, 3))):
            events.insert(rng.randrange(1, len(events) + 1), Change(name, some(name)))
    setting, doctors = world.setting, parse_label("doctor FROM B")
    if rng.random() < 0.3:
        setting = replace(setting, declared={**setting.declared, "B": doctors})
        events = [
            replace(x, label=Rules().combine(x.label, doctors)) if isinstance(x, Tuple) and x.stream == "B" else x
            for x in events
        ]
    return replace(world, events=tuple(events), setting=setting, people={name: some(name) for name in (ANN, BOB)})


def _union(rng: Random, streams: Sequence[str]) -> str:
    """The last stream is read by the first block, so that a chain is one."""

    def block(first: str) -> str:
        text = rng.choice(_ALONE if rng.random() < 0.75 else _BOTH)
        return text.format(first, rng.choice(streams))

    blocks = [block(streams[-1]), *(block(rng.choice(streams)) for _ in range(rng.choice((0, 0, 1, 1, 2))))]
    return " UNION ALL ".join(blocks)


def _events(rng: Random, count: int, delays: object) -> list[Event]:
    """Times mostly in order; of rights that change none comes back."""
    found: list[Event] = []
    time = {x.name: rng.choice((0, 0, 5000)) for x in STREAMS}
    stream, clock = "A", 0
    for _ in range(count):
        stream = rng.choice("AB") if rng.random() < 0.3 else stream
        time[stream] += rng.choice((0, 0, 300, 500, 1000))
        own = max(0, time[stream] - rng.choice((0, 0, 0, 0, 700, 2500)))
        label = rng.choice(("TRUE", "TRUE", "nurse", "doctor", HIDDEN))
        found.append(Tuple(stream, own, {"v": rng.randrange(4)}, parse_label(f"{label} FROM {stream}")))
        if delays and rng.random() < 0.25:
            clock = max(clock, time[stream] + rng.choice((0, 500, 3000)))
            found.append(ClockEvent(rng.choice("AB"), clock))
    for name in (ANN, BOB):
        if rng.random() < 0.3:
            found.insert(rng.randrange(len(found)), Change(name, clearance(ROLES[name][:-1])))
    if rng.random() < 0.2:
        state, results = rng.choice((None, 6, 12)), rng.choice((None, 5, 9))
        found.insert(0, Limit(state, results))
    return found


# The engine -----------------------------------------------------------------------------------------------------------


class Replay:
    """The events of a world through a query graph, in batches of up to `longest` tuples."""

    def __init__(self, world: World, rng: Random, longest: int) -> None:
        self._world = world
        self._rng = rng
        self._longest = longest
        self._people = dict(world.people)
        self._limit = next((x for x in world.events if isinstance(x, Limit)), Limit())
        self._graph = QueryGraph(self.executor)
        self.received: dict[tuple[str, str], list[OracleResult]] = {}

    def executor(self, queries: Sequence[ContinuousQuery], program: Program, schema: pa.Schema) -> Executor:  # noqa: ARG002
        return LocalExecutor(program, schema, evaluate)

    def all(self, events: Sequence[Event]) -> dict[tuple[str, str], list[OracleResult]]:
        self._graph.update(self._snapshot())
        self.received = {(name, x.output): [] for name in self._people for x in self._world.links}
        coming: list[Tuple] = []
        for event, after in zip(events, [*events[1:], None], strict=True):
            if not isinstance(event, Tuple) or self._is_cut(coming, event):
                self._batch(coming)
                coming = []
            match event:
                case Tuple():
                    coming.append(event)
                case Change():
                    self._people[event.subscriber] = event.clearance  # type: ignore[assignment]
                    self._graph.update(self._snapshot())
                    if self._rng.random() < 0.5 or not isinstance(after, Tuple):  # else it is part of the next batch
                        self._note(self._graph.batch([]))
                case ClockEvent() if event.stream in self._world.setting.delay:
                    floor = event.time - self._world.setting.delay[event.stream]
                    self._note(self._graph.batch([], floors={event.stream: floor}))
        self._batch(coming)
        self._note(self._graph.batch([], last=True))
        return self.received

    def _is_cut(self, coming: Sequence[Tuple], event: Tuple) -> bool:
        """A batch has tuples of one stream."""
        longest = self._rng.randint(1, self._longest)
        return bool(coming) and (coming[-1].stream != event.stream or len(coming) >= longest)

    def _batch(self, tuples: Sequence[Tuple]) -> None:
        if tuples:
            labels = [self._graph.dictionary.number(x.label) for x in tuples]
            values = {"v": pa.array([x.values["v"] for x in tuples], ARROW[Type.BIGINT])}
            times = np.array([x.time for x in tuples], np.int64)
            self._note(self._results(TupleBatch(tuples[0].stream, times, np.array(labels, np.int64), values)))

    def _results(self, batch: TupleBatch) -> list[ResultBatch]:
        return self._graph.batch([batch])

    def _note(self, found: Sequence[object]) -> None:
        outputs = {x.name: x.output for x in self._queries()}
        for x in delivered_results(found):  # type: ignore[arg-type]
            own = OracleResult(x.time, x.values, x.label, x.block)  # type: ignore[arg-type]
            self.received[x.subscriber, outputs[x.query]].append(own)

    def _queries(self) -> list[ContinuousQuery]:
        late, most = self._world.setting.lateness, self._limit
        return [
            ContinuousQuery(
                f"q{number}",
                link.query,
                link.level,
                late,
                output=link.output,
                stage=_stage(self._world.links, link),
                most_state=most.state,
                most_results=most.results,
            )
            for number, link in enumerate(self._world.links)
        ]

    def _snapshot(self) -> CatalogSnapshot:
        queries = self._queries()
        subscribers = [Subscriber(name, x.name, own) for name, own in self._people.items() for x in queries]
        declared = self._world.setting.declared
        descriptors = {x.name: self.descriptor(x, declared[x.name]) for x in STREAMS}
        return CatalogSnapshot(Rules(), descriptors, tuple(queries), tuple(subscribers))

    def descriptor(self, stream: Stream, policy: Label) -> StreamDescriptor:
        return StreamDescriptor(stream.name, stream.columns, policy=policy)


def _stage(links: Sequence[CascadedQuery], link: CascadedQuery) -> int:
    read = {x.stream.name for block in link.query.blocks for x in block.readings}
    return 1 + max((_stage(links, x) for x in links if x.output in read), default=-1)


def with_looks(rng: Random, events: Sequence[Event], delay: int) -> list[Event]:
    """With looks at the clock in between, as tuples of others bring them about, such that all tuples here take no
    longer to arrive than declared."""
    found: list[Event] = []
    for number, event in enumerate(events):
        for stream in "AB":
            coming = [x.time for x in events[number:] if isinstance(x, Tuple) and x.stream == stream]
            if rng.random() < 0.3:
                found.append(ClockEvent(stream, min(coming, default=1_000_000) + delay))
        found.append(event)
    return found


def with_noise(rng: Random, events: Sequence[Event]) -> list[Event]:
    """With other tuples that nobody here may see, of any time: those that were there are gone."""
    found: list[Event] = []
    for event in events:
        while rng.random() < 0.4:
            stream = rng.choice("AB")
            time = rng.choice((0, 3000, 10_000, 90_000))
            found.append(Tuple(stream, time, {"v": rng.randrange(4)}, parse_label(f"{HIDDEN} FROM {stream}")))
        if not (isinstance(event, Tuple) and str(event.label).startswith(HIDDEN)):
            found.append(event)
    return found
