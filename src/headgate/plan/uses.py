"""List the operators that a query uses, with their parameters and positions: USE grants are checked against this
list."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from headgate.cql.names import Limit
from headgate.cql.queries import BlockSyntax, QuerySyntax
from headgate.errors import Position
from headgate.plan.expressions import AggregateCall
from headgate.plan.queries import Query, QueryBlock, WindowClause


@dataclass(frozen=True)
class Use:
    operator: str
    parameters: Mapping[str, Limit]
    position: Position


def uses(syntax: QuerySyntax, query: Query) -> Iterator[Use]:
    """All uses of operators, block by block in the order of the text; UNION comes last."""
    for written, block in zip(syntax.blocks, query.blocks, strict=True):
        yield from _block_uses(written, block)
    if len(query.blocks) > 1:
        yield Use("union", {}, syntax.blocks[1].position)


def _block_uses(written: BlockSyntax, block: QueryBlock) -> Iterator[Use]:
    yield Use("project", {}, written.position)
    for condition in (written.before, written.after, written.having):
        if condition is not None:
            yield Use("select", {}, condition.position)
    for source, reading in zip(written.sources, block.readings, strict=True):
        if reading.window is not None and not reading.stream.table:
            at = source.window.position if source.window else source.target.position
            yield Use("window", _size(reading.window), at)
        if source.window is not None and source.window.level is not None:
            yield Use("select", {}, source.window.level.position)
    if len(block.readings) > 1:
        yield Use("join", {"streams": len(block.readings)}, written.position)
    if block.aggregated:
        calls = (part for _, expr in block.items for part in expr.walk() if isinstance(part, AggregateCall))
        in_having = (part for part in block.having.walk() if isinstance(part, AggregateCall))
        functions = sorted({call.function for call in (*calls, *in_having)})
        yield Use("aggregate", {"functions": tuple(functions), "groups": len(block.groups)}, written.position)
    if block.distinct:
        yield Use("distinct", {}, written.position)


def _size(window: WindowClause) -> Mapping[str, Limit]:
    """An unbounded window has no size, so no size limit allows it."""
    match window.kind:
        case "ROWS" | "PARTITIONED":
            return {"rows": window.rows, "kinds": (window.kind,)}
        case "RANGE" | "NOW":
            return {"seconds": window.range / 1000, "kinds": (window.kind,)}
        case _:
            return {"kinds": (window.kind,)}
