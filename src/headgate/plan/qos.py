"""QoS versions of a query (paper 004, section 3.3): what each of them computes, as a query of its own.

A sample is no matter of the plan: it decides which tuples enter. A coarser slide and fewer columns are other queries,
whose results have the same columns."""

from __future__ import annotations

from dataclasses import replace

from headgate.cql.deadlines import Version, time_text
from headgate.errors import Conflict
from headgate.lexing import quote
from headgate.plan.expressions import Expr, Literal
from headgate.plan.queries import Query, QueryBlock, Reading


def version_of(query: Query, version: Version) -> Query:
    """What this version of a query means; raises what cannot be a version of it."""
    if version.columns is not None:
        query = _with_columns(query, version.columns)
    return query if version.slide is None else _with_slide(query, version.slide)


def _with_columns(query: Query, kept: tuple[str, ...]) -> Query:
    """Results keep their columns; those that are not kept are NULL."""
    known = [name for name, _ in query.columns]
    for name in kept:
        if name not in known:
            raise Conflict(f"cannot keep column {quote(name)}: the query has no such result")
    left_out = {place for place, name in enumerate(known) if name not in kept}
    if not left_out:
        raise Conflict("cannot lower QoS by COLUMNS: the query has no others")
    return Query(tuple(replace(block, items=_items(block, left_out)) for block in query.blocks))


def _items(block: QueryBlock, left_out: set[int]) -> tuple[tuple[str, Expr], ...]:
    return tuple(
        (name, Literal(None, expr.type) if place in left_out else expr)
        for place, (name, expr) in enumerate(block.items)
    )


def _with_slide(query: Query, slide: int) -> Query:
    found = {r.window.slide for block in query.blocks for r in block.readings if r.window and r.window.slide}
    if not found:
        raise Conflict("cannot lower QoS by SLIDE: no window of the query slides")
    for before in sorted(found):
        if slide <= before or slide % before:
            raise Conflict(f"cannot slide by {time_text(slide)}: it is no multiple of {time_text(before)}")
    return Query(
        tuple(replace(block, readings=tuple(_sliding(r, slide) for r in block.readings)) for block in query.blocks)
    )


def _sliding(reading: Reading, slide: int) -> Reading:
    if reading.window is None or not reading.window.slide:
        return reading
    return replace(reading, window=replace(reading.window, slide=slide))
