"""The streams and queries of paper 002 (Table 1) at many levels: soldiers' vital signs and positions on a battlefield.

All tuples are drawn from one seed; each has one of the levels, and the queries are spread over the levels.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa

from headgate.cql.queries import parse_query
from headgate.expressions.sql.types import ARROW
from headgate.labels import Clearance, Level, LevelOrder, Rules
from headgate.model.query import ContinuousQuery
from headgate.model.snapshot import CatalogSnapshot, Subscriber
from headgate.model.stream import StreamDescriptor
from headgate.plan.expressions import Type
from headgate.plan.queries import Stream, bind_query

STREAMS = {
    "Vitals": Stream("Vitals", (("sid", Type.INT), ("bp", Type.INT), ("pr", Type.INT))),
    "Position": Stream("Position", (("sid", Type.INT), ("lat", Type.STRING), ("lon", Type.STRING))),
}
_JOIN = 'WHERE V.sid = P.sid AND bp > {bp} AND lon = "4E" FROM Vitals [ROWS 10] V, Position [ROWS 10] P'
QUERIES = {
    "Q1": "SELECT AVG(bp) FROM Vitals [PARTITIONED BY LEVEL ROWS {rows}]",
    "Q2": 'SELECT AVG(bp) WHERE LEVEL = "L" FROM Vitals [ROWS {rows}]',
    "Q3": "SELECT AVG(bp) WHERE bp > 50 FROM Vitals [PARTITIONED BY LEVEL ROWS {rows}]",
    "Q4": f"SELECT AVG(pr) {_JOIN}",
    "Q5": f"SELECT V.sid, pr {_JOIN}",
    "Q6": "SELECT sid, bp WHERE bp > {bp} FROM Vitals",
    "Q7": 'SELECT sid, bp, pr WHERE LEVEL = "L" AND bp > {bp} FROM Vitals',
    "Q8": "SELECT sid WHERE pr > {bp} FROM Vitals",
}
_TIME, _LEVEL = "at", "level"


def level_names(count: int) -> list[str]:
    """So many levels, lowest first."""
    return ["U", "L", *(f"L{number}" for number in range(2, count))][:count]


def snapshot(levels: int, queries: int) -> CatalogSnapshot:
    """Query number n is the (n mod 8)-th of the paper, at level n mod `levels`; of those beyond eight for a level, each
    has its own constants. Each has one subscriber, of its level."""
    names = level_names(levels)
    made = [_query(number, names[number % levels], number // levels) for number in range(queries)]
    more, labels = ((_TIME, Type.TIMESTAMP), (_LEVEL, Type.STRING)), {"LEVEL": _LEVEL}
    descriptors = {x.name: StreamDescriptor(x.name, (*x.columns, *more), _TIME, labels) for x in STREAMS.values()}
    sources = frozenset(STREAMS)
    subscribers = tuple(
        Subscriber(f"s{x.name}", x.name, Clearance(frozenset(), x.level, sources), level=str(x.level)) for x in made
    )
    return CatalogSnapshot(rules(levels), descriptors, tuple(made), subscribers)


def rules(levels: int) -> Rules:
    return Rules(LevelOrder.total(*level_names(levels)))


def _query(number: int, level: str, turn: int) -> ContinuousQuery:
    text = list(QUERIES.values())[turn % len(QUERIES)].format(bp=120 + turn // 8, rows=20 + turn // 8)
    bound = bind_query(parse_query(text), lambda target: STREAMS[target.name])
    return replace(ContinuousQuery(f"{number:03}", bound, Level(level)), output="")


class Soldiers:
    """Tuples of both streams, one a millisecond each, batch after batch."""

    def __init__(self, levels: int, soldiers: int = 200) -> None:
        self._drawn, self._soldiers, self._now = np.random.default_rng(2), soldiers, 0
        self._levels = pa.array(level_names(levels))

    def batch(self, size: int) -> dict[str, pa.Table]:
        drawn, times = self._drawn, (self._now + np.arange(size)) * 1000
        self._now += size
        common = {
            "sid": pa.array(drawn.integers(0, self._soldiers, size)).cast(ARROW[Type.INT]),
            _TIME: pa.array(times).cast(pa.timestamp("us")).cast(ARROW[Type.TIMESTAMP]),
            _LEVEL: self._levels.take(pa.array(drawn.integers(0, len(self._levels), size))),
        }
        places = pa.array(["3E", "4E", "5E"])
        means = {"bp": 110, "pr": 80}
        vitals = {name: pa.array(drawn.normal(mean, 20, size).astype(np.int32)) for name, mean in means.items()}
        where = {name: places.take(pa.array(drawn.integers(0, 3, size))) for name in ("lat", "lon")}
        return {"Vitals": pa.table(common | vitals), "Position": pa.table(common | where)}
