"""A continuous query: what the engine knows of a query that runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from headgate.labels import Label, Level
from headgate.plan.expressions import Column, Expr
from headgate.plan.lowering import lower
from headgate.plan.queries import Block, Query
from headgate.plan.secure import Mode


@dataclass(frozen=True)
class ContinuousQuery:
    """A query that runs: its meaning, its level, how late tuples of its streams may come (in milliseconds), the
    stream that its results make for other queries, how many queries stand at most between it and its sources,
    whether its subscribers receive together what any of them may see, and what its owner's roles allow each view of
    it at this moment: so many tuples of state, so many results in a second."""

    name: str
    query: Query
    level: Level
    lateness: Mapping[str, int] = field(default_factory=dict)
    mode: Mode = Mode.EXACT
    output: str = ""
    stage: int = 0
    together: bool = False
    most_state: int | None = None
    most_results: int | None = None

    @cached_property
    def streams(self) -> frozenset[str]:
        return frozenset(reading.stream.name for block in self.query.blocks for reading in block.readings)

    @property
    def limited(self) -> bool:
        return self.most_state is not None or self.most_results is not None

    @cached_property
    def tables(self) -> frozenset[str]:
        """Those of its streams that are tables."""
        readings = (reading for block in self.query.blocks for reading in block.readings)
        return frozenset(reading.stream.name for reading in readings if reading.stream.table)

    @cached_property
    def column_labels(self) -> tuple[tuple[Label, ...], ...]:
        """By block, the labels of the labelled columns that it reads."""
        return tuple(tuple(dict.fromkeys(_column_labels(block))) for block in self.query.blocks)

    @cached_property
    def meaning(self) -> str:
        """What must not change for its state to be of use."""
        return f"{self.mode} {self.level} {lower(self.query).key}"


def _column_labels(block: Block) -> Iterator[Label]:
    read = {(column.input, column.name) for column in columns_read(block)}
    for number, reading in enumerate(block.readings):
        yield from (label for name, label in reading.stream.labels if (number, name) in read)


# Keys -----------------------------------------------------------------------------------------------------------------


def columns_read(block: Block) -> frozenset[Column]:
    """All columns that a block reads anywhere."""
    exprs: list[Expr] = [block.before, block.after, block.having, *(expr for _, expr in block.items), *block.groups]
    for reading in block.readings:
        exprs += reading.window.partition if reading.window else ()
    return frozenset(column for expr in exprs for column in expr.columns)
