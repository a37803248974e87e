"""A view: the subscribers of one query who see the same tuples."""

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
class View:
    """People who look at one query since the same moment: with the same rights, or, if it is cumulative, all of them.
    `columns` are its places in sights, one for each block; `greatest` are the latest times it has seen, by stream."""

    running: ContinuousQuery
    clearances: dict[str, Clearance | None]
    columns: tuple[int, ...]
    greatest: dict[str, int] = field(default_factory=dict)
    passed: int = NO_TIME
    ended: str = ""
    """Why it sees nothing any more, whatever the rights."""
    second: int = NO_TIME
    yielded: int = 0
    """The second of its last result, and how many came in that; counted where its owner's roles set a limit."""
    ending: str = ""
    """Why it ends with the batch that is being computed, after what it yields of it."""
    ended_early: bool = False
    """It ends in the midst of that batch: it sees nothing of what comes."""
    waiting: Ints | None = None
    """The times of the tuples that wait in this batch; None: too few for any limit."""
    cutoff: Position | None = None
    """The tuple with which its windows hold too much in this batch."""
    spent: int = 0
    """Bytes that were computed for it in this batch, what it reads of other queries included."""
    marks: list[tuple[Ints, Ints]] = field(default_factory=list)
    """Arrivals of this batch and the watermark after each, if results of blocks with and without windows are put into
    one order to be counted."""

    @cached_property
    def windowed(self) -> list[int]:
        """The columns of blocks with windows: what merely passes cannot be late."""
        blocks = zip(self.columns, self.running.query.blocks, strict=True)
        return [column for column, block in blocks if not block.stateless]

    @cached_property
    def mixed(self) -> bool:
        """Whether some of its blocks have windows and some have none."""
        return 0 < len(self.windowed) < len(self.columns)

    @property
    def watched(self) -> bool:
        """Whether what enters it has to be noted, for the limits that its owner's roles set."""
        return self.waiting is not None or (self.mixed and self.running.limited)

    def watermark(self) -> int:
        return min(map(self.reached, self.running.streams - self.running.tables))

    def reached(self, stream: str) -> int:
        """How far the time of one stream has come for this view."""
        if stream not in self.greatest:
            return NO_TIME
        return self.greatest[stream] - self.running.lateness.get(stream, 0)

    def clearance(self, subscriber: str, rules: Rules) -> Clearance | None:
        """All look from the level of the query; who cannot come there sees nothing."""
        found, level = self.clearances.get(subscriber), self.running.level
        if found is None or not rules.order.dominates(found.level, level):
            return None
        return found if found.level == level else replace(found, level=level)

    def column_labels(self, block: int, rules: Rules) -> tuple[Label, ...]:
        """The labels of the columns that a block reads, but for those that are hidden at the moment. A cumulative view
        reads all of them; whoever looks through an exact one has the same rights."""
        labels, clearance = self.running.column_labels[block], self.clearance(next(iter(self.clearances)), rules)
        if self.running.mode == Mode.CUMULATIVE or not labels or clearance is None:
            return labels
        read = self.running.query.blocks[block]
        return tuple(label for label in labels if reads(rules, read, label, clearance))


def reads(rules: Rules, block: Block, label: Label, clearance: Clearance) -> bool:
    """Whether a block may read for this clearance what the label protects. Blocks with aggregates read what may only be
    read so; a join reads a WEAK stream for whoever may read another of its streams."""
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
