"""From the catalog's objects to what plans are made of: streams as queries see them, queries as they were meant.

A stored query is bound again from its own text, its sources by the objects they were when it was created: whatever is
called the same today changes nothing.
"""

from __future__ import annotations

import json
from collections.abc import Callable

from headgate.access import rows as r
from headgate.access.authorizer import is_table, source_name
from headgate.cql.queries import parse_query
from headgate.cql.statements import Target
from headgate.labels import parse_label
from headgate.plan.expressions import Type
from headgate.plan.queries import Query, Stream, bind_query


def as_stream(thing: r.Object) -> Stream:
    columns = json.loads(thing.definition)["columns"]
    return Stream(
        source_name(thing),
        tuple((column["name"], Type(column["type"])) for column in columns),
        tuple((column["name"], parse_label(column["label"])) for column in columns if "label" in column),
        is_table(thing),
    )


def stored_query(query: r.Object, get: Callable[[int], r.Object | None]) -> Query | None:
    """The meaning of a query of the catalog; None if it was declared as boxes only, or lost a source."""
    definition = json.loads(query.definition)
    if "text" not in definition or definition.get("broken"):
        return None
    sources = [get(number) for number in definition["sources"]]
    streams = iter([as_stream(thing) for thing in sources if thing is not None])
    if None in sources:
        return None

    def find(_: Target) -> Stream:
        return next(streams)

    return bind_query(parse_query(definition["text"]), find)
