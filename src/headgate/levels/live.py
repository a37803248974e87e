"""Queries with deadlines in a processor: what it tells the server about them, and how the server checks that.

Each processor governs the queries of its own level, by the constants of the whole order. It begins nothing by itself:
its lane asks it to do the work whose time has come, so that results come when the lane waits for them.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import isfinite
from typing import TYPE_CHECKING, Any

from headgate.labels import Level
from headgate.levels.checked import NotAsAgreed, whole_number
from headgate.levels.wire import Message
from headgate.model.snapshot import CatalogSnapshot
from headgate.plan.analysis import DeadlineCounts, LevelCounts
from headgate.recovery.deadline_samples import COUNTS, PERCENTAGES, periods_since

if TYPE_CHECKING:
    from headgate.recovery.deadlines import Deadlines

_SHORTEST = 4.0
"""Seconds: control periods have five. More of them than can have been would push those of others out of the file; they
are left out, as they are for a while when the clock is set back."""
LEAST_PAUSE = 0.002
"""Seconds between two pieces of work at least: a processor must not keep the server busy by asking for more."""


class DeadlineReporter:
    """In the processor: what the server is told of its queries with deadlines."""

    def __init__(self, deadlines: Deadlines) -> None:
        self._deadlines = deadlines
        self._periods = 0

    def facts(self, again: float | None) -> dict[str, Any]:
        """`again`: when there is work again, by the clock; None: there is no such query."""
        governor = self._deadlines.governor
        if again is None or governor is None:
            return {"again": again}
        if governor.periods < self._periods:  # the order of levels has changed: control began anew
            self._periods = 0
        levels = sorted({governor.lattice.number(live.level) for live in self._deadlines.queries.values()})
        periods = periods_since(governor, self._periods, levels)
        self._periods = governor.periods
        queries = [
            [x.query, x.version, x.admitted, x.rejected, x.timely, x.missed] for x in self._deadlines.status()[0]
        ]
        return {"again": again, "due": queries, "periods": periods}


@dataclass(frozen=True)
class DeadlineReport:
    """In the lane: what its processor says of its queries with deadlines.

    again: when there is work again, by the clock; None: there is no such query
    queries, levels: what SHOW DEADLINES and the metrics tell
    ended: when the last control period ended, by the clock
    """

    again: float | None = None
    queries: Sequence[DeadlineCounts] = ()
    levels: Sequence[LevelCounts] = ()
    ended: float = 0.0


def checked_report(
    message: Message, before: DeadlineReport, level: Level, snapshot: CatalogSnapshot
) -> tuple[DeadlineReport, list[dict[str, Any]]]:
    """What a message tells, and the control periods that have ended; `snapshot` is that of the level."""
    try:
        return _checked(message.facts, before, level, snapshot)
    except NotAsAgreed:
        raise
    except Exception as error:
        raise NotAsAgreed(type(error).__name__) from None


def _checked(
    facts: Mapping[str, Any], before: DeadlineReport, level: Level, snapshot: CatalogSnapshot
) -> tuple[DeadlineReport, list[dict[str, Any]]]:
    if facts.get("again") is None:
        return DeadlineReport(ended=before.ended), []
    again = max(_number(facts["again"]), time.time() + LEAST_PAUSE)
    if "due" not in facts:
        return replace(before, again=again), []
    queries = [x for x in (_counts(x, level, snapshot) for x in facts["due"]) if x is not None]
    periods, ended, levels = list[dict[str, Any]](), before.ended, before.levels
    for found in (_period(x, level) for x in facts["periods"]):
        if ended + _SHORTEST <= found["time"] <= time.time() + _SHORTEST:
            periods.append(found)
            ended, levels = found["time"], [LevelCounts(str(level), *(found[x][0] for x in PERCENTAGES))]
    return DeadlineReport(again, queries, levels, ended), periods


def _counts(plain: Any, level: Level, snapshot: CatalogSnapshot) -> DeadlineCounts | None:
    """None: the query is gone, or is another one."""
    name, version, *numbers = plain
    query = snapshot.running.get(name)
    if query is None or query.deadline is None or version not in map(str, query.deadline.versions):
        return None
    if len(numbers) != 4:
        raise NotAsAgreed("numbers that nobody asked for")
    return DeadlineCounts(name, str(level), version, *map(whole_number, numbers))


def _period(plain: Mapping[str, Any], level: Level) -> dict[str, Any]:
    """Only the level's own numbers."""
    found: dict[str, Any] = {"time": _number(plain["time"]), "levels": [str(level)]}
    found |= {name: [whole_number(plain[name][0])] for name in COUNTS}
    return found | {name: [_number(plain[name][0])] for name in PERCENTAGES}


def _number(value: object) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool) or not isfinite(value):
        raise NotAsAgreed("a number that is none")
    return float(value)
