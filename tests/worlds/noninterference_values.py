"""What a pair of runs is made of: tuples and their labels, steps, a world, and what its observer may see of it."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random

from plan import test_meaning as random_plans

from headgate.labels import Clearance, Label, parse_label
from headgate.model.query import ContinuousQuery
from headgate.model.snapshot import CatalogSnapshot
from headgate.plan.expressions import Type, Value
from headgate.plan.queries import Stream
from headgate.testing.queries import random_value

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
    malformed: str | None = None


@dataclass(frozen=True)
class Batch:
    """`clock` is where the clock stands when it comes, in milliseconds after BEGIN: less than a tenth of SKEW."""

    stream: str
    rows: tuple[Row, ...]
    clock: int = 0


@dataclass(frozen=True)
class Look:
    """The clock is looked at: everything has been read of these streams that came until so many milliseconds after
    BEGIN."""

    settled: Mapping[str, int]


@dataclass(frozen=True)
class Wanted:
    """What is wanted from here on."""

    snapshot: CatalogSnapshot


class Fetch:
    """The observer looks into its mailbox."""


class Restart:
    """The pipeline goes on from what was written down."""


Step = Batch | Look | Wanted | Fetch | Restart


@dataclass
class World:
    streams: tuple[Stream, ...]
    steps: list[Step]
    clearances: list[Clearance]
    """All that the observer holds, one after the other."""
    partitions: int
    quick: bool
    queries: list[ContinuousQuery] = field(default_factory=list)
    table: Stream = TABLE
    content: tuple[Row, ...] = ()
    parquet: bool = False
    """Results go to Parquet files, not to lines."""


def label_from(text: str, stream: str) -> Label:
    return replace(parse_label(text), sources=frozenset({stream}))


def random_row(
    rng: Random, stream: Stream, times: list[int], lateness: Mapping[str, int], seen: Sequence[str] = LABELS
) -> Row:
    """Mostly in order, sometimes late."""
    time = max(0, times[-1] + rng.choice((0, 0, 500, 500, 1000, 1000, -500, -lateness[stream.name])))
    times.append(max(times[-1], time))
    return Row(stream.name, time, rng.choice(seen or LABELS), random_values(rng, stream))


def random_values(rng: Random, stream: Stream) -> dict[str, Value]:
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
        return self._permitted(label_from(label, stream))

    def column(self, stream: str, name: str) -> bool:
        label = self._labels.get((stream, name))
        return label is None or self._permitted(label)

    def _permitted(self, label: Label) -> bool:
        return any(RULES.permits(label, x, aggregated=y) for x in self._world.clearances for y in (False, True))
