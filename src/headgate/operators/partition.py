"""The state of one partition of a running plan, and how a batch advances it.

Views that see the same tuples with the same columns form one view group, which is computed once, however many views and
subscribers it has. A view group splits when its views come to see different tuples, and two merge again when their
states are equal. Views of stateless blocks are not part of this: their tuples are not kept.

A partition keeps each tuple once. Operators are kept from batch to batch; what they hold can be written down
(`PartitionState`), and they can be built again from that: after a restart, when rights change, when views part.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from headgate.columns.sorting import Ints
from headgate.expressions.limits import Evaluate, limited
from headgate.model.budget import Budget, LimitExceeded, Meter
from headgate.model.visibility import HIDDEN, Position, Visibility, VisibilityRows
from headgate.operators.evaluation import BlockEmitted
from headgate.operators.program import ARRIVAL, STREAM, TIME, VISIBILITY, Program
from headgate.operators.threads import in_threads
from headgate.operators.tuple_store import TupleStore, VisibleTuples
from headgate.operators.view_group import Held, Operators
from headgate.operators.waiting import Waiting


@dataclass(frozen=True)
class ViewGroup:
    """Views that are computed together, as they are written down.

    views: the numbers of the views
    held: what each window holds for them, as positions in the partition's table, by name (`view_group.Held`)
    last: the time of the last instant of each block, by the key of its rows
    """

    views: tuple[int, ...]
    held: Mapping[str, Ints] = field(default_factory=dict)
    last: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class PartitionState:
    """The tuples that a partition keeps, and the view groups that hold them.

    INVARIANT: the tuples are in the order of SPEC.md, 4.2.
    """

    table: pa.Table
    classes: tuple[ViewGroup, ...] = ()


@dataclass
class _Group:
    """A view group: its views, its operators (None: they are built with the next batch from `held`), and what its views
    see in each visibility row."""

    views: tuple[int, ...]
    held: Held
    operators: Operators | None = None
    seen: tuple[Ints, VisibilityRows] = (np.empty(0, np.int64), np.empty(0, np.int32))

    def state(self) -> Held:
        return self.held if self.operators is None else self.operators.held()


class Partition:
    def __init__(self, program: Program, schema: pa.Schema, evaluate: Evaluate) -> None:
        self._program = program
        self._schema = schema
        self._evaluate = evaluate
        self._store = TupleStore(program, schema)
        self._waiting = Waiting(self._store)
        self._groups: list[_Group] = []
        self._fed: pa.Table | None = None
        self._arrived: pa.Table | None = None
        """The tuples of the next batch, if they are here already."""
        self._tables: Ints = np.empty(0, np.int64)

    # State ------------------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        """How many tuples it keeps, without those of tables."""
        return len(self._store) - len(self._tables)

    def load(self, state: PartitionState) -> None:
        """Continue from a state; the partition is new."""
        tuples = self._store.add(state.table)
        for class_ in state.classes:
            held = {name: self._store.in_order(tuples[places]) for name, places in class_.held.items()}
            for places in held.values():
                self._store.hold(places)
            self._groups.append(_Group(class_.views, Held(held, class_.last)))
        self._waiting.add(tuples)

    def state(self) -> PartitionState:
        """What it keeps, as it can be written down."""
        kept = self._store.kept
        if len(self._tables):
            kept = np.setdiff1d(kept, self._tables)
        kept = self._store.in_order(kept)
        place = np.zeros(int(kept.max(initial=-1)) + 1, np.int64)
        place[kept] = np.arange(len(kept))
        classes = []
        for group in self._groups:
            held = group.state()
            windows = {name: place[tuples] for name, tuples in held.windows.items()}
            classes.append(ViewGroup(group.views, windows, held.last))
        return PartitionState(self._store.table(kept), tuple(classes))

    def renumber_visibility(self, changed: Ints) -> None:
        """Replace each visibility row by another: rights have changed."""
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

    # Batches ----------------------------------------------------------------------------------------------------------

    def advance(
        self, arriving: pa.Table, visibility: Visibility, tables: pa.Table | None
    ) -> list[tuple[BlockEmitted, VisibleTuples]]:
        """Process the next batch: tuples arrive, and times become final. `tables` holds the tuples of tables."""
        views = self._begin(arriving, visibility, tables)
        groups = [group for group in self._groups if group.views]
        sizes = [len(self._store)] * len(groups)
        found = in_threads(lambda group: self._group_results(group, visibility), groups, sizes)
        self._store.settle()
        self._waiting.keep(
            [int(visibility.until[group.views[0]]) for group in groups],
            [visibility.visible(group.views[0]) for group in groups],
        )
        self._merge(views)
        return [x for some in found for x in some]

    def _begin(self, arriving: pa.Table, visibility: Visibility, tables: pa.Table | None) -> dict[int, bytes]:
        views = [view for view, target in enumerate(visibility.targets) if target in self._program.windowed]
        self._feed(tables)
        if arriving is not self._arrived:
            self._waiting.add(self._store.add(_entering(arriving, visibility, views)))
        self._arrived = None
        policies = _policies(views, visibility, self._store.present)
        self._regroup(visibility, policies)
        return policies

    def _feed(self, tables: pa.Table | None) -> None:
        if tables is self._fed:
            return
        if len(self._tables):
            self._store.release(self._tables)
        self._fed = tables
        self._tables = np.empty(0, np.int64) if tables is None else self._store.add(tables)
        for group in self._groups:
            self._suspend(group)

    def _suspend(self, group: _Group) -> None:
        """Write down what the group's windows hold; its operators are built again with the next batch."""
        if group.operators is not None:
            group.held = group.operators.held()
            for tuples in group.held.windows.values():
                self._store.hold(tuples)
            group.operators.close()
            group.operators = None

    def _regroup(self, visibility: Visibility, policies: Mapping[int, bytes]) -> None:
        """Split groups into views that see the same of the tuples that are there; new views begin with nothing."""
        known = {view for group in self._groups for view in group.views}
        for new, old in visibility.copied:
            for group in self._groups:
                if old in group.views and new not in known:
                    group.views = (*group.views, new)
                    known.add(new)
        fresh = tuple(view for view in policies if view not in known)
        found = []
        for group in [*self._groups, _Group(fresh, Held())]:
            together: dict[bytes, list[int]] = {}
            for view in group.views:
                if view in policies:
                    together.setdefault(policies[view], []).append(view)
            parts = [tuple(views) for views in together.values()]
            if parts != [group.views] or self._changed(group, visibility):
                self._suspend(group)
            found += self._parted(group, parts)
        self._groups = found

    def _parted(self, group: _Group, parts: Sequence[tuple[int, ...]]) -> list[_Group]:
        if len(parts) == 1:
            group.views = parts[0]
            return [group]
        for _ in range(len(parts) - 1):
            for tuples in group.held.windows.values():
                self._store.hold(tuples)
        if not parts:
            for tuples in group.held.windows.values():
                self._store.release(tuples)
        return [_Group(views, group.held) for views in parts]

    def _changed(self, group: _Group, visibility: Visibility) -> bool:
        """Whether the group sees tuples that are there otherwise than when its operators were built."""
        if group.operators is None:
            return False
        rows, before = group.seen
        there = np.isin(rows, self._store.present)
        return bool((visibility.table[rows[there], group.views[0]] != before[there]).any())

    def _operators(self, group: _Group, visibility: Visibility) -> Operators:
        view = group.views[0]
        if group.operators is None:
            targets = {visibility.targets[view] for view in group.views}
            blocks = [block for block in self._program.blocks if block.target in targets]
            seen = visibility.visible(view)[self._store.numbers(VISIBILITY)]
            held = Held({name: x[seen[x]] for name, x in group.held.windows.items()}, group.held.last)
            group.operators = Operators(self._store, blocks, visibility, view, self._evaluate, self._tables, held)
            for tuples in group.held.windows.values():
                self._store.release(tuples)
            group.held = Held()
        group.seen = np.arange(len(visibility.table)), visibility.table[:, view].copy()
        return group.operators

    def _final(self, group: _Group, visibility: Visibility) -> tuple[Ints, int, int, int]:
        """The tuples that become final for the group, the bounds of their times, and how many wait."""
        view = group.views[0]
        since, until = int(visibility.since[view]), int(visibility.until[view])
        seen = visibility.visible(view)
        tuples = self._waiting.between(since, until)
        tuples = tuples[seen[self._store.numbers(VISIBILITY)[tuples]]]
        if view in visibility.cutoff:
            cutoff = visibility.cutoff[view]
            return tuples[: self._before(tuples, cutoff)], since, cutoff.time, 0
        later = self._waiting.between(until, 1 << 62)
        return tuples, since, until, int(np.count_nonzero(seen[self._store.numbers(VISIBILITY)[later]]))

    def _before(self, tuples: Ints, position: Position) -> int:
        """How many of these tuples are before a position."""
        keys = zip(*(self._store.numbers(x)[tuples].tolist() for x in (TIME, STREAM, ARRIVAL)), strict=True)
        return sum(key < position for key in keys)

    def _group_results(self, group: _Group, visibility: Visibility) -> list[tuple[BlockEmitted, VisibleTuples]]:
        operators = self._operators(group, visibility)
        tuples, since, until, waiting = self._final(group, visibility)
        seen = VisibleTuples(self._store, visibility, group.views[0])
        found = operators.advance(tuples, since, until, waiting, visibility, group.views)
        return [(x, seen) for x in found]

    def _merge(self, policies: Mapping[int, bytes]) -> None:
        """Let groups with equal states be one again."""
        alike: dict[tuple[object, ...], list[_Group]] = {}
        for group in self._groups:
            if group.operators is not None:
                key = policies[group.views[0]], group.operators.sizes()
                alike.setdefault(key, []).append(group)
        for first, *others in alike.values():
            for other in others:
                if _equal(first.state(), other.state()):
                    self._join(first, other)
        self._groups = [group for group in self._groups if group.views]

    def _join(self, group: _Group, other: _Group) -> None:
        same = group.operators is not None and other.operators is not None
        if not same or {x.target for x in group.operators.blocks} != {x.target for x in other.operators.blocks}:  # type: ignore[union-attr]
            self._suspend(group)
        self._suspend(other)
        for tuples in other.held.windows.values():
            self._store.release(tuples)
        group.views = tuple(sorted((*group.views, *other.views)))
        other.views = ()

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
        self, group: _Group, visibility: Visibility, wanted: Collection[int]
    ) -> Iterator[tuple[tuple[int, ...], tuple[Ints, ...]]]:
        """A block that exceeds the limits of every view has no changes."""
        operators = self._operators(group, visibility)
        finals, *_ = self._final(group, visibility)
        looking: dict[tuple[str, int], list[int]] = {}
        for view in group.views:
            if view in wanted:
                looking.setdefault(visibility.targets[view], []).append(view)
        for block in (block for block in self._program.blocks if block.target in looking):
            views = tuple(looking[block.target])
            alone = Meter({view: Budget(visibility.limits.bytes) for view in views})
            with suppress(LimitExceeded), limited(visibility.limits, alone):
                yield views, operators.changes(block, finals, visibility, group.views[0])


def _entering(arriving: pa.Table, visibility: Visibility, views: list[int]) -> pa.Table:
    """The tuples that at least one view of a windowed block sees."""
    seen = (visibility.table[:, views] != HIDDEN).any(axis=1)[arriving.column(VISIBILITY).to_numpy()]
    return arriving if seen.all() else arriving.filter(pa.array(seen))


def _policies(views: list[int], visibility: Visibility, present: Ints) -> dict[int, bytes]:
    """What tells views apart: what they see of the tuples that are there, the bounds of their final times, and their
    cutoff."""
    seen = np.ascontiguousarray(visibility.table[present][:, views].T)
    bounds = np.column_stack([visibility.since[views], visibility.until[views]])
    return {
        view: seen[at].tobytes() + bounds[at].tobytes() + str(visibility.cutoff.get(view, "")).encode()
        for at, view in enumerate(views)
    }


def _equal(a: Held, b: Held) -> bool:
    held, other = ({name: x for name, x in own.windows.items() if len(x)} for own in (a, b))
    return a.last == b.last and held.keys() == other.keys() and all(np.array_equal(held[x], other[x]) for x in held)


def empty(table: pa.Schema) -> PartitionState:
    return PartitionState(table.empty_table())
