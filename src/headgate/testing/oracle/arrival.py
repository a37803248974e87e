"""What subscribers receive (SPEC.md, 4.3): tuples and changes of rights arrive in one order, and instants become
final."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from headgate.labels import LEAST, Level, Rules
from headgate.plan.queries import Query
from headgate.testing.oracle.rights import Rights, Setting, Subscribers
from headgate.testing.oracle.tuples import Change, Event, Limit, Result, Tuple
from headgate.testing.oracle.views import View


def exact(
    query: Query,
    events: Sequence[Event],
    subscribers: Subscribers,
    *,
    tables: Sequence[Tuple] = (),
    rules: Rules | None = None,
    lateness: Mapping[str, int] | None = None,
    level: Level = LEAST,
    ends: dict[str, int] | None = None,
) -> dict[str, list[Result]]:
    """What each subscriber receives, each from its own view. `lateness` is by stream, in milliseconds; `tables` are the
    tuples of all tables; `ends` receives, for each subscriber whose view exceeded a limit, the number of the event
    at which the view ended."""
    setting = Setting(query, tuple(tables), rules or Rules(), lateness or {}, level, masking=True)
    return {name: _replay(setting, events, {name: subscribers[name]}, ends)[name] for name in subscribers}


def cumulative(
    query: Query,
    events: Sequence[Event],
    subscribers: Subscribers,
    *,
    tables: Sequence[Tuple] = (),
    rules: Rules | None = None,
    lateness: Mapping[str, int] | None = None,
    level: Level = LEAST,
    ends: dict[str, int] | None = None,
) -> dict[str, list[Result]]:
    """What each subscriber of one shared plan receives."""
    setting = Setting(query, tuple(tables), rules or Rules(), lateness or {}, level, masking=False)
    return _replay(setting, events, subscribers, ends)


def _replay(
    setting: Setting, events: Sequence[Event], subscribers: Subscribers, ends: dict[str, int] | None
) -> dict[str, list[Result]]:
    received: dict[str, list[Result]] = {name: [] for name in subscribers}
    view = View(setting, Rights(setting, subscribers))

    def deliver(results: list[Result]) -> None:
        for result in results:
            for name in view.rights.permit(result.label, setting.query.blocks[result.block]):
                received[name].append(result)

    for number, event in enumerate(events):
        match event:
            case Tuple():
                deliver(view.arrive(event, number))
            case Change() if event.subscriber in subscribers:
                view.change({**view.rights.subscribers, event.subscriber: event.clearance})
            case Limit():
                view.limit = event
        if view.ended:
            break
    else:
        number = len(events)
        deliver(view.advance(math.inf, number))
    if view.ended and ends is not None:
        ends |= dict.fromkeys(subscribers, number)
    return received
