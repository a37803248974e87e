"""What the oracle's examples are about: three streams of a ward, and short ways to write tuples and results."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from headgate.cql.names import Target
from headgate.cql.queries import parse_query
from headgate.labels import Clearance, Label, Level, LevelOrder, parse_label, parse_level
from headgate.plan.expressions import Type, Value
from headgate.plan.queries import Query, Stream, bind_query
from headgate.testing.oracle import OracleResult, Tuple

SECOND = 1000
ORDER = LevelOrder.total("U", "C", "S")

STREAMS = {
    "A": Stream("A", (("k", Type.INT), ("v", Type.INT), ("s", Type.STRING))),
    "B": Stream("B", (("k", Type.INT), ("w", Type.INT))),
    "C": Stream("C", (("k", Type.INT), ("x", Type.DOUBLE))),
}


def bound(text: str, labels: Mapping[str, Mapping[str, str]] | None = None) -> Query:
    """A query over A, B and C, some of whose columns may carry labels."""

    def find(target: Target) -> Stream:
        stream = STREAMS[target.name]
        found = tuple((name, parse_label(text, ORDER)) for name, text in (labels or {}).get(target.name, {}).items())
        return Stream(stream.name, stream.columns, found)

    return bind_query(parse_query(text), find)


def a(time: int, k: int | None = None, v: int | None = None, label: str = "TRUE", s: str | None = None) -> Tuple:
    return Tuple("A", time, {"k": k, "v": v, "s": s}, parse_label(label, ORDER))


def b(time: int, k: int | None = None, w: int | None = None, label: str = "TRUE") -> Tuple:
    return Tuple("B", time, {"k": k, "w": w}, parse_label(label, ORDER))


def c(time: int, k: int | None = None, x: float | None = None, label: str = "TRUE") -> Tuple:
    return Tuple("C", time, {"k": k, "x": x}, parse_label(label, ORDER))


def who(*roles: str, level: str = "U", sources: Iterable[str] = (), aggregates: Iterable[str] = ()) -> Clearance:
    return Clearance(frozenset(roles), level_of(level), frozenset(sources), frozenset(aggregates))


def level_of(text: str) -> Level:
    return parse_level(text, ORDER)


def label_of(text: str) -> Label:
    return parse_label(text, ORDER)


def shown(results: Iterable[OracleResult]) -> list[tuple[int, tuple[Value, ...]]]:
    """Times and values, where labels are not the point."""
    return [(result.time, result.values) for result in results]


def labelled(results: Iterable[OracleResult]) -> list[tuple[int, tuple[Value, ...], str]]:
    return [(result.time, result.values, str(result.label)) for result in results]
