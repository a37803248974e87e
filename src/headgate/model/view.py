"""A view: the subscribers of one query that see the same tuples (SPEC.md, 4.3)."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import Any

from headgate.columns.sorting import Ints
from headgate.labels import Clearance, Label, Rules, parse_level
from headgate.model.query import ContinuousQuery
from headgate.model.times import NO_TIME
from headgate.model.visibility import Position
from headgate.plan.queries import Block
from headgate.plan.secure import Mode


@dataclass
class ViewScratch:
    """What one batch computes for one view. It belongs to the batch: the next one begins with another."""

    ending: str = ""
    """Why it ends with the current batch, after its results of that batch."""
    ended_early: bool = False
    """Whether it ends within the current batch: it sees no further tuples of it."""
    waiting: Ints | None = None
    """The times of the tuples that wait for the watermark; None: they are too few to exceed a limit in this batch."""
    cutoff: Position | None = None
    """The tuple of the current batch with which its windows exceed MAX STATE."""
    spent: int = 0
    """Bytes computed for it in the current batch, including those of producer queries."""
    marks: list[tuple[Ints, Ints]] = field(default_factory=list)
    """Arrival numbers of the current batch and the watermark after each. Needed if the view is `mixed`: results of
    windowed and stateless blocks are merged into one order to be counted."""


@dataclass
class View:
    """Subscribers of one query that began at the same moment and have had the same rights since; a cumulative query
    has one view for all subscribers.

    clearances: the clearance of each subscriber, by name
    columns: its columns in the visibility rows, one for each block
    greatest: by stream, the latest event time that it has seen
    passed: the watermark up to which instants have been evaluated
    """

    running: ContinuousQuery
    clearances: dict[str, Clearance | None]
    columns: tuple[int, ...]
    greatest: dict[str, int] = field(default_factory=dict)
    passed: int = NO_TIME
    ended: str = ""
    """Why it has ended: it sees no further tuples, whatever the rights. Empty while it runs."""
    second: int = NO_TIME
    yielded: int = 0
    """`second` is that of its last result, `yielded` how many results it had in it; counted if MAX RESULTS is set."""
    scratch: ViewScratch = field(default_factory=ViewScratch)
    """What the current batch has computed for it so far; no version stores it."""

    @cached_property
    def windowed(self) -> list[int]:
        """The columns of blocks with windows; tuples cannot be late for stateless blocks."""
        blocks = zip(self.columns, self.running.query.blocks, strict=True)
        return [column for column, block in blocks if not block.stateless]

    @cached_property
    def mixed(self) -> bool:
        """Whether some of its blocks have windows and some have none."""
        return 0 < len(self.windowed) < len(self.columns)

    @property
    def watched(self) -> bool:
        """Whether entering tuples must be recorded, to judge the limits of the owner's roles."""
        return self.scratch.waiting is not None or (self.mixed and self.running.limited)

    def watermark(self) -> int:
        return min(map(self.reached, self.running.streams - self.running.tables))

    def reached(self, stream: str) -> int:
        """The watermark of one stream for this view."""
        if stream not in self.greatest:
            return NO_TIME
        return self.greatest[stream] - self.running.lateness.get(stream, 0)

    def clearance(self, subscriber: str, rules: Rules) -> Clearance | None:
        """The clearance of a subscriber at the level of the query; None if it does not dominate that level."""
        found, level = self.clearances.get(subscriber), self.running.level
        if found is None or not rules.order.dominates(found.level, level):
            return None
        return found if found.level == level else replace(found, level=level)

    def column_labels(self, block: int, rules: Rules) -> tuple[Label, ...]:
        """The labels of the columns that a block reads, without those that are masked now. A cumulative view reads all
        columns. All subscribers of an exact view have the same rights, so the first one's clearance decides."""
        labels, clearance = self.running.column_labels[block], self.clearance(next(iter(self.clearances)), rules)
        if self.running.mode == Mode.CUMULATIVE or not labels or clearance is None:
            return labels
        read = self.running.query.blocks[block]
        return tuple(label for label in labels if reads(rules, read, label, clearance))


def reads(rules: Rules, block: Block, label: Label, clearance: Clearance) -> bool:
    """Whether a block may read data under this label for this clearance. Blocks with aggregates may read sources that
    permit only aggregates; a join reads a WEAK stream if the clearance may read another of its streams."""
    return rules.permits(label, clearance, aggregated=block.aggregated, beside=block.streams)


@lru_cache(maxsize=10_000)
def plain_clearance(clearance: Clearance | None) -> list[Any] | None:
    if clearance is None:
        return None
    return [
        sorted(clearance.roles),
        str(clearance.level),
        sorted(clearance.sources),
        sorted(clearance.aggregate_sources),
    ]


def clearance_of(plain: list[Any] | None) -> Clearance | None:
    if plain is None:
        return None
    roles, level, sources, aggregates = plain
    return Clearance(frozenset(roles), parse_level(level), frozenset(sources), frozenset(aggregates))
