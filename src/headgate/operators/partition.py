"""The state of one partition of a running plan, and how a batch advances it.

Views that see the same tuples with the same columns form one view group (`view_groups.py`), which is computed once,
however many views and subscribers it has. Views of stateless blocks are not part of this: their tuples are not kept.

A partition keeps each tuple once. Operators are kept from batch to batch, and can be built again from what their
windows hold: when rights change, when views part, after a restart. `save` writes what changed since the last version
(the new tuples as a segment, a few facts about each view group) and `load` is the way back. `state` and `adopt` move
everything to other partitions in memory.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from headgate.columns.sorting import Ints
from headgate.expressions.limits import Evaluate, Limited
from headgate.model.budget import Budget, LimitExceeded, Meter
from headgate.model.times import NO_TIME
from headgate.model.visibility import HIDDEN, TuplePosition, Visibility, VisibilityRows
from headgate.operators.evaluation import BlockEmitted
from headgate.operators.folding import table_of
from headgate.operators.group_record import (
    GroupRecord,
    Listed,
    derived,
    listing,
    named_windows,
    needs_listing,
    position_of,
)
from headgate.operators.partition_state import PartitionState, StoredPartition, ViewGroup
from headgate.operators.profile import Counted
from headgate.operators.program import ARRIVAL, STREAM, TIME, VISIBILITY, Program
from headgate.operators.segments import Numbers, Read, Segments, Write
from headgate.operators.threads import in_threads
from headgate.operators.tuple_store import TupleStore, VisibleTuples
from headgate.operators.view_group import Held
from headgate.operators.view_groups import RunningGroup, ViewGroups, policies
from headgate.operators.visible import Reader
from headgate.operators.waiting import Waiting


class Partition:
    def __init__(self, program: Program, schema: pa.Schema, evaluate: Evaluate) -> None:
        self._program = program
        self._schema = schema
        self._evaluate = evaluate
        self._store = TupleStore(program, schema)
        self._segments = Segments(self._store)
        self._waiting = Waiting(self._store)
        self._groups = ViewGroups(program, self._store, evaluate)
        self._windows = {name: window for name, window, _ in named_windows(program.blocks)}
        self._fed: pa.Table | None = None
        self._arrived: pa.Table | None = None
        """The tuples of the next batch, if they are here already."""

    # State ------------------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        """How many tuples it holds, without those of tables: those that it keeps, and the most that a view group has
        folded."""
        folded = (sum(x.tuples for x in group.folded.values()) for group in self._groups)
        return len(self._store) - len(self._groups.tables) + max(folded, default=0)

    def save(self, write: Write, identities: Ints) -> dict[str, Any]:
        """Write what changed since the last call; returns the partition's record, whole. `identities` are those of
        visibility rows, by their number."""
        groups = [self._record(group, write) for group in self._groups]
        return {
            "segments": self._segments.save(write, identities),
            "groups": [group.plain() for group in groups],
            "blocks": sorted(block.target for block in self._program.blocks),
            "columns": self._schema.names,
        }

    def _record(self, group: RunningGroup, write: Write) -> GroupRecord:
        windows = self._windows
        if group.listed is None or not group.folded.keys() <= group.listed.keys():
            held, listed = group.state().windows, group.listed or {}
            names = sorted(x for x in held if group.listed is None and needs_listing(windows[x]))  # also if it is empty
            names += sorted(x for x in held if x in group.folded and x not in listed)
            group.listed = {**listed, **{x: Listed(write(listing(held[x], self._store)), group.until) for x in names}}
        group.files = {
            name: group.files.get(name) or write(table_of(folded, self._store))
            for name, folded in sorted(group.folded.items())
        }
        if group.operators is not None:
            starts, last = group.operators.starts(), group.operators.last
        else:
            last = dict(group.held.last)
            starts = {
                name: -1 if windows[name].kind == "PARTITIONED" else int(tuples[0])
                for name, tuples in group.held.windows.items()
                if len(tuples)
            }
        group.listed = {x: y for x, y in group.listed.items() if x in starts}  # once empty, it holds what enters later
        positions = {name: position_of(self._store, tuple_) for name, tuple_ in starts.items()}
        return GroupRecord(group.views, last, positions, group.listed, group.files)

    def load(self, stored: StoredPartition, visibility: Visibility, numbers: Numbers) -> None:
        """Continue from what was written; the partition is new. `visibility` is that of the version, and `numbers`
        gives the numbers of visibility rows from their identities."""
        tuples = self._store.in_order(self._segments.read(stored.record["segments"], stored.read, numbers))
        for plain in stored.record["groups"]:
            record = GroupRecord.of(plain)
            views = [x for x in record.views if visibility.targets[x] in self._program.windowed]
            parts = self._seeing_alike(views, visibility)
            for part in parts:
                self._load_group(replace(record, views=part), stored.read, tuples, visibility, whole=len(parts) == 1)
        passed = min((group.until for group in self._groups), default=NO_TIME)
        done = self._store.before(tuples, passed)
        self._store.release(tuples[:done])  # they wait for nobody
        self._waiting.add(tuples[done:], latest=tuples[-1:])
        self._settle(visibility)

    def _seeing_alike(self, views: Sequence[int], visibility: Visibility) -> list[tuple[int, ...]]:
        """Parts of a view group that see the same of the tuples that are there: rights may have changed since its last
        batch."""
        present, parts = self._store.present, dict[bytes, list[int]]()
        for view in views:
            parts.setdefault(visibility.table[present, view].tobytes(), []).append(view)
        return list(map(tuple, parts.values()))

    def _load_group(
        self, record: GroupRecord, read: Read, tuples: Ints, visibility: Visibility, *, whole: bool
    ) -> None:
        """Continue with a view group, or with a part of one, whose windows the next version lists anew."""
        view = record.views[0]
        targets = {visibility.targets[view] for view in record.views}
        blocks = [block for block in self._program.blocks if block.target in targets]
        until = int(visibility.until[view])
        reader = Reader(VisibleTuples(self._store, visibility, view), self._evaluate)
        held = derived(record, self._store, blocks, tuples, until, reader, read)
        for some in held.windows.values():
            self._store.hold(some)
        seen = np.arange(len(visibility.table)), visibility.table[:, view].copy()
        listed = record.listed if whole else None
        self._groups.add(RunningGroup(record.views, held, None, seen, until, listed, record.folded))

    def adopt(self, state: PartitionState) -> None:
        """Continue from a state in memory; the partition is new."""
        tuples = self._store.add(state.table)
        self._segments.enter(tuples)
        for class_ in state.classes:
            own = {name: places for name, places in class_.held.items() if name in self._windows}
            held = {name: self._store.in_order(tuples[places]) for name, places in own.items()}
            for places in held.values():
                self._store.hold(places)
            folded = {name: x.moved(tuples) for name, x in class_.folded.items() if name in held}
            self._groups.add(
                RunningGroup(class_.views, Held(held, class_.last, folded), until=class_.until, listed=None)
            )
        self._waiting.add(tuples)

    def state(self) -> PartitionState:
        """All that it keeps, in memory."""
        kept = self._store.kept
        if len(self._groups.tables):
            kept = np.setdiff1d(kept, self._groups.tables)
        kept = self._store.in_order(kept)
        place = np.zeros(int(kept.max(initial=-1)) + 1, np.int64)
        place[kept] = np.arange(len(kept))
        classes = []
        for group in self._groups:
            held = group.state()
            classes.append(ViewGroup(group.views, held.windows, held.last, group.until, held.folded).moved(place))
        return PartitionState(self._store.table(kept), tuple(classes))

    def renumber_visibility(self, changed: Ints) -> None:
        """Replace each visibility row by another: rights have changed."""
        self._segments.leave(self._store.settle())
        present = self._store.present
        for group in self._groups:
            rows, seen = group.seen
            there = np.isin(rows, present)
            group.seen = changed[rows[there]], seen[there]
        self._store.renumber_visibility(changed)
        self._waiting.changed()

    def visibilities(self) -> Ints:
        """The visibility rows that its tuples refer to."""
        return self._store.present

    def waiting(self, views: Sequence[int], table: VisibilityRows, since: int) -> tuple[Ints, Ints]:
        """Arrival numbers and times of the tuples that wait for one of these views to become final."""
        tuples = self._waiting.all()
        seen = (table[:, views] != HIDDEN).any(axis=1)[self._store.numbers(VISIBILITY)[tuples]]
        times = self._store.numbers(TIME)[tuples]
        chosen = seen & (times >= since)
        return self._store.numbers(ARRIVAL)[tuples][chosen], times[chosen]

    def waits(self, since: int, until: int) -> bool:
        """Whether a tuple with a time in [since, until) waits."""
        return self._waiting.any_between(since, until)

    @property
    def latest(self) -> int:
        """The latest time of all tuples that came."""
        return self._waiting.latest

    # Batches ----------------------------------------------------------------------------------------------------------

    def advance(
        self, arriving: pa.Table, visibility: Visibility, tables: pa.Table | None
    ) -> list[tuple[BlockEmitted, VisibleTuples]]:
        """Process the next batch: tuples arrive, and times become final. `tables` holds the tuples of tables."""
        views = self._begin(arriving, visibility, tables)
        groups = self._groups.with_views
        sizes = [len(self._store)] * len(groups)
        found = in_threads(lambda group: self._group_results(group, visibility), groups, sizes)
        self._settle(visibility)
        self._groups.merge(views)
        self._groups.renew(visibility)
        return [x for some in found for x in some]

    def _settle(self, visibility: Visibility) -> None:
        """Let go of tuples that nobody holds and that do not wait for any view."""
        groups = self._groups.with_views
        self._waiting.keep(
            [int(visibility.until[group.views[0]]) for group in groups],
            [visibility.visible(group.views[0]) for group in groups],
        )
        self._segments.leave(self._store.settle())

    def _begin(self, arriving: pa.Table, visibility: Visibility, tables: pa.Table | None) -> dict[int, bytes]:
        views = [view for view, target in enumerate(visibility.targets) if target in self._program.windowed]
        self._feed(tables)
        if arriving is not self._arrived:
            tuples = self._store.add(_entering(arriving, visibility, views))
            self._segments.enter(tuples)
            self._waiting.add(tuples)
        self._arrived = None
        found = policies(views, visibility, self._store.present, self._program)
        self._groups.regroup(visibility, found)
        return found

    def _feed(self, tables: pa.Table | None) -> None:
        if tables is self._fed:
            return
        if len(self._groups.tables):
            self._store.release(self._groups.tables)
        self._fed = tables
        self._groups.tables = np.empty(0, np.int64) if tables is None else self._store.add(tables)
        self._groups.suspend_all()

    def _final(self, group: RunningGroup, visibility: Visibility) -> tuple[Ints, int, int, int]:
        """The tuples that become final for the group, the bounds of their times, and how many wait."""
        view = group.views[0]
        since, until = int(visibility.since[view]), int(visibility.until[view])
        seen = visibility.visible(view)
        tuples = self._store.seen(self._waiting.between(since, until), seen)
        if view in visibility.cutoff:
            cutoff = visibility.cutoff[view]
            return tuples[: self._before(tuples, cutoff)], since, cutoff.time, 0
        return tuples, since, until, self._waiting.count_from(until, seen)

    def _before(self, tuples: Ints, position: TuplePosition) -> int:
        """How many of these tuples are before a position."""
        keys = zip(*(self._store.numbers(x)[tuples].tolist() for x in (TIME, STREAM, ARRIVAL)), strict=True)
        return sum(key < position for key in keys)

    def _group_results(self, group: RunningGroup, visibility: Visibility) -> list[tuple[BlockEmitted, VisibleTuples]]:
        operators = self._groups.operators(group, visibility)
        tuples, since, until, waiting = self._final(group, visibility)
        group.until = int(visibility.until[group.views[0]])
        seen = VisibleTuples(self._store, visibility, group.views[0])
        found = operators.advance(tuples, since, until, waiting, visibility, group.views)
        return [(x, seen) for x in found]

    def counted(self) -> Counted:
        """What was done for views, and for those that they were grouped with while they saw the same."""
        return self._groups.counted()

    # Limits -----------------------------------------------------------------------------------------------------------

    def state_changes(
        self, arriving: pa.Table, visibility: Visibility, tables: pa.Table | None, wanted: Collection[int]
    ) -> list[tuple[tuple[int, ...], tuple[Ints, ...]]]:
        """The tuples that the next batch would bring into the windows of these views and take out of them, block by
        block. Nothing is joined or computed, so an exceeded limit is known before it costs anything. The batch itself
        comes next, with the same tuples."""
        self._begin(arriving, visibility, tables)
        self._arrived = arriving
        found = list[tuple[tuple[int, ...], tuple[Ints, ...]]]()
        for group in self._groups:
            if not set(wanted).isdisjoint(group.views):
                found += self._changes(group, visibility, wanted)
        return found

    def _changes(
        self, group: RunningGroup, visibility: Visibility, wanted: Collection[int]
    ) -> Iterator[tuple[tuple[int, ...], tuple[Ints, ...]]]:
        """A block that exceeds the limits of every view has no changes."""
        operators = self._groups.operators(group, visibility)
        finals, *_ = self._final(group, visibility)
        looking: dict[tuple[str, int], list[int]] = {}
        for view in group.views:
            if view in wanted:
                looking.setdefault(visibility.targets[view], []).append(view)
        for block in (block for block in self._program.blocks if block.target in looking):
            views = tuple(looking[block.target])
            alone = Meter({view: Budget(visibility.limits) for view in views})
            with suppress(LimitExceeded), Limited(visibility.limits, alone):
                yield views, operators.changes(block, finals, visibility, group.views[0])


def _entering(arriving: pa.Table, visibility: Visibility, views: list[int]) -> pa.Table:
    """The tuples that at least one view of a windowed block sees."""
    seen = (visibility.table[:, views] != HIDDEN).any(axis=1)[arriving.column(VISIBILITY).to_numpy()]
    return arriving if seen.all() else arriving.filter(pa.array(seen))
