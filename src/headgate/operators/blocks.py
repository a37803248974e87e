"""Evaluate blocks from the changes of their rows: select, aggregate, make distinct, emit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from headgate.columns.sorting import Ints
from headgate.expressions.limits import few_rows
from headgate.loops.arrays import grown
from headgate.loops.grouping import all_rows
from headgate.loops.windows import is_ascending
from headgate.model.budget import charge
from headgate.operators.block_rows import BlockRows, Changes
from headgate.operators.emit import Emitted, emitted
from headgate.operators.group_labels import LabelKinds
from headgate.operators.grouping import APPEARED, EVERY, GAINED, GONE, Grouping, GroupResults
from headgate.operators.label_sets import LabelSets, side_by_side
from headgate.operators.visible import Reader
from headgate.plan import nodes as n
from headgate.plan import steps
from headgate.plan.expressions import AggregateCall, Column, Expr

_NONE = np.empty(0, np.int64)
_ROOM = 4096


@dataclass(frozen=True)
class Shape:
    """The parts of a block (a ToStream node).

    rows: what its windows hold and its joins combine
    aggregate: its aggregate, if it has one
    having: the conditions on groups
    items: the values of a result
    distinct: whether equal results are one
    operator: ISTREAM, DSTREAM or RSTREAM
    group_step: the name of the step that keeps its groups
    """

    rows: n.Node
    aggregate: n.Aggregate | None
    having: frozenset[Expr]
    items: tuple[Expr, ...]
    distinct: bool
    operator: str
    group_step: str

    @classmethod
    def of(cls, block: n.Node) -> Shape:
        if not isinstance(block, n.ToStream):
            raise ValueError(f"{block} is not the top of a block with windows")
        distinct = isinstance(block.input, n.Distinct)
        top = block.input.input if isinstance(block.input, n.Distinct) else block.input
        if not isinstance(top, n.Project):
            raise ValueError(f"{top} is not a projection")
        below, having = top.input, frozenset[Expr]()
        if isinstance(below, n.Select) and isinstance(below.input, n.Aggregate):
            having, below = below.conditions, below.input
        items = tuple(expr for _, expr in top.items)
        if isinstance(below, n.Aggregate):
            return cls(below.input, below, having, items, False, block.operator, steps.groups(block))
        return cls(below, None, having, items, distinct, block.operator, steps.groups(block))

    @property
    def kept(self) -> bool:
        """Whether the rows of its joins must be remembered."""
        return self.aggregate is not None or self.distinct or self.operator != "ISTREAM"

    @property
    def grouped(self) -> tuple[Expr, ...]:
        """The expressions by which its rows are grouped."""
        if self.aggregate is None:
            return self.items
        return tuple(sorted(self.aggregate.groups, key=str))

    @property
    def calls(self) -> frozenset[AggregateCall]:
        return self.aggregate.calls if self.aggregate is not None else frozenset()

    def accumulator_step(self, call: AggregateCall) -> str:
        """The name of the step that keeps an aggregate of its groups."""
        return steps.accumulator(self.group_step, call)

    @property
    def emits_all(self) -> bool:
        """Whether it emits all its rows at each instant."""
        return self.aggregate is None and not self.distinct and self.operator == "RSTREAM"

    def kind(self, slides: bool) -> int:
        """Which groups it emits."""
        if self.operator == "RSTREAM" or (self.aggregate is not None and slides):
            return EVERY
        if self.aggregate is not None:
            return GAINED
        return GONE if self.operator == "DSTREAM" else APPEARED

    def grouping(self, slides: bool) -> tuple[object, ...]:
        """What blocks with a common grouping have in common."""
        return self.rows.key, self.grouped, self.kind(slides)


def grouping_of(shape: Shape, rows: BlockRows, kinds: LabelKinds) -> Grouping:
    return Grouping(rows, shape.grouped, shape.kind(bool(rows.slide)), kinds)


def group_results(
    shape: Shape,
    rows: BlockRows,
    changes: Changes,
    found: GroupResults,
    values_of: Mapping[AggregateCall, pa.Array],
    reader: Reader,
) -> Emitted:
    """The results of a block with groups: aggregates, or distinct results."""
    emissions = found.emissions
    sides, at, labels = rows.sides(emissions.leading), emissions.at, found.labels
    if shape.aggregate is None:
        values = reader.computed(rows.streams, sides, shape.items, many=True)
        return emitted(changes.instants, at, sides, values, labels)
    given: dict[Column | AggregateCall, pa.Array] = dict(
        reader.values(rows.streams, sides, shape.aggregate.groups, many=True)
    )
    given |= {call: values_of[call] for call in shape.aggregate.calls}
    values = reader.evaluate(shape.items, given, len(emissions))
    if shape.having:
        chosen = np.flatnonzero(reader.met(shape.having, given, len(emissions)))
        sides, at, labels = tuple(side[chosen] for side in sides), at[chosen], labels.at(chosen)
        values = [column.take(pa.array(chosen)) for column in values]
    return emitted(changes.instants, at, sides, values, labels)


class AllRows:
    """RSTREAM without groups: the rows that are there."""

    def __init__(self, rows: BlockRows) -> None:
        self._rows = rows
        self._there = self._place = _NONE
        self._living = np.zeros(1, np.int64)

    def advance(self, changes: Changes) -> tuple[Ints, Ints]:
        """The rows at each instant, and its number, in the order of results."""
        capacity, parts, progress = self._rows.top.capacity, list[tuple[Ints, Ints]](), np.zeros(2, np.int64)
        self._there, self._place = grown(self._there, capacity + 1), grown(self._place, capacity)
        room, steps = max(_ROOM, len(changes.row)), len(changes.instants)
        while True:
            found, at = np.empty(room, np.int64), np.empty(room, np.int64)
            count = all_rows(
                changes.row, changes.sign, changes.step, steps, self._there, self._place, self._living, progress,
                found, at,
            )  # fmt: skip
            parts.append((found[:count], at[:count]))
            charge(16 * count)
            few_rows(np.array([len(x) for x, _ in parts]))
            if progress[1] >= steps:
                break
            room = max(2 * room, int(self._living[0]))
        rows, at = (np.concatenate(x) for x in zip(*parts, strict=True))
        return in_order(self._rows, rows, at)


def in_order(rows: BlockRows, chosen: Ints, at: Ints) -> tuple[Ints, Ints]:
    """Rows in the order of results: by instant, then by their tuples."""
    keys = rows.top.orders()[chosen]
    if keys.shape[1] == 1 and is_ascending(at, keys):
        return chosen, at
    order = np.lexsort((*(keys[:, x] for x in reversed(range(keys.shape[1]))), at))
    return chosen[order], at[order]


def row_results(
    shape: Shape, rows: BlockRows, changes: Changes, there: tuple[Ints, Ints] | None, reader: Reader
) -> Emitted:
    """The results of a block without groups; `there` are all rows at each instant, for RSTREAM."""
    if not rows.kept:
        sides, at = rows.pairs(changes.instants)
    else:
        if shape.operator == "RSTREAM" and there is not None:
            chosen, at = there
        else:
            places = changes.left if shape.operator == "DSTREAM" else changes.entered
            chosen, at = in_order(rows, changes.row[places], changes.step[places])
        sides = rows.sides(chosen)
    values = reader.computed(rows.streams, sides, shape.items, many=shape.operator == "RSTREAM")
    return emitted(changes.instants, at, sides, values, labels_of(reader, sides))


def labels_of(reader: Reader, sides: tuple[Ints, ...]) -> LabelSets:
    return side_by_side([reader.tuples.labels(side) for side in sides])
