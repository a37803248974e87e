"""Random worlds for a whole pipeline: streams with all that ingress reads, queries (some over the results of others),
and what is wanted of them, step by step.

Everything is a function of the seed. A step is what a pipeline is asked to do once: take a batch, go on after a
restart, or end. What is wanted changes between steps, and sometimes between computing and delivering.
"""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from random import Random
from typing import Literal

from plan import test_meaning as random_plans

from headgate.cql.queries import parse_query
from headgate.errors import HeadgateError
from headgate.ingress.validation import AHEAD, NO_LABEL, NO_TIME
from headgate.labels import Clearance, Label, Level, Rules, Semantics, parse_label
from headgate.model.query import ContinuousQuery
from headgate.model.snapshot import CatalogSnapshot, Subscriber
from headgate.model.stream import StreamDescriptor
from headgate.plan.expressions import Type, Value
from headgate.plan.queries import Query, Stream, bind_query
from headgate.plan.secure import Mode
from headgate.testing.oracle import Tuple
from headgate.testing.queries import Features, finder, random_query, random_streams, random_value
from worlds.partitioned_queries import STREAMS as DEALT
from worlds.partitioned_queries import partitioned_query
from worlds.pipeline_queries import over, restless, tabled, usable

ORDER = random_plans.RULES.order
LEVELS = tuple(map(Level, (*["TS"] * 24, "S", "C", "U")))
BOTH = frozenset({"doctor", "nurse"})
ROLES = (BOTH, BOTH, frozenset({"doctor"}), frozenset({"nurse"}), frozenset[str]())
LAB = "lab"
"""A source that is no stream here."""
POLICIES = tuple(map(parse_label, (*["TRUE"] * 6, "doctor | nurse", "TRUE AT C", "TRUE FROM lab")))
BROUGHT = tuple(map(parse_label, (*["TRUE"] * 4, "doctor", "nurse", "doctor | nurse AT S", "TRUE AT C")))
ON_COLUMNS = tuple(map(parse_label, ("doctor", "nurse", "doctor | nurse", "TRUE AT S", "TRUE FROM lab", "FALSE")))
UNREADABLE = (None, "", "doctor &", "TRUE AT X", "AT", "(doctor", "U U", "doctor FROM")
BROUGHT_BY: tuple[Mapping[str, str], ...] = (
    {},
    {"ROLES": "p"},
    {"LEVEL": "q"},
    {"ROLES": "p", "LEVEL": "q"},
    {"LABEL": "p"},
)
TABLES = (
    Stream("d", (("a", Type.INT), ("b", Type.INT), ("v", Type.STRING)), table=True),
    Stream("z", (("b", Type.INT), ("w", Type.STRING)), table=True),
)
Content = tuple[tuple[Mapping[str, Value], Tuple], ...]
"""The rows of a table, each with the tuple that it is."""
OVER_RESULTS = Features(blocks=2, sources=2, spelling=False, roles=(), depth=1)
_FEW: dict[Type, tuple[Value, ...]] = {
    Type.INT: (0, 1, 2, 3, 4, None),
    Type.BIGINT: (0, 1, 2, 3, 4, None),
    Type.DOUBLE: (0.0, 0.75, 1.5, -2.25, None),
    Type.STRING: ("a", "b", "C", "é", None),
}


@dataclass(frozen=True)
class Step:
    """`tuples` are those that get in, as they should; `rows` all that come, as they are; `refused` why others do not.
    `during` is what is wanted when results go out; `lost`: the process ends before they do; `content` is what tables
    hold by then. With the step, everything of the stream has been read that came until the clock showed `settled`
    milliseconds; a look at the clock has no rows."""

    kind: Literal["batch", "look", "restart", "end"]
    snapshot: CatalogSnapshot
    during: CatalogSnapshot
    stream: str = ""
    rows: tuple[Mapping[str, Value], ...] = ()
    tuples: tuple[Tuple, ...] = ()
    refused: Mapping[str, int] = field(default_factory=dict)
    now: float = 0.0
    lost: bool = False
    content: Mapping[str, Content] = field(default_factory=dict)
    settled: int | None = None


@dataclass
class World:
    seed: int
    rules: Rules
    streams: tuple[Stream, ...]
    descriptors: dict[str, StreamDescriptor]
    steps: list[Step]


