"""What cells are given to work with: a program, and who sees what of its tuples."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from headgate.engine.kernels.budget import Budget, Meter
from headgate.engine.kernels.limits import Limits
from headgate.engine.kernels.rows import Bools, Ints
from headgate.plan import nodes as n
from headgate.plan.expressions import INTEGERS, Column, Compare, Expr, Literal, Type
from headgate.plan.implication import orderly

TIME, STREAM, ARRIVAL, LABEL, SIGHT = "time", "stream", "arrival", "label", "sight"
HIDDEN = 0
"""In a sight: this view does not see the tuple. Any other number is one more than the number of a mask."""

Sights = npt.NDArray[np.int32]
Mask = frozenset[tuple[str, str]]
"""Columns, with their streams, that a view may not see."""


_ORDERED = ({Type.DOUBLE}, {Type.STRING})


class Position(NamedTuple):
    """The place of a tuple in the order of SPEC.md, 4.2; streams have numbers in the order of their names."""

    time: int
    stream: int
    arrival: int


@dataclass(frozen=True)
class Block:
    """A block of a query, by its number there."""

    query: str
    number: int
    top: n.Node

    @property
    def target(self) -> tuple[str, int]:
        return self.query, self.number

    @cached_property
    def passes(self) -> tuple[list[Expr], frozenset[Expr], str]:
        """The results, conditions and stream of a block without windows."""
        match self.top:
            case n.Project(input=n.Select(input=n.Source(stream), conditions=conditions)):
                return [expr for _, expr in self.top.items], conditions, stream
            case n.Project(input=n.Source(stream)):
                return [expr for _, expr in self.top.items], frozenset(), stream
        raise ValueError(f"{self.top} has windows")

    @cached_property
    def bound(self) -> Compare | None:
        """A condition of a block without windows that keeps a column on one side of a value, compared as one plain
        type."""
        for condition in sorted(self.passes[1], key=str):
            match condition:
                case Compare("<" | "<=" | ">" | ">=", Column() as column, Literal() as limit):
                    types = {column.type, limit.type}
                    if (types <= INTEGERS or types in _ORDERED) and orderly(column.type, limit):
                        return condition
        return None


@dataclass(frozen=True)
class Program:
    """What a cell computes: blocks with windows, and blocks that tuples merely pass. `streams` are in the order of
    their names; `columns` says which column of the cell's table holds which column of which stream."""

    blocks: tuple[Block, ...]
    passing: tuple[Block, ...]
    streams: tuple[str, ...]
    columns: Mapping[tuple[str, str], str]

    @cached_property
    def windowed(self) -> Mapping[tuple[str, int], Block]:
        """The blocks with windows by what views look at."""
        return {block.target: block for block in self.blocks}


@dataclass(frozen=True)
class Sight:
    """Who sees what: for each sight (a row) and each view (a column) HIDDEN or a mask. `targets` say which block of
    which query a view looks at (no query: nobody looks any more); `since` and `until` are the times from and to which
    tuples become final with this batch; `levels` are the levels of labels, as text; `copied` are views that go on from
    where others are, with these; no view may exceed the `limits`, nor what its `budgets` leave it of memory; some end
    with this batch, and see nothing from a position on (`cut`)."""

    targets: tuple[tuple[str, int], ...]
    table: Sights
    masks: tuple[Mask, ...]
    since: Ints
    until: Ints
    levels: Mapping[int, str]
    copied: tuple[tuple[int, int], ...] = ()
    limits: Limits = field(default_factory=Limits)
    cut: Mapping[int, Position] = field(default_factory=dict)
    budgets: Mapping[int, Budget] = field(default_factory=dict)

    def meter(self, views: Iterable[int]) -> Meter:
        """What a block is charged to that these look at alike."""
        return Meter({view: self.budgets.get(view) or Budget(self.limits.bytes) for view in views})

    def visible(self, view: int) -> Bools:
        """Of which sights the view sees the tuples."""
        return np.asarray(self.table[:, view] != HIDDEN, np.bool_)
