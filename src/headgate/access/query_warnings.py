"""Warnings about queries that are allowed and mean something else than their author may think."""

from __future__ import annotations

from collections.abc import Iterator

from headgate.access.authorizer import Authorizer
from headgate.cql.expressions import LiteralSyntax
from headgate.cql.queries import QuerySyntax
from headgate.plan import expressions as e
from headgate.plan.queries import Query
from headgate.plan.reserved import LEVEL


def query_warnings(authorizer: Authorizer, syntax: QuerySyntax, query: Query) -> list[str]:
    return [*dict.fromkeys([*_unknown_levels(authorizer, query), *_names_as_texts(syntax, query)])]


def _unknown_levels(authorizer: Authorizer, query: Query) -> Iterator[str]:
    """A condition with a level that does not exist is never met."""
    for block in query.blocks:
        for expr in (block.before, block.after, block.having, *(expr for _, expr in block.items)):
            for part in expr.walk():
                if isinstance(part, e.In) and isinstance(part.operand, e.Column) and part.operand.name == LEVEL:
                    names = sorted(str(x.value).partition("{")[0].partition(",")[0].strip() for x in part.items)
                    yield from (f"there is no level {name}" for name in names if name not in authorizer.order)


def _names_as_texts(syntax: QuerySyntax, query: Query) -> Iterator[str]:
    """In SQL a name may be in double quotes, here those are texts."""
    for written, block in zip(syntax.blocks, query.blocks, strict=True):
        columns = {name.casefold(): name for reading in block.readings for name, _ in reading.stream.columns}
        for item in written.items:
            if isinstance(item.expression, LiteralSyntax) and isinstance(item.expression.value, str):
                name = columns.get(item.expression.value.casefold())
                if name is not None:
                    yield f"a result is the text '{name}', not the column: names are written without quotes or in `...`"