class Author:
    """`unrest`: columns with labels, joins over them, and rights that change all the time; nothing over results. With
    `tables` all queries read some."""

    def __init__(self, seed: int, *, unrest: bool = False, tables: bool = False) -> None:
        self.seed = seed
        self.unrest = unrest
        self.rng = Random(seed)
        self.passed, self.now = 0, 0.0
        self.base = self.rng.choice((0, -4_000, 1_700_000_000_000))
        self.kind = self.rng.choice(("plain", "dealt") if unrest else ("plain", "plain", "dealt", "dealt", "random"))
        made = {"plain": random_plans.STREAMS, "dealt": DEALT, "random": ()}[self.kind] or random_streams(self.rng)
        self.labelled = 0.5 if unrest else self.rng.choice((0.0, 0.3, 0.3))
        self.streams = tuple(map(self.stream, made))
        self.tabled = 1.0 if tables else 0.4
        some = (TABLES[:1], TABLES[1:], TABLES) if tables else ((), TABLES[:1], TABLES[1:], TABLES)
        self.tables = tuple(map(self.stream, self.rng.choice(some)))
        self.descriptors = {stream.name: self.descriptor(stream) for stream in (*self.streams, *self.tables)}
        self.lateness = {x.name: self.rng.choice((0, 0, 0, 500, 500, 4000)) for x in self.streams}
        self.pool = self.queries()
        names = [*self.descriptors, *(x.output for x in self.pool), LAB]
        semantics = {x: self.rng.choice((Semantics.STRONG, *Semantics)) for x in names}
        self.rules = Rules(ORDER, {name: found for name, found in semantics.items() if found != Semantics.STRONG})
        self.clearances = [self.clearance(names, roles) for roles in self.rng.sample(ROLES, 3)]
        self.users: dict[str, Clearance | None] = {
            f"u{number}": self.rng.choice(self.clearances) for number in range(self.rng.randint(1, 4))
        }
        self.looks = random.Random(f"looks {seed}")
        if self.looks.random() < 0.5:
            for stream in self.streams:
                delay = self.looks.choice((None, 0, 700, 2500))
                self.descriptors[stream.name] = replace(self.descriptors[stream.name], delay=delay)
        self.limits = random.Random(f"limits {seed}")
        for number, query in enumerate(self.pool):
            if self.limits.random() < 0.4:
                self.pool[number] = self.limited(query)
        self.active = [query.name for query in self.pool if self.chance(0.9)]
        self.subscriptions = {(user, x.name) for user in self.users for x in self.pool if self.chance(0.6)}
        self.snapshot = self.random_snapshot()
        self.content = {table.name: self.table(table) for table in self.tables}

    def chance(self, probability: float) -> bool:
        return self.rng.random() < probability

    # Streams ----------------------------------------------------------------------------------------------------------

    def stream(self, made: Stream) -> Stream:
        more = (("at", Type.TIMESTAMP), ("p", Type.STRING), ("q", Type.STRING))
        likely = ON_COLUMNS[:3] if self.unrest else ON_COLUMNS
        labels = {name: self.rng.choice(likely) for name, _ in made.columns if self.chance(self.labelled)}
        return Stream(made.name, (*made.columns, *more), tuple(labels.items()), made.table)

    def descriptor(self, stream: Stream) -> StreamDescriptor:
        timed = self.chance(0.9) and not stream.table
        return StreamDescriptor(
            stream.name,
            stream.columns,
            "at" if timed else None,
            {"ROLES": "p"} if stream.table else {} if self.unrest else self.rng.choice(BROUGHT_BY),
            self.rng.choice(POLICIES),
            2_000 if timed and self.chance(0.2) else None,
            stream.table,
        )

    def clearance(self, names: list[str], roles: frozenset[str]) -> Clearance:
        likely = self.rng.choice((1.0, 1.0, 0.85))
        sources = frozenset(name for name in names if self.chance(likely))
        aggregates = frozenset(name for name in names if self.chance(0.5))
        if self.unrest:
            return Clearance(roles, LEVELS[0], frozenset(names))
        return Clearance(roles, self.rng.choice(LEVELS), sources, aggregates)

    # Queries ----------------------------------------------------------------------------------------------------------

    def queries(self) -> list[ContinuousQuery]:
        every = (*self.streams, *self.tables)
        found = [self.running(number, self.bound(every), 0) for number in range(self.rng.randint(2, 4))]
        for stage in () if self.unrest else (1, 2):
            producers = [x for x in found if x.stage == stage - 1 and usable(x.query)]
            for _ in range(self.rng.choice((0, 1, 1, 2)) if producers else 0):
                outputs = [Stream(x.output, x.query.columns) for x in producers]
                query = self.bound((*outputs, *every), {x.name for x in outputs})
                found.append(self.running(len(found), query, stage))
        return found

    def running(self, number: int, query: Query, stage: int) -> ContinuousQuery:
        mode = Mode.CUMULATIVE if stage == 0 and self.chance(0.3) else Mode.EXACT
        level = LEVELS[0] if self.unrest else self.rng.choice(LEVELS)
        return ContinuousQuery(f"q{number}", query, level, self.lateness, mode, f"o{number}", stage)

    def bound(self, streams: tuple[Stream, ...], among: set[str] | None = None) -> Query:
        """One query, which reads one of these."""
        while True:
            if among is not None:
                some = streams[: self.rng.randint(len(among), len(streams))]
                text = random_query(self.rng, some, OVER_RESULTS) if self.chance(0.2) else over(self.rng, some)
            elif self.tables and self.kind != "random" and self.chance(self.tabled):
                text = tabled(self.rng, self.tables)
            elif self.unrest and self.chance(0.6):
                text = restless(self.rng)
            elif self.kind == "random":
                text = random_query(self.rng, streams, random_plans.FEATURES, roles=())
            else:
                text = {"plain": random_plans.plain_query, "dealt": partitioned_query}[self.kind](self.rng)
            try:
                query = bind_query(parse_query(text), finder(streams))
            except HeadgateError:  # DISTINCT with an aggregate, columns that are not grouped
                continue
            if among is None or any(x.stream.name in among for block in query.blocks for x in block.readings):
                return query

    # What is wanted ---------------------------------------------------------------------------------------------------

    def random_snapshot(self) -> CatalogSnapshot:
        queries = tuple(query for query in self.pool if query.name in self.active)
        subscribers = (
            Subscriber(user, query, self.users[user])
            for user, query in sorted(self.subscriptions)
            if query in self.active
        )
        return CatalogSnapshot(self.rules, dict(self.descriptors), queries, tuple(subscribers))

    def limited(self, query: ContinuousQuery) -> ContinuousQuery:
        """With what the owner's roles allow by now."""
        state = self.limits.choice((None, 1, 2, 3, 4, 5, 8, 12))
        return replace(query, most_state=state, most_results=self.limits.choice((None, None, 1, 2, 3, 5, 8)))

    def change(self) -> CatalogSnapshot:
        """One to three changes, or none; limits change apart from them."""
        if self.limits.random() < 0.08:
            number = self.limits.randrange(len(self.pool))
            self.pool[number] = self.limited(self.pool[number])
            self.snapshot = self.random_snapshot()
        if self.chance(0.3 if self.unrest else 0.6):
            return self.snapshot
        for _ in range(self.rng.choice((1, 1, 2, 3))):
            user, query = self.rng.choice(sorted(self.users)), self.rng.choice(self.pool).name
            match self.rng.randrange(5 if self.unrest else 8):
                case 0 | 1 | 2 | 3:
                    self.users[user] = self.rng.choice(self.clearances) if self.chance(0.9) else None
                case 4 | 5:
                    self.subscriptions ^= {(user, query)}
                case 6:
                    self.active = [x.name for x in self.pool if (x.name in self.active) != (x.name == query)]
                case 7:
                    name = self.rng.choice([stream.name for stream in self.streams])
                    self.descriptors[name] = replace(self.descriptors[name], skew=self.rng.choice((None, 500, 5000)))
        self.snapshot = self.random_snapshot()
        return self.snapshot

    # Steps ------------------------------------------------------------------------------------------------------------

    def world(self) -> World:
        steps: list[Step] = []
        for _ in range(self.rng.randint(8, 14)):
            steps.append(self.batch(self.change()))
            if steps[-1].during is steps[-1].snapshot and not steps[-1].lost and self.looks.random() < 0.2:
                steps.append(self.look())
            # a restart forgets a look at the clock that made nothing final: that is not written down
            if steps[-1].lost or (self.chance(0.15) and steps[-1].kind == "batch"):
                snapshot = self.change()
                steps.append(Step("restart", snapshot, snapshot, content=self.changed_content()))
        snapshot = self.change()
        steps.append(Step("end", snapshot, snapshot, content=self.changed_content()))
        return World(self.seed, self.rules, self.streams, self.descriptors, steps)

    def changed_content(self) -> Mapping[str, Content]:
        """What tables hold by now."""
        for table in self.tables:
            if self.chance(0.3):
                self.content[table.name] = self.table(table)
        return dict(self.content)

    def table(self, table: Stream) -> Content:
        descriptor, found = self.descriptors[table.name], []
        for _ in range(self.rng.choice((0, 1, 3, 5, 8))):
            row: dict[str, Value] = {name: self.value(type_) for name, type_ in table.columns}
            label, readable = self.label(descriptor, row)
            if readable:
                found.append((row, Tuple(table.name, 0, row, label)))
        return tuple(found)

    def batch(self, snapshot: CatalogSnapshot) -> Step:
        stream = self.rng.choice(self.streams)
        self.now = (self.base + self.passed) / 1000
        descriptor, tuples, refused = self.descriptors[stream.name], list[Tuple](), dict[str, int]()
        rows: list[Mapping[str, Value]] = []
        for _ in range(self.rng.choice((0, 1, 2, 2, 3, 5))):
            row, found = self.row(stream, descriptor)
            rows.append(row)
            if isinstance(found, Tuple):
                tuples.append(found)
            else:
                refused[found] = refused.get(found, 0) + 1
        during = self.change() if self.chance(0.1) else snapshot
        lost = self.chance(0.06)
        rest = tuple(rows), tuple(tuples), refused, self.now
        settled = self.settled() if self.looks.random() < 0.3 else None
        content = self.changed_content()
        return Step("batch", snapshot, during, stream.name, *rest, lost=lost, content=content, settled=settled)

    def look(self) -> Step:
        stream, snapshot = self.looks.choice(self.streams).name, self.snapshot
        return Step("look", snapshot, snapshot, stream, content=dict(self.content), settled=self.settled())

    def settled(self) -> int:
        return self.base + self.passed + self.looks.choice((-500, 0, 1000, 3000))

    def row(self, stream: Stream, descriptor: StreamDescriptor) -> tuple[Mapping[str, Value], Tuple | str]:
        """A row, and the tuple that it is; or why it is none."""
        time = self.base + self.passed - self.rng.choice((0, 0, 0, 0, 0, 500, 1000, 3000))
        self.passed += self.rng.choice((0, 0, 500, 1000))
        if descriptor.skew is not None and self.chance(0.1):
            time = int(self.now * 1000) + descriptor.skew + self.rng.choice((0, 1, 90_000))
        late = dt.timedelta(milliseconds=time, microseconds=self.rng.choice((0, 0, 1, 999)))
        at = dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + late if self.chance(0.98) else None
        row: dict[str, Value] = {name: self.value(type_) for name, type_ in stream.columns} | {"at": at}
        label, readable = self.label(descriptor, row)
        if descriptor.event_time is None:
            time = int(self.now * 1000)
        elif at is None:
            return row, NO_TIME
        elif descriptor.skew is not None and time > self.now * 1000 + descriptor.skew:
            return row, AHEAD
        return row, Tuple(stream.name, time, row, label) if readable else NO_LABEL

    def label(self, descriptor: StreamDescriptor, row: dict[str, Value]) -> tuple[Label, bool]:
        """Writes into the row what it brings."""
        label = self.rules.combine(descriptor.policy, Label(sources=frozenset({descriptor.name})))
        readable = True
        for kind, column in descriptor.labels.items():
            brought = self.rng.choice(BROUGHT)
            if kind == "ROLES":
                brought = Label(brought.roles)
            elif kind == "LEVEL":
                brought = Label(levels=brought.levels or frozenset({Level("U")}))
            text = {"ROLES": str(brought.roles), "LEVEL": ", ".join(map(str, brought.levels))}.get(kind, str(brought))
            if self.chance(0.06):
                text, readable = self.rng.choice(UNREADABLE), False  # type: ignore[assignment]
            row[column] = text
            label = self.rules.combine(label, brought)
        return self.rules.normal(label), readable

    def value(self, type_: Type) -> Value:
        few = _FEW.get(type_)
        if few is None or (self.kind == "random" and self.chance(0.5)):
            return random_value(self.rng, type_)
        return self.rng.choice(few)
