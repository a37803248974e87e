"""One batch of the blocks that share their rows. Rows, groups and aggregates are computed once and charged to all views
that share them, so whether one of them exceeds its limit depends on nobody else."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeVar

import pyarrow as pa

from headgate.columns.sorting import Ints
from headgate.expressions.limits import Limited
from headgate.model.budget import LimitExceeded, Meter, Remembered
from headgate.model.visibility import Visibility
from headgate.operators.block_rows import BlockRows, Changes
from headgate.operators.blocks import AllRows, Shape, group_results, row_results
from headgate.operators.emit import NOTHING, Emitted
from headgate.operators.grouping import Grouping, GroupResults
from headgate.operators.program import Block
from headgate.operators.visible import Reader
from headgate.plan import steps
from headgate.plan.expressions import AggregateCall

T = TypeVar("T")
Target = tuple[str, int]


@dataclass(frozen=True)
class BlockEmitted:
    """The results of one block for some views; or the limit that they exceeded."""

    block: Block
    views: tuple[int, ...]
    emitted: Emitted
    exceeded: str = ""


def judged(block: Block, views: Collection[int], found: Emitted, meter: Meter, exceeded: str) -> Iterator[BlockEmitted]:
    """The results of a block for its views, or the limit that is exceeded: by all of them, or by some."""
    for view in views:
        if view in meter.exceeded:
            yield BlockEmitted(block, (view,), NOTHING, meter.exceeded[view])
    left = tuple(view for view in views if view not in meter.exceeded)
    if left and (exceeded or len(found)):
        yield BlockEmitted(block, left, found, exceeded)


class Evaluation:
    """blocks: the blocks, with their views
    failed: the blocks that cannot go on, and why; those that fail in this batch are added
    """

    def __init__(
        self,
        blocks: Mapping[Block, list[int]],
        shapes: Mapping[Target, Shape],
        failed: dict[Target, str],
        visibility: Visibility,
        reader: Reader,
    ) -> None:
        self._blocks = blocks
        self._shapes = shapes
        self._failed = failed
        self._visibility = visibility
        self._reader = reader
        self._exceeded: dict[int, str] = {}
        self._groups: dict[tuple[object, ...], GroupResults] = {}
        self._values: dict[tuple[object, ...], dict[AggregateCall, pa.Array]] = {}
        self._there: tuple[Ints, Ints] | None = None
        self._known = Remembered()

    def shared(self, users: Iterable[Block], make: Callable[[], T]) -> T | None:
        """What these blocks share; None if none of them goes on."""
        users = [x for x in users if x.target not in self._failed]
        meter = self._visibility.meter([view for x in users for view in self._blocks[x]])
        try:
            with Limited(self._visibility.limits, meter):
                return make() if users else None
        except LimitExceeded as error:
            self._failed.update(dict.fromkeys((x.target for x in users), str(error)))
            return None
        finally:
            self._exceeded.update(meter.exceeded)

    def group(self, name: tuple[object, ...], grouping: Grouping, changes: Changes, slides: bool) -> None:
        """Keep the groups of some of the blocks up to date, and their aggregates."""
        users = [x for x in self._blocks if self._shapes[x.target].grouping(slides) == name]
        if not users:
            return
        found = self.shared(users, lambda: self._grouped(grouping, changes, self._shapes[users[0].target].group_step))
        if found is None:
            return
        self._groups[name], values = found, dict[AggregateCall, pa.Array]()
        for call in grouping.accumulators:
            own = [x for x in users if call in self._shapes[x.target].calls]
            column = self.shared(own, self._column(grouping, call, changes, found, own))
            if column is not None:
                values[call] = column
        self._values[name] = values

    def _grouped(self, grouping: Grouping, changes: Changes, name: str) -> GroupResults:
        with self._reader.profile.running(name) as step:
            found = grouping.advance(changes, self._reader)
            step.count(len(changes.row), len(found.emissions))
            step.held = len(grouping)
            return found

    def _column(
        self, grouping: Grouping, call: AggregateCall, changes: Changes, found: GroupResults, users: list[Block]
    ) -> Callable[[], pa.Array]:
        def values() -> pa.Array:
            with self._reader.profile.running(self._shapes[users[0].target].accumulator_step(call)) as step:
                step.count(len(changes.row), len(found.emissions))
                step.held = len(grouping)
                return grouping.values(call, changes, found, self._reader)

        return values

    def all_rows(self, rows: AllRows, changes: Changes) -> None:
        users = [x for x in self._blocks if self._shapes[x.target].emits_all]
        self._there = self.shared(users, lambda: rows.advance(changes))

    def results(self, rows: BlockRows | None, changes: Changes | None) -> Iterator[BlockEmitted]:
        """The results of all blocks, and the limits that were exceeded."""
        for block, views in self._blocks.items():
            for view in (view for view in views if view in self._exceeded):
                yield BlockEmitted(block, (view,), NOTHING, self._exceeded[view])
            left = [view for view in views if view not in self._exceeded]
            if block.target in self._failed:
                yield from judged(block, left, NOTHING, Meter({}), self._failed[block.target])
            elif left and rows is not None and changes is not None:
                yield from self._of(block, left, rows, changes)

    def _of(self, block: Block, views: list[int], rows: BlockRows, changes: Changes) -> Iterator[BlockEmitted]:
        shape, meter = self._shapes[block.target], self._visibility.meter(views)
        name, found, exceeded = shape.grouping(bool(rows.slide)), NOTHING, ""
        try:
            with Limited(self._visibility.limits, meter):
                found = self._known.once(block.top.key, lambda: self._made(block, name, rows, changes))
        except LimitExceeded as error:
            found, exceeded = NOTHING, str(error)
            self._failed[block.target] = exceeded
        yield from judged(block, views, found, meter, exceeded)

    def _made(self, block: Block, name: tuple[object, ...], rows: BlockRows, changes: Changes) -> Emitted:
        """The results of a block; equal blocks have them in common."""
        shape = self._shapes[block.target]
        with self._reader.profile.running(steps.results(block.top)) as step:
            if name in self._groups:
                group, values = self._groups[name], self._values[name]
                found = group_results(shape, rows, changes, group, values, self._reader)
                step.count(len(group.emissions), len(found))
            else:
                found = row_results(shape, rows, changes, self._there, self._reader)
                step.count(len(found), len(found))
            return found
