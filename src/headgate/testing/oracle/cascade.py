"""What subscribers receive of queries that read the results of other queries (SPEC.md, 4.3).

A query reads what its own subscriber would receive of the queries before it. Their results arrive one moment after the
other: with the tuple that made them final, or passed through, all stages at once. The watermark of an output is that of
the view that makes it, and not guessed from the times of results.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from headgate.labels import LEAST, Label, Level, Rules
from headgate.plan.queries import Query
from headgate.testing.oracle.arrival import exact
from headgate.testing.oracle.rights import Subscribers
from headgate.testing.oracle.tuples import Arrival, Change, ClockEvent, Event, OracleResult, Tuple


@dataclass(frozen=True)
class CascadedQuery:
    """A query of a cascade, and the stream that its results make."""

    query: Query
    output: str
    level: Level = LEAST


@dataclass(frozen=True)
class Output:
    """What one subscriber receives of a query, and the watermark of that after each event; `ended` is the number of the
    event at which the view ended that made it."""

    name: str
    columns: tuple[str, ...]
    results: Sequence[OracleResult]
    watermarks: Sequence[float | None]
    ended: int | None = None

    @property
    def least(self) -> Label:
        """The label that all its tuples have at least."""
        return Label(sources=frozenset({self.name}))

    def tuples(self, after: int, rules: Rules) -> Iterable[Tuple]:
        """The results of one event as tuples of the output, which is one of their sources."""
        for x in self.results:
            if x.after == after:
                values = dict(zip(self.columns, x.values, strict=True))
                yield Tuple(self.name, x.time, values, rules.combine(x.label, self.least))


@dataclass(frozen=True)
class CascadeSetting:
    """What holds for all queries of a cascade; `lateness` and `delay` are by stream, in milliseconds; `declared` is by
    stream the label that all its tuples have at least."""

    rules: Rules = field(default_factory=Rules)
    lateness: Mapping[str, int] = field(default_factory=dict)
    delay: Mapping[str, int] = field(default_factory=dict)
    declared: Mapping[str, Label] = field(default_factory=dict)
    tables: Sequence[Tuple] = ()


def cascade(
    links: Sequence[CascadedQuery],
    events: Sequence[Event],
    subscribers: Subscribers,
    setting: CascadeSetting | None = None,
) -> dict[str, dict[str, list[OracleResult]]]:
    """What each subscriber receives of each query, by output and subscriber. A query comes after those that it
    reads. All are exact."""
    found: dict[str, dict[str, list[OracleResult]]] = {link.output: {} for link in links}
    for name in subscribers:
        made: list[Output] = []
        for link in links:
            made.append(_output(link, made, events, {name: subscribers[name]}, setting or CascadeSetting()))
            found[link.output][name] = list(made[-1].results)
    return found


def _output(
    link: CascadedQuery,
    made: Sequence[Output],
    events: Sequence[Event],
    subscribers: Subscribers,
    setting: CascadeSetting,
) -> Output:
    """What one subscriber receives of one query, given what it receives of the queries before it. The end is one more
    moment: what it made final in these arrives, and then everything is final here."""
    (name,) = subscribers
    streams = {reading.stream.name for block in link.query.blocks for reading in block.readings}
    read = [x for x in made if x.name in streams]
    ended = min((x.ended for x in read if x.ended is not None), default=None)
    arriving = [joined(event, number, read, setting) for number, event in enumerate(events)]
    at_the_end = tuple(y for x in read for y in x.tuples(len(events), setting.rules))
    arriving.append(Arrival(at_the_end, dict.fromkeys(streams, math.inf)))
    ends, watermarks = dict[str, int](), dict[str, list[float | None]]()
    results = exact(
        link.query,
        arriving if ended is None else arriving[: ended + 1],
        subscribers,
        tables=setting.tables,
        rules=setting.rules,
        lateness=setting.lateness,
        level=link.level,
        outputs={x.name for x in read},
        delay=setting.delay,
        declared={**setting.declared, **{x.name: x.least for x in read}},
        ends=ends,
        watermarks=watermarks,
    )[name]
    last = len(events) if ended is None else ended
    results = [replace(x, after=min(x.after, len(events))) for x in results if x.after <= last or ended is None]
    columns = tuple(column for column, _ in link.query.columns)
    return Output(link.output, columns, results, watermarks.get(name, []), ends.get(name, ended))


def joined(event: Event, number: int, read: Sequence[Output], setting: CascadeSetting) -> Event:
    """An event as a query sees it that reads outputs: with what the event made of them."""
    match event:
        case Tuple():
            own = Arrival((event,))
        case ClockEvent():
            own = event.arrival(setting.delay)
        case Change():
            own = Arrival()
        case _:
            return event
    tuples = (y for x in read for y in x.tuples(number, setting.rules))
    watermarks = {x.name: x.watermarks[number] for x in read if number < len(x.watermarks)}
    arrival = Arrival((*own.tuples, *tuples), {**own.watermarks, **watermarks})
    return replace(event, arrival=arrival) if isinstance(event, Change) else arrival
