"""Steps written by hand for a whole pipeline over one stream, and what each subscriber received."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from pathlib import Path

from headgate.cql.queries import parse_query
from headgate.labels import Clearance, Level, LevelOrder, Rules
from headgate.model.query import ContinuousQuery
from headgate.model.snapshot import CatalogSnapshot, Subscriber
from headgate.model.stream import StreamDescriptor
from headgate.plan.expressions import Type, Value
from headgate.plan.queries import Stream, bind_query
from headgate.testing.queries import finder
from worlds.pipeline_replay import Replay
from worlds.pipeline_worlds import Step, World

RULES = Rules(LevelOrder.total("U", "C", "S", "TS"))


S = Stream("s", (("n", Type.INT), ("at", Type.TIMESTAMP), ("p", Type.STRING)))


DESCRIPTORS = {"s": StreamDescriptor("s", S.columns, "at", {"LABEL": "p"})}


LATER = 1_000_000.0


"""Where the clock stands: ahead of all that comes."""


Found = list[tuple[int, tuple[Value, ...], str]]


def running(name: str, text: str, *streams: Stream) -> ContinuousQuery:
    query = bind_query(parse_query(text), finder(streams or (S,)))
    return ContinuousQuery(name, query, Level("U"), output=f"o_{name}", stage=int(any(x.name != "s" for x in streams)))


def who(*roles: str, sources: Sequence[str] = ("s", "o_q")) -> Clearance:
    return Clearance(frozenset(roles), Level("U"), frozenset(sources))


def snapshot(
    queries: Sequence[ContinuousQuery], clearances: Mapping[str, Clearance | None], rules: Rules = RULES
) -> CatalogSnapshot:
    subscribers = [Subscriber(name, query.name, x) for query in queries for name, x in clearances.items()]
    return CatalogSnapshot(rules, DESCRIPTORS, tuple(queries), tuple(subscribers))


class Story:
    """Steps one by one, all over the stream `s`."""

    def __init__(self, home: Path, first: CatalogSnapshot) -> None:
        at_first = Step("batch", first, first)
        self.replay = Replay(World(1, RULES, (S,), DESCRIPTORS, [at_first]), home)

    def batch(
        self, now: CatalogSnapshot, *tuples: tuple[int, str], during: CatalogSnapshot | None = None
    ) -> dict[str, Found]:
        """Tuples are numbers, which are also their seconds, with labels; what everyone received."""
        moments = [dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(seconds=n) for n, _ in tuples]
        rows: tuple[Mapping[str, Value], ...] = tuple(
            {"n": n, "at": at, "p": label} for (n, label), at in zip(tuples, moments, strict=True)
        )
        return self._step(Step("batch", now, during or now, "s", rows, now=LATER))

    def restart(self, now: CatalogSnapshot) -> dict[str, Found]:
        return self._step(Step("restart", now, now))

    def _step(self, step: Step) -> dict[str, Found]:
        found: dict[str, Found] = {}
        for (name, _), results in self.replay.step(step).results.items():
            found.setdefault(name, []).extend((x.time // 1000, x.values, str(x.label)) for x in results)
        return found
