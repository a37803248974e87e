"""A view: subscribers of one query that share its windows (SPEC.md, 4.3)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import Any

from headgate.columns.sorting import Ints
from headgate.labels import Clearance, Label, Rules, parse_level
from headgate.model.moments import WatermarkTimeline
from headgate.model.query import ContinuousQuery
from headgate.model.times import NO_TIME
from headgate.model.visibility import TuplePosition
from headgate.plan.queries import QueryBlock
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
    cutoff: TuplePosition | None = None
    """The tuple of the current batch with which its windows exceed MAX STATE."""
    spent: int = 0
    """Bytes computed for it in the current batch, including those of producer queries."""
    timeline: WatermarkTimeline | None = None
    timelines: dict[str, WatermarkTimeline] = field(default_factory=dict)
    """How its watermark moves in the batch, if the view is `charted`; and as far as single `readers` may see it."""
    ends_at: int | None = None
    """The moment of the batch with which a query ended whose results it reads: it sees no later one."""
    ended_at: int | None = None
    """The moment of the batch with which it ended."""
    near: dict[str, str] = field(default_factory=dict)
    """Limits that it or a query that it reads came near to in this batch, each with a warning."""


@dataclass
class ReaderTime:
    """How far time has come for one subscriber of a cumulative view: `greatest`, `passed` and `open` as in View."""

    greatest: dict[str, int] = field(default_factory=dict)
    passed: int = NO_TIME
    open: frozenset[str] = frozenset()


@dataclass
class View:
    """Subscribers of one query that began at the same moment and have had the same rights since; of a query without
    windows that reads no results also those that came later. A cumulative query has one view for all subscribers.

    clearances: the clearance of each subscriber, by name
    columns: its columns in the visibility rows, one for each block
    greatest: by stream, the latest event time that it has seen; of another query's output, its watermark
    passed: the watermark up to which instants have been evaluated; it never falls
    open: the streams that it may read tuples of, as grants and declarations say; the others do not hold the watermark
        back
    floors: by stream with a declared delay, the watermark that the clock has given it
    own: how far time has come for single subscribers, who see different tuples if the query is cumulative; of `readers`
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
    floors: dict[str, int] = field(default_factory=dict)
    own: dict[str, ReaderTime] = field(default_factory=dict)
    open: frozenset[str] = frozenset()
    warned: frozenset[str] = frozenset()
    """The limits that its owner and the operator were warned about."""
    held: int | None = None
    """How many tuples its windows held after the last batch, over all blocks; None: not known. No version stores it."""
    readers: tuple[str, ...] = ()
    """Those of its subscribers that stand for other queries, which read its results."""

    def end_with(self, moment: int, reason: str) -> None:
        """A query that it reads ended at this moment of the batch (-1: before all): it ends too, after what it makes of
        that moment."""
        known, now = self.scratch.ends_at, self.scratch
        now.ending = now.ending or reason
        now.ends_at = moment if known is None else min(moment, known)
        now.ended_early = now.ends_at < 0

    @property
    def last_moment(self) -> int:
        """The last moment of the batch, for a view that ends with it; -1 if it had ended before all."""
        found = self.scratch.ends_at if self.scratch.ended_at is None else self.scratch.ended_at
        return -1 if found is None else found

    @cached_property
    def windowed(self) -> list[int]:
        """The columns of blocks with windows; tuples cannot be late for stateless blocks."""
        blocks = zip(self.columns, self.running.query.blocks, strict=True)
        return [column for column, block in blocks if not block.stateless]

    @cached_property
    def mixed(self) -> bool:
        """Whether some of its blocks have windows and some have none."""
        return 0 < len(self.windowed) < len(self.columns)

    @cached_property
    def timed(self) -> frozenset[str]:
        """The streams that it reads; tables have no time."""
        return self.running.streams - self.running.tables

    @property
    def charted(self) -> bool:
        """Whether it matters at which moment of a batch a result comes: to queries that read them, and where results
        of windowed and stateless blocks are merged into one order."""
        return bool(self.readers) or self.mixed

    def watermark(self) -> int:
        return self.watermark_with({})

    def watermark_with(self, floors: Mapping[str, int]) -> int:
        """The watermark if the clock gives streams these."""
        least = min((max(self.reached(x), floors.get(x, NO_TIME)) for x in self.open), default=NO_TIME)
        return max(least, self.passed)

    @cached_property
    def slides(self) -> tuple[tuple[int, int], ...]:
        """By how much windows slide, and how long they hold a tuple, in milliseconds; of those that slide."""
        windows = (x.window for block in self.running.query.blocks for x in block.readings)
        return tuple((window.slide, window.range) for window in windows if window is not None and window.slide)

    def reached(self, stream: str) -> int:
        """The watermark of one stream for this view."""
        floor = self.floors.get(stream, NO_TIME)
        if stream not in self.greatest:
            return floor
        return max(self.greatest[stream] - self.running.lateness.get(stream, 0), floor)

    def clearance(self, subscriber: str, rules: Rules) -> Clearance | None:
        """The clearance of a subscriber at the level of the query; None if it does not dominate that level."""
        found, level = self.clearances.get(subscriber), self.running.level
        if found is None or not rules.order.dominates(found.level, level):
            return None
        return found if found.level == level else replace(found, level=level)

    def column_labels(self, block: int, rules: Rules) -> tuple[Label, ...]:
        """The labels of the columns that a block reads, without those that are masked now. A cumulative view reads all
        columns. All subscribers of an exact view have the same rights, so the first one's clearance decides."""
        labels = self.running.column_labels[block]
        if not labels or self.running.mode == Mode.CUMULATIVE:
            return labels
        clearance = self.clearance(next(iter(self.clearances)), rules)
        if clearance is None:
            return labels
        read = self.running.query.blocks[block]
        return tuple(label for label in labels if reads(rules, read, label, clearance))


def reads(rules: Rules, block: QueryBlock, label: Label, clearance: Clearance) -> bool:
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
