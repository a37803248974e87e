"""A program: the blocks that a partition computes, and the columns of its table."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from headgate.plan import nodes as n
from headgate.plan.expressions import Expr
from headgate.plan.secure import SecurePlan

TIME, STREAM, ARRIVAL, LABEL, VISIBILITY = "time", "stream", "arrival", "label", "sight"


@dataclass(frozen=True)
class Block:
    """A block of a query, by its number in the query. `labelled`: whether it reads a column with a label of its own."""

    query: str
    number: int
    top: n.Node
    labelled: bool = True

    @property
    def target(self) -> tuple[str, int]:
        return self.query, self.number

    @cached_property
    def passes(self) -> tuple[list[Expr], n.Select | None, n.Source]:
        """The results, selection and stream of a stateless block."""
        match self.top:
            case n.Project(input=n.Select(input=n.Source() as source) as select):
                return [expr for _, expr in self.top.items], select, source
            case n.Project(input=n.Source() as source):
                return [expr for _, expr in self.top.items], None, source
        raise ValueError(f"{self.top} has windows")


@dataclass(frozen=True)
class Program:
    """What a partition computes.

    blocks: the windowed blocks
    stateless: the stateless blocks
    streams: the names of the streams, in order; tuples refer to them by number
    columns: the column of the partition's table that holds each column of each stream
    plan: what the queries of each sharing class have in common
    """

    blocks: tuple[Block, ...]
    stateless: tuple[Block, ...]
    streams: tuple[str, ...]
    columns: Mapping[tuple[str, str], str]
    plan: SecurePlan
    _bases: dict[tuple[int, str], n.Select | None] = field(default_factory=dict, compare=False, repr=False)

    @cached_property
    def windowed(self) -> Mapping[tuple[str, int], Block]:
        """The windowed blocks by the target that views name."""
        return {block.target: block for block in self.blocks}

    @cached_property
    def class_numbers(self) -> Mapping[str, int]:
        """The number of the sharing class of each query."""
        numbers = {sharing: number for number, sharing in enumerate(self.plan.plans)}
        return {name: numbers[sharing] for sharing, plan in self.plan.plans.items() for name in plan.queries}

    def bases(self, query: str, selections: Collection[n.Select]) -> list[tuple[n.Select, n.Select | None]]:
        """The selections of a view group with those they are computed from, which come before them. The group belongs
        to the sharing class of `query`. A selection that the plan computes from one that the group does not have is
        computed from the next weaker one that it has."""
        wanted = {select.key: select for select in selections}
        found = dict[str, n.Select | None]()
        for key, select in wanted.items():
            base = self._base(query, select)
            while base is not None and base.key not in wanted:
                base = self._base(query, base)
            found[key] = base
        ordered = dict[str, n.Select]()
        for select in wanted.values():
            chain = dict[str, n.Select]()
            above: n.Select | None = select
            while above is not None and above.key not in ordered:  # bases lead in no circle
                chain[above.key] = above
                above = found[above.key]
            ordered |= dict(reversed(chain.items()))
        return [(select, found[key]) for key, select in ordered.items()]

    def _base(self, query: str, select: n.Select) -> n.Select | None:
        key = self.class_numbers[query], select.key
        if key not in self._bases:
            self._bases[key] = self.plan.plan_of(query).base(select)
        return self._bases[key]
