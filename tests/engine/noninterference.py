"""Two runs of a pipeline that differ only in what one observer may not see, and everything that it can see of each.

A *world* is what both runs have in common: streams, queries (some over results of others), those who subscribe, when
they come, go and change their rights, and the tuples that the observer may see, split into batches. *Noise* is put in
for each run anew: tuples, bad rows and whole batches that it may not see, and values of columns that it may not read.
The same is put into a table, which queries of the observer's read beside streams.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random

import pyarrow as pa
from plan import test_meaning as random_plans

from engine.dealt_queries import STREAMS, dealt_query
from engine.pipeline_queries import tabled
from engine.test_dealing_meaning import evaluate as plainly
from headgate.cql.queries import parse_query
from headgate.engine import duck
from headgate.engine.carriers import Carrier, DealtCarrier, LocalCarrier
from headgate.engine.demand import Demand, Subscriber
from headgate.engine.egress import deliveries
from headgate.engine.ingress import SPOILT, Entrance
from headgate.engine.kernels.given import Program
from headgate.engine.mailbox import Mailbox
from headgate.engine.pipeline import Pipeline
from headgate.engine.shares import dealt
from headgate.engine.sights import Running
from headgate.engine.sinks import Address, FileSink, Sink
from headgate.engine.sql.types import ARROW
from headgate.errors import HeadgateError
from headgate.labels import Clearance, Label, Level, parse_label
from headgate.plan.expressions import Type, Value, written
from headgate.plan.queries import Stream, bind_query
from headgate.plan.secure import Mode
from headgate.testing import ManualClock
from headgate.testing.queries import Features, finder, random_query, random_streams, random_value

RULES = random_plans.RULES
BEGIN = dt.datetime(2024, 3, 1, tzinfo=dt.UTC)
OBSERVER = "observer"
AT, POLICY = "event at", "policy"
LEVELS = ("U", "C", "S", "TS")
ROLES = ("doctor", "nurse", "clerk")
LABELS = (
    "TRUE",
    "TRUE",
    "TRUE AT C",
    "doctor",
    "nurse",
    "clerk",
    "doctor | nurse",
    "doctor & nurse",
    "clerk | doctor AT C",
    "TRUE AT C",
    "doctor | nurse AT S",
    "TRUE AT TS",
)
SKEW = 3_600_000
TABLE = Stream("d", (("a", Type.INT), ("b", Type.INT), ("v", Type.STRING)), table=True)


@dataclass(frozen=True)
class Row:
    """A tuple: its time in milliseconds after BEGIN, its label as text, its values; or a row that is no tuple."""

    stream: str
    time: int | None
    label: str | None
    values: Mapping[str, Value]
    spoilt: str | None = None


@dataclass(frozen=True)
class Batch:
    stream: str
    rows: tuple[Row, ...]


@dataclass(frozen=True)
class Wanted:
    """What is wanted from here on."""

    demand: Demand


class Fetch:
    """The observer looks into its mailbox."""


class Restart:
    """The pipeline goes on from what was written down."""


Step = Batch | Wanted | Fetch | Restart


@dataclass
class World:
    streams: tuple[Stream, ...]
    steps: list[Step]
    clearances: list[Clearance]
    """All that the observer holds, one after the other."""
    cells: int
    quick: bool
    queries: list[Running] = field(default_factory=list)
    table: Stream = TABLE
    content: tuple[Row, ...] = ()


DOCTOR = Clearance(frozenset(ROLES), Level("TS"), frozenset({"s", "t", "d", "out.d0", "out.d1"}))

# What both runs have in common ----------------------------------------------------------------------------------------


def random_world(rng: Random) -> World:
    streams = _streams(rng)
    lateness = {x.name: rng.choice((0, 0, 2000, 10_000)) for x in streams}
    queries = _queries(rng, streams, lateness)
    apart = Random(repr(rng.getstate()))  # what concerns the table, so that all else is what it is without one
    table = _labelled(apart, TABLE, (POLICY, Type.STRING))
    beside = _beside(apart, streams, table, lateness)
    entrances = {x.name: Entrance(x.name, x.columns, AT, {"LABEL": POLICY}, skew=SKEW) for x in streams}
    entrances[table.name] = Entrance(table.name, table.columns, None, {"LABEL": POLICY}, table=True)
    sources = frozenset({*entrances, *(query.output for query in queries)})
    own = [query for query in queries if query.mode == Mode.EXACT]
    watched = rng.sample(own, min(3, len(own)))

    def clearance() -> Clearance:
        roles = frozenset(rng.sample(ROLES, rng.choice((0, 1, 1, 2))))
        known = sources if rng.random() < 0.9 else sources - {rng.choice(streams).name}
        return Clearance(roles, Level(rng.choice((*LEVELS, *["TS"] * 6))), known)

    held = clearance()
    clearances, others = [held], dict[tuple[str, str], Clearance | None]()
    world = World(streams, [], clearances, rng.choice((0, 0, 2, 3)), rng.random() < 0.96, [*queries, *beside], table)

    def wanted() -> Wanted:
        subscribers = [Subscriber(OBSERVER, query.name, held) for query in watched]
        subscribers += [Subscriber(name, query, x) for (name, query), x in others.items()]
        rng.shuffle(subscribers)
        subscribers += [Subscriber(name, x.name, y) for x in beside for name, y in ((OBSERVER, held), ("doc", DOCTOR))]
        names = {x.query for x in subscribers}
        running = _with_makers(world.queries, names)
        read = {stream for query in running for stream in query.streams}
        return Wanted(Demand(RULES, {k: x for k, x in entrances.items() if k in read}, running, tuple(subscribers)))

    def others_change() -> None:
        for number in range(rng.randint(0, 3)):
            key = f"u{number}", rng.choice(queries).name
            if key in others and rng.random() < 0.4:
                del others[key]
            else:
                others[key] = clearance() if rng.random() < 0.9 else None

    others_change()
    world.steps.append(wanted())
    times = [0]
    for _ in range(rng.randint(3, 6)):
        stream = rng.choice(streams)
        seen = [x for x in LABELS if RULES.permits(_from(x, stream.name), held)]
        rows = [_row(rng, stream, times, lateness, seen) for _ in range(rng.randint(3, 9))]
        world.steps.append(Batch(stream.name, tuple(rows)))
        if rng.random() < 0.35:
            others_change()
            if rng.random() < 0.3:
                held = clearance()
                clearances.append(held)
            world.steps.append(wanted())
        if rng.random() < 0.2:
            world.steps.append(Fetch())
        if rng.random() < 0.1:
            world.steps.append(Restart())
    visible = Visible(world)
    content = (Row(table.name, None, apart.choice(LABELS), _values(apart, table)) for _ in range(apart.randint(0, 12)))
    world.content = tuple(x for x in content if x.label is not None and visible.row(x.stream, x.label))
    world.steps = [_only_visible(step, visible) for step in world.steps]
    return world


def _streams(rng: Random) -> tuple[Stream, ...]:
    found = STREAMS if rng.random() < 0.8 else random_streams(rng)
    return tuple(_labelled(rng, x, (AT, Type.TIMESTAMP), (POLICY, Type.STRING)) for x in found)


def _labelled(rng: Random, stream: Stream, *more: tuple[str, Type]) -> Stream:
    """With labels on some columns, and with these more."""
    labels = tuple((name, parse_label(rng.choice(LABELS))) for name, _ in stream.columns if rng.random() < 0.2)
    return Stream(stream.name, (*stream.columns, *more), labels, stream.table)


def _beside(rng: Random, streams: tuple[Stream, ...], table: Stream, lateness: Mapping[str, int]) -> list[Running]:
    """Queries that read the table beside a stream."""
    found: list[Running] = []
    while len(found) < 2 and streams[0].name == "s":
        try:
            query = bind_query(parse_query(tabled(rng, (table,))), finder((*streams, table)))
        except HeadgateError:
            continue
        found.append(Running(f"d{len(found)}", query, Level("S"), lateness, Mode.EXACT, f"out.d{len(found)}"))
    return found


def _queries(rng: Random, streams: tuple[Stream, ...], lateness: Mapping[str, int]) -> list[Running]:
    found: list[Running] = []
    limits = Random(f"limits {rng.getstate()[1][:3]}")
    known = list(streams)
    while len(found) < 4:
        features = Features(blocks=2, sources=2, spelling=False, roles=())
        if streams[0].name == "s" and len(known) == len(streams):
            text = rng.choice((random_plans.plain_query, dealt_query))(rng)
        elif rng.random() < 0.6:
            text = _over_results(rng, written(rng.choice(known).name))
        else:
            text = random_query(rng, known, features)
        name = f"q{len(found)}"
        try:
            query = bind_query(parse_query(text), finder(known))
        except HeadgateError:
            continue
        names = {reading.stream.name for block in query.blocks for reading in block.readings}
        makers = [x for x in found if x.output in names]
        stage = 1 + max((x.stage for x in makers), default=-1)
        level = max(
            [rng.choice(("U", "C", "S", "S", "S", "S", "TS")), *(x.level.name for x in makers)], key=LEVELS.index
        )
        mode = Mode.CUMULATIVE if not stage and rng.random() < 0.15 else Mode.EXACT
        own = {x: lateness.get(x, 0) for x in names}
        state, results = (limits.choice((None, None, 2, 4, 8)) for _ in range(2))
        found.append(Running(name, query, Level(level), own, mode, f"out.{name}", stage, False, state, results))
        if len(found) >= 2:
            known = [*streams, *(Stream(x.output, x.query.columns) for x in found if x.stage < 2)]
    if not any(x.mode == Mode.EXACT for x in found):
        found[0] = replace(found[0], mode=Mode.EXACT)
    return found


def _over_results(rng: Random, stream: str) -> str:
    """Something that yields whatever there is, over a stream of any form."""
    window = rng.choice(("", "", "[ROWS 3]", "[RANGE 2 SECONDS]", "[UNBOUNDED]", "[RANGE 2 SECONDS SLIDE 1 SECOND]"))
    items = rng.choice(("*", "COUNT(*) AS n", "DISTINCT *", "LEVEL", "RSTREAM *", "DSTREAM *"))
    return f"SELECT {items} FROM {stream} {window}"


def _with_makers(queries: Sequence[Running], names: set[str]) -> tuple[Running, ...]:
    wanted = set(names)
    for query in reversed(queries):
        if query.name in wanted:
            wanted |= {x.name for x in queries if x.output in query.streams}
    return tuple(x for x in queries if x.name in wanted)


def _from(text: str, stream: str) -> Label:
    return replace(parse_label(text), sources=frozenset({stream}))


def _row(
    rng: Random, stream: Stream, times: list[int], lateness: Mapping[str, int], seen: Sequence[str] = LABELS
) -> Row:
    """Mostly in order, sometimes late."""
    time = max(0, times[-1] + rng.choice((0, 0, 500, 500, 1000, 1000, -500, -lateness[stream.name])))
    times.append(max(times[-1], time))
    return Row(stream.name, time, rng.choice(seen or LABELS), _values(rng, stream))


def _values(rng: Random, stream: Stream) -> dict[str, Value]:
    return {name: _value(rng, type_) for name, type_ in stream.columns if name not in (AT, POLICY)}


def _value(rng: Random, type_: Type) -> Value:
    if type_ in (Type.INT, Type.BIGINT, Type.DOUBLE, Type.STRING) and rng.random() < 0.85:
        number = rng.randrange(5)
        return "ab"[number % 2] if type_ == Type.STRING else number * 0.75 if type_ == Type.DOUBLE else number
    return random_value(rng, type_)


class Visible:
    """What the observer may see under any of the rights that it ever holds."""

    def __init__(self, world: World) -> None:
        self._world = world
        streams = (*world.streams, world.table)
        self._labels = {(stream.name, name): label for stream in streams for name, label in stream.labels}

    def row(self, stream: str, label: str) -> bool:
        return self._permitted(_from(label, stream))

    def column(self, stream: str, name: str) -> bool:
        label = self._labels.get((stream, name))
        return label is None or self._permitted(label)

    def _permitted(self, label: Label) -> bool:
        return any(RULES.permits(label, x, aggregated=y) for x in self._world.clearances for y in (False, True))


def _only_visible(step: Step, visible: Visible) -> Step:
    if not isinstance(step, Batch):
        return step
    return Batch(step.stream, tuple(x for x in step.rows if x.label is not None and visible.row(x.stream, x.label)))


# What differs ---------------------------------------------------------------------------------------------------------


class Noise:
    """What the observer may not see, for one run."""

    def __init__(self, rng: Random, world: World) -> None:
        self._rng = rng
        self._streams = {stream.name: stream for stream in world.streams}
        self._table = world.table
        self._visible = Visible(world)
        self._much = rng.choice((0.0, 0.3, 1.0, 3.0))
        self.rows = 0

    def steps(self, steps: Sequence[Step]) -> Iterator[Step]:
        for step in steps:
            if self._rng.random() < 0.15 * self._much:
                stream = self._rng.choice(list(self._streams))
                yield Batch(stream, tuple(x for _ in range(3) if (x := self._hidden(stream))))
            yield self._noisy(step) if isinstance(step, Batch) else step

    def content(self, rows: tuple[Row, ...]) -> tuple[Row, ...]:
        """What the table holds in this run."""
        rng, found = Random(repr(self._rng.getstate())), list[Row]()
        hidden = [x for x in LABELS if not self._visible.row(self._table.name, x)]
        for row in (*rows, None):
            while rng.random() < self._much / (1 + self._much):
                label = rng.choice([*hidden, None, "doctor &", "TRUE AT NOWHERE"])
                found.append(Row(self._table.name, None, label, _values(rng, self._table)))
                self.rows += 1
            if row is not None:
                other = _values(rng, self._table)
                seen = {k: v for k, v in row.values.items() if self._visible.column(row.stream, k)}
                found.append(replace(row, values=other | seen))
        return tuple(found)

    def _noisy(self, batch: Batch) -> Batch:
        rows: list[Row] = []
        for row in (*batch.rows, None):
            while self._rng.random() < self._much / (1 + self._much):
                rows += [x for x in [self._hidden(batch.stream)] if x]
            if row is not None:
                hidden = {x for x in row.values if not self._visible.column(batch.stream, x)}
                other = _values(self._rng, self._streams[batch.stream])
                rows.append(replace(row, values={k: other[k] if k in hidden else v for k, v in row.values.items()}))
        return Batch(batch.stream, tuple(rows))

    def _hidden(self, stream: str) -> Row | None:
        rng, self.rows = self._rng, self.rows + 1
        values = _values(rng, self._streams[stream])
        if rng.random() < 0.2:  # no tuple at all
            label = rng.choice(LABELS)
            bad = (
                Row(stream, 0, label, values, spoilt=rng.choice(("{", "\x00", "x" * 500))),
                Row(stream, None, label, values),
                Row(stream, SKEW + rng.choice((1, 10**12)), label, values),
                Row(
                    stream, 0, rng.choice((None, "doctor &", "TRUE AT NOWHERE", "no such thing (", "x" * 9999)), values
                ),
            )
            return rng.choice(bad)
        labels = [x for x in LABELS if not self._visible.row(stream, x)]
        far = rng.choice((SKEW, SKEW - 1, 1_000_000, -(10**12), -1))
        time = far if rng.random() < 0.3 else rng.randrange(20) * 500
        return Row(stream, time, rng.choice(labels), values) if labels else None


# What can be seen -----------------------------------------------------------------------------------------------------


class Gate:
    def __init__(self) -> None:
        self.now = Demand()

    def demand(self) -> Demand:
        return self.now

    @contextmanager
    def open(self) -> Iterator[Demand]:
        yield self.now


class Places:
    def __init__(self, world: World) -> None:
        self._columns = {x.name: tuple(name for name, _ in x.query.columns) for x in world.queries}

    def of(self, subscriber: str, query: str) -> Address:
        return Address((subscriber, query), self._columns[query])

    def of_refused(self, stream: str) -> tuple[str, ...]:
        return ("owner", f"{stream}.refused")


@dataclass
class Seen:
    """All that reaches the observer, in order, how many results these are, and how many queries ended for it."""

    results: int = 0
    ended: int = 0
    told: list[object] = field(default_factory=list)


class Run:
    """One run of a world, watched."""

    def __init__(self, world: World, home: Path, content: tuple[Row, ...] = ()) -> None:
        self._world = world
        self._content = content
        self._home = home
        self._out = home / "out"
        self._gate = Gate()
        self._clock = ManualClock(BEGIN.timestamp())
        self._columns = {stream.name: stream.columns for stream in world.streams}
        self._numbers: dict[str, int] = {}
        self._sizes: dict[str, int] = {}
        self.seen = Seen()
        self._begin()

    def _begin(self) -> None:
        self._mailbox = Mailbox(most=12)
        sinks: list[Sink] = [self._mailbox, FileSink(self._out, Places(self._world))]
        home, read = self._home / "engine", self._read_table
        self._pipeline = Pipeline(home, self._gate, self._make, sinks, self._clock, read_table=read)

    def _read_table(self, entrance: Entrance) -> pa.Table:
        return _table(entrance.columns, self._content)

    def _make(self, running: Sequence[Running], program: Program, schema: pa.Schema) -> Carrier:
        values = plainly if self._world.quick else duck.evaluate
        if self._world.cells:
            return DealtCarrier(program, dealt(running), self._world.cells, values)
        return LocalCarrier(program, schema, values)

    def all(self, steps: Iterable[Step]) -> Seen:
        try:
            for step in steps:
                self._step(step)
                self._look()
            self._pipeline.end()
            self._fetch()
        except Exception as error:
            raise AssertionError(f"the pipeline broke for everyone: {error!r}") from error
        finally:
            self._pipeline.close()
        self.seen.told.append({x.name: x.read_bytes() for x in sorted((self._out / OBSERVER).glob("*"))})
        self._count()
        return self.seen

    def _step(self, step: Step) -> None:
        match step:
            case Wanted(demand):
                self._gate.now = demand
            case Fetch():
                self._fetch()
            case Restart():
                self._count()
                self._pipeline.close()
                self._begin()
            case Batch(stream, rows):
                number = self._numbers[stream] = self._numbers.get(stream, -1) + 1
                self._pipeline.take(stream, number, _table(self._columns[stream], rows))

    def _look(self) -> None:
        """A file that changes tells something each time."""
        sizes = {x.name: x.stat().st_size for x in sorted((self._out / OBSERVER).glob("*"))}
        if sizes != self._sizes:
            self.seen.told.append(sizes)
            self._sizes = sizes

    def _fetch(self) -> None:
        now = self._gate.now
        for query in sorted(x.query for x in now.subscribers if x.name == OBSERVER):
            parcels = self._mailbox.fetch(OBSERVER, query, now)
            self.seen.told += [(parcel.ended, deliveries([parcel])) for parcel in parcels]
            self.seen.ended += sum(bool(parcel.ended) for parcel in parcels)
        self.seen.told.append({key: n for key, n in self._mailbox.lost.items() if key[0] == OBSERVER})

    def _count(self) -> None:
        counted = {k: n for k, n in self._pipeline.counts.results.items() if k[1] == OBSERVER}
        self.seen.told.append(counted)
        self.seen.results += sum(counted.values())


def _table(columns: tuple[tuple[str, Type], ...], rows: Sequence[Row]) -> pa.Table:
    def cell(row: Row, name: str) -> Value:
        if name == AT:
            return None if row.time is None else BEGIN + dt.timedelta(milliseconds=row.time)
        return row.label if name == POLICY else row.values[name]

    known = {name: pa.array([cell(row, name) for row in rows], ARROW[type_]) for name, type_ in columns}
    return pa.table(known | {SPOILT: pa.array([row.spoilt for row in rows], pa.string())})


def pair(seed: int, home: Path) -> tuple[Seen, Seen, int]:
    """Two runs of one world, and how many rows they differ in at least."""
    world = random_world(Random(seed))
    noise = [Noise(Random(f"{seed} {number}"), world) for number in range(2)]
    one, two = (
        Run(world, home / f"{seed}-{n}", x.content(world.content)).all(x.steps(world.steps))
        for n, x in enumerate(noise)
    )
    return one, two, sum(x.rows for x in noise)
