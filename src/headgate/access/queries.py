"""From the catalog's objects to the inputs of plans: streams as queries see them, queries as they were meant.

A stored query is bound again from its own text, its sources to the objects they were when it was created: an object
that has the same name today changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from headgate.access import rows as r
from headgate.access.authorizer import is_table, shown, source_name
from headgate.cql.names import Target
from headgate.cql.queries import MAX_ITEMS, parse_query
from headgate.errors import Conflict
from headgate.labels import parse_label
from headgate.plan.expressions import Type
from headgate.plan.queries import Query, Stream, bind_query

MOST_QUERIES = 100
"""The most queries that run for one subscriber of a query: the query itself and its producer queries, each counted once
for every path on which it is read."""

Get = Callable[[int], r.Object | None]


def as_stream(thing: r.Object, width: int | None = None) -> Stream:
    """A stream as queries read it; `width`: its first columns only, those it had when a query was written."""
    columns = thing.stream.columns[:width]
    return Stream(
        source_name(thing),
        tuple((column.name, Type(column.type)) for column in columns),
        tuple((column.name, parse_label(column.label)) for column in columns if column.label),
        is_table(thing),
    )


def stored_query(query: r.Object, get: Get) -> Query | None:
    """The meaning of a query of the catalog; None if it was declared as boxes only, or lost a source."""
    definition = query.query
    if not definition.text or definition.broken:
        return None
    found = [get(number) for number in definition.sources]
    sources = [thing for thing in found if thing is not None]
    if len(sources) < len(found):
        return None
    widths = definition.widths or (None,) * len(sources)
    streams = iter([as_stream(thing, width) for thing, width in zip(sources, widths, strict=True)])

    def find(_: Target) -> Stream:
        return next(streams)

    return bind_query(parse_query(definition.text), find)


def whole_stream(thing: r.Object) -> Query:
    """The query that runs for a subscriber of a stream that is no query's output: its tuples as they are."""
    seen = as_stream(thing)
    if len(seen.columns) > MAX_ITEMS:
        raise Conflict(
            f"cannot subscribe to {shown(thing)}: it has {len(seen.columns)} columns, results have at most {MAX_ITEMS}",
            hint="create a query that selects some of them, and subscribe to its output",
        )
    return bind_query(parse_query("SELECT * FROM s"), lambda _: seen)


def check_depth(inputs: Sequence[int], get: Get) -> int:
    """The largest number of queries between a reader of these streams and their sources. A stream that is read on two
    paths is computed twice for each subscriber: a few queries that read two others each would exceed any machine."""
    found: dict[int, tuple[int, int]] = {}
    waiting = list(inputs)
    while waiting:
        thing = get(waiting[-1])
        made_of = thing.stream.made_of if thing else None
        missing = [number for number in made_of or () if number not in found]
        if missing:
            waiting += missing
            continue
        below = [found[number] for number in made_of or ()]
        deep, runs = max((x for x, _ in below), default=0), sum(x for _, x in below)
        found[waiting.pop()] = (0, 0) if made_of is None else (1 + deep, 1 + runs)
    runs = 1 + sum(found[number][1] for number in set(inputs))
    if runs > MOST_QUERIES:
        raise Conflict(
            f"more than {MOST_QUERIES} queries would run for each reader",
            hint="read the results of fewer queries: each counts once for every path on which it is read",
        )
    return max((found[number][0] for number in inputs), default=0)
