"""The oracle's inputs, tuples and changes of rights in the order of their arrival, and its outputs: results.

Times are event times, in milliseconds since 1970. Values are Python's; a TIMESTAMP is a `datetime` in UTC, and a column
that is left out is NULL.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from headgate.labels import LEAST, PUBLIC, Clearance, Label, Level
from headgate.plan.expressions import Value
from headgate.plan.reserved import LEVEL

BEGINNING = -(1 << 62)
"""The time of all tuples of tables: before that of any stream's."""


@dataclass(frozen=True)
class Tuple:
    """One tuple arrives, when the `clock` shows so many milliseconds (None: ahead of all times). A tuple of a table is
    present from the beginning, whatever its time."""

    stream: str
    time: int
    values: Mapping[str, Value]
    label: Label = PUBLIC
    clock: int | None = None

    @property
    def reaches(self) -> int:
        """How far it moves the time of its stream: never ahead of the clock."""
        return self.time if self.clock is None else min(self.time, self.clock)


@dataclass(frozen=True)
class Arrival:
    """Tuples that arrive at one moment: one of a stream, or none, and the results that queries made at that moment, as
    tuples of their outputs. `watermarks` are those of streams, as far as they do not follow from the tuples that were
    seen: of outputs by now, and of a stream with a declared delay. None: the output is closed, because its reader may
    read nothing that it is made of."""

    tuples: tuple[Tuple, ...] = ()
    watermarks: Mapping[str, float | None] = field(default_factory=dict)


@dataclass(frozen=True)
class ClockEvent:
    """Everything that came on a stream until the clock showed so many milliseconds has arrived by now."""

    stream: str
    time: int

    def arrival(self, delay: Mapping[str, int]) -> Arrival:
        """`delay` is by stream, in milliseconds: nothing is on its way any more that is older than that."""
        return Arrival((), {self.stream: self.time - delay[self.stream]} if self.stream in delay else {})


@dataclass(frozen=True)
class Change:
    """From here on a subscriber has this clearance; None if it is no longer a subscriber. A change is a moment, with
    which the `arrival` comes of outputs; None: it is part of the next moment."""

    subscriber: str
    clearance: Clearance | None
    arrival: Arrival | None = field(default_factory=Arrival)


@dataclass(frozen=True)
class Limit:
    """From here on the roles of the query's owner allow each view so many tuples of state and so many results in a
    second; None: any number."""

    state: int | None = None
    results: int | None = None


Event = Tuple | Arrival | ClockEvent | Change | Limit


@dataclass(frozen=True)
class OracleResult:
    """A result that a subscriber receives. `block` is the number of its block; `after` is the number of the event after
    which it was delivered, or the number of all events for results of the end of the replay."""

    time: int
    values: tuple[Value, ...]
    label: Label
    block: int = 0
    after: int = field(default=0, compare=False)


class TupleKey(NamedTuple):
    """The position of a tuple in the order of all tuples, and its identity; `number` counts arrivals."""

    time: int
    stream: str
    number: int

    @classmethod
    def in_table(cls, tuple_: Tuple, number: int) -> TupleKey:
        return cls(BEGINNING, tuple_.stream, number)


@dataclass(frozen=True)
class Seen:
    """A tuple as it is read: with NULL in hidden columns, and with its level."""

    values: Mapping[str, Value]
    label: Label

    @classmethod
    def whole(cls, tuple_: Tuple) -> Seen:
        return cls({**tuple_.values, LEVEL: level_text(tuple_.label)}, tuple_.label)

    def without(self, hidden: frozenset[str]) -> Seen:
        """INVARIANT: a column that was hidden once stays hidden."""
        values = {name: None if name in hidden else value for name, value in self.values.items()}
        return Seen(values, self.label)


def level_text(label: Label) -> str:
    """The level of a tuple as text; `U`, which labels leave out, is written here."""
    return ", ".join(map(str, sorted(label.levels, key=Level.sort_key))) or str(LEAST)
