"""A program: the blocks that a partition computes, and the columns of its table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from headgate.plan import nodes as n
from headgate.plan.expressions import INTEGERS, Column, Compare, Expr, Literal, Type
from headgate.plan.implication import orderly

TIME, STREAM, ARRIVAL, LABEL, VISIBILITY = "time", "stream", "arrival", "label", "sight"


_ORDERED = ({Type.DOUBLE}, {Type.STRING})


@dataclass(frozen=True)
class Block:
    """A block of a query, by its number in the query."""

    query: str
    number: int
    top: n.Node

    @property
    def target(self) -> tuple[str, int]:
        return self.query, self.number

    @cached_property
    def passes(self) -> tuple[list[Expr], frozenset[Expr], str]:
        """The results, conditions and stream of a stateless block."""
        match self.top:
            case n.Project(input=n.Select(input=n.Source(stream), conditions=conditions)):
                return [expr for _, expr in self.top.items], conditions, stream
            case n.Project(input=n.Source(stream)):
                return [expr for _, expr in self.top.items], frozenset(), stream
        raise ValueError(f"{self.top} has windows")

    @cached_property
    def bound(self) -> Compare | None:
        """A condition of a stateless block that bounds a column from one side, where both values are compared as one
        type without rounding."""
        for condition in sorted(self.passes[1], key=str):
            match condition:
                case Compare("<" | "<=" | ">" | ">=", Column() as column, Literal() as limit):
                    types = {column.type, limit.type}
                    if (types <= INTEGERS or types in _ORDERED) and orderly(column.type, limit):
                        return condition
        return None


@dataclass(frozen=True)
class Program:
    """What a partition computes.

    blocks: the windowed blocks
    passing: the stateless blocks
    streams: the names of the streams, in order; tuples refer to them by number
    columns: the column of the partition's table that holds each column of each stream
    """

    blocks: tuple[Block, ...]
    passing: tuple[Block, ...]
    streams: tuple[str, ...]
    columns: Mapping[tuple[str, str], str]

    @cached_property
    def windowed(self) -> Mapping[tuple[str, int], Block]:
        """The windowed blocks by the target that views name."""
        return {block.target: block for block in self.blocks}
