"""What subscribers receive (SPEC.md, 4.3): tuples and changes of rights arrive in one order, and instants become
final."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from headgate.labels import LEAST, Label, Level, Rules
from headgate.plan.queries import Query
from headgate.testing.oracle.rights import Rights, Setting, Subscribers
from headgate.testing.oracle.tuples import Arrival, Change, ClockEvent, Event, Limit, OracleResult, Tuple
from headgate.testing.oracle.views import OracleView


@dataclass(frozen=True)
class Given:
    """What else is to be told of a replay."""

    ends: dict[str, int] | None
    watermarks: dict[str, list[float | None]] | None

    def note(self, view: OracleView) -> None:
        """With the event at which a view ends its watermark moves no more."""
        if self.watermarks is not None:
            for name in view.rights.subscribers:
                self.watermarks.setdefault(name, []).append(view.watermark(name))


def exact(
    query: Query,
    events: Sequence[Event],
    subscribers: Subscribers,
    *,
    tables: Sequence[Tuple] = (),
    rules: Rules | None = None,
    lateness: Mapping[str, int] | None = None,
    level: Level = LEAST,
    outputs: Collection[str] = (),
    delay: Mapping[str, int] | None = None,
    declared: Mapping[str, Label] | None = None,
    ends: dict[str, int] | None = None,
    watermarks: dict[str, list[float | None]] | None = None,
) -> dict[str, list[OracleResult]]:
    """What each subscriber receives, each from its own view. `lateness` and `delay` are by stream, in milliseconds;
    `tables` are the tuples of all tables; `outputs` are the streams that queries make; `declared` is by stream the
    label that all its tuples have at least. `ends` receives, for each subscriber whose view exceeded a limit, the
    number of the event at which the view ended; `watermarks` receives that of the query's output, for each subscriber,
    after each event."""
    given = Given(ends, watermarks)
    setting = Setting(
        query,
        tuple(tables),
        rules or Rules(),
        lateness or {},
        level,
        masking=True,
        outputs=frozenset(outputs),
        delay=delay or {},
        declared=declared or {},
    )
    return {name: _replay(setting, events, {name: subscribers[name]}, given)[name] for name in subscribers}


def cumulative(
    query: Query,
    events: Sequence[Event],
    subscribers: Subscribers,
    *,
    tables: Sequence[Tuple] = (),
    rules: Rules | None = None,
    lateness: Mapping[str, int] | None = None,
    level: Level = LEAST,
    outputs: Collection[str] = (),
    delay: Mapping[str, int] | None = None,
    declared: Mapping[str, Label] | None = None,
    ends: dict[str, int] | None = None,
    watermarks: dict[str, list[float | None]] | None = None,
) -> dict[str, list[OracleResult]]:
    """What each subscriber of one shared plan receives."""
    setting = Setting(
        query,
        tuple(tables),
        rules or Rules(),
        lateness or {},
        level,
        masking=False,
        outputs=frozenset(outputs),
        delay=delay or {},
        declared=declared or {},
    )
    return _replay(setting, events, subscribers, Given(ends, watermarks))


def _replay(
    setting: Setting, events: Sequence[Event], subscribers: Subscribers, given: Given
) -> dict[str, list[OracleResult]]:
    received: dict[str, list[OracleResult]] = {name: [] for name in subscribers}
    view = OracleView(setting, Rights(setting, subscribers))

    def deliver(results: list[OracleResult]) -> None:
        for result in results:
            for name in view.rights.permit(result.label, setting.query.blocks[result.block]):
                received[name].append(result)

    for number, event in enumerate(events):
        match event:
            case Change() if event.subscriber in subscribers:
                view.change({**view.rights.subscribers, event.subscriber: event.clearance})
            case Limit():
                view.limit = event
        arriving = _arriving(event, setting)
        if arriving is not None:
            deliver(view.arrive(arriving, number))
        if view.ended:
            break
        given.note(view)
    else:
        number = len(events)
        deliver(view.advance(math.inf, number))
    if view.ended and given.ends is not None:
        given.ends.update(dict.fromkeys(subscribers, number))
    return received


def _arriving(event: Event, setting: Setting) -> Arrival | None:
    """What arrives with an event, if it is a moment."""
    match event:
        case Tuple():
            return Arrival((event,))
        case ClockEvent():
            return event.arrival(setting.delay)
        case Change():
            return event.arrival
        case Limit():
            return None
        case Arrival():
            return event
