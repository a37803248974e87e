"""Random queries that can be partitioned, and similar ones that cannot, over streams with few values."""

from __future__ import annotations

from random import Random

from plan import test_meaning as random_plans

from headgate.cql.queries import parse_query
from headgate.labels import parse_label
from headgate.plan.expressions import Type, Value
from headgate.plan.queries import Query, Stream, bind_query
from headgate.testing.oracle import Tuple
from headgate.testing.queries import finder

STREAMS = (
    Stream("s", (("a", Type.INT), ("b", Type.INT), ("x", Type.DOUBLE), ("w", Type.STRING))),
    Stream("t", (("a", Type.BIGINT), ("b", Type.INT), ("w", Type.STRING))),
)
LABELLED = (
    Stream("s", STREAMS[0].columns, (("b", parse_label("doctor")), ("x", parse_label("nurse")))),
    Stream("t", STREAMS[1].columns, (("b", parse_label("doctor | nurse")),)),
)
_VALUES: dict[Type, tuple[Value, ...]] = {
    Type.INT: (0, 1, 2, 3, 4, None),
    Type.BIGINT: (0, 1, 2, 3, 4, None),
    Type.DOUBLE: (0.0, -0.0, 1.5, -2.25, None),
    Type.STRING: ("a", "b", "C", "é", None),
}


def bound(text: str, streams: tuple[Stream, ...] = STREAMS) -> Query:
    return bind_query(parse_query(text), finder(streams))


def partitioned_tuples(rng: Random, least: int = 8, most: int = 24) -> list[Tuple]:
    """Few different times, mostly in order."""
    tuples = [
        Tuple(
            stream.name,
            rng.randrange(9) * 1000,
            {name: rng.choice(_VALUES[type_]) for name, type_ in stream.columns},
            rng.choice(random_plans.LABELS),
        )
        for stream in rng.choices(STREAMS, (3, 2), k=rng.randint(least, most))
    ]
    return tuples if rng.random() < 0.2 else sorted(tuples, key=lambda x: x.time + rng.choice((0, 0, 1500)))


def partitioned_query(rng: Random) -> str:
    if rng.random() < 0.1:
        return " UNION ALL ".join(_Author(rng).block(union=True) for _ in range(2))
    return _Author(rng).block()


class _Author:
    """One block. A block slides or not; ROWS is rare, since it spoils everything else."""

    def __init__(self, rng: Random) -> None:
        self.rng = rng
        self.slides = rng.random() < 0.25
        self.steady = rng.random() < 0.4

    def window(self, alias: str, *, slides: bool) -> str:
        kinds = ["UNBOUNDED", *(f"PARTITIONED BY {by} ROWS {self.rng.randint(1, 2)}" for by in ("a", "b", "a, w"))]
        if slides:
            kinds = [f"RANGE {self.rng.choice((1, 2, 3))} SECONDS SLIDE 1 SECOND"]
        elif not self.steady:
            kinds += ["RANGE 1 SECOND", "RANGE 3 SECONDS", "RANGE 3 SECONDS", "NOW"]
            kinds += [f"ROWS {self.rng.randint(1, 3)}"] * (self.rng.random() < 0.15)
        return f"[{self.rng.choice(kinds)}] {alias}"

    def block(self, *, union: bool = False) -> str:
        joins = self.rng.random() < 0.4
        second = "t" if self.rng.random() < 0.75 else "s"
        source = f"s {self.window('v', slides=self.slides)}"
        after = [f"v.{c}" for c in ("a > 0", "b < 4", "w <> 'b'", "LEVEL <> 'C'") if self.rng.random() < 0.08]
        if joins:
            source += f", {second} {self.window('u', slides=self.slides and self.rng.random() < 0.5)}"
            equal = self.rng.sample(("v.a = u.a", "v.b = u.b", "v.w = u.w", "v.a = u.b", "v.LEVEL = u.LEVEL"), 2)
            after += equal[: self.rng.choice((1, 1, 2, 0) if second == "t" else (1, 2))]
        columns = ["v.a", "v.b", "v.x", "v.w", "v.LEVEL", *(["u.a", "u.b", "u.w"] if joins else [])]
        before = self.rng.choice(("", "", " WHERE v.a < 4", " WHERE v.b <> 2", " WHERE v.x IS NULL OR v.x < 1.0"))
        where = f" WHERE {' AND '.join(after)}" if after else ""
        if self.rng.random() < 0.5:
            return self.aggregated(columns, f"{before} FROM {source}{where}", union)
        operator = self.rng.choice(("", "ISTREAM ", "DSTREAM ", "RSTREAM ")) + self.rng.choice(("", "", "DISTINCT "))
        picked = self.rng.sample(columns, self.rng.randint(1, 3))
        items = ", ".join(f"{name} AS r{i}" for i, name in enumerate(picked))
        return f"SELECT {operator}{'COALESCE(v.a, 0) + 0 AS r0' if union else items}{before} FROM {source}{where}"

    def aggregated(self, columns: list[str], rest: str, union: bool) -> str:
        call = self.rng.choice(("COUNT(*)", "SUM(v.b)", "MIN(v.a) + 0", "COUNT(DISTINCT v.w)"))
        grouped = self.rng.sample(columns, self.rng.choice((0, 1, 1, 1, 2)))
        groups = f" GROUP BY {', '.join(grouped)}" if grouped else ""
        having = self.rng.choice(("", "", "", " HAVING COUNT(*) > 1"))
        items = "" if union else "".join(f", {name} AS g{i}" for i, name in enumerate(grouped))
        return f"SELECT {self.rng.choice(('', '', 'RSTREAM '))}{call} AS r0{items}{rest}{groups}{having}"
