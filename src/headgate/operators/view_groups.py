"""The view groups of a partition: views that see the same tuples with the same columns are computed together.

A group splits when its views come to see different tuples, and two merge again when their states are equal. Its
operators are built from what its windows hold: for a new group, when rights change, when views part, after a restart.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from headgate.columns.sorting import Ints
from headgate.expressions.limits import Evaluate
from headgate.model.times import NO_TIME
from headgate.model.visibility import Visibility, VisibilityRows
from headgate.operators.folding import Folded
from headgate.operators.group_record import Listed
from headgate.operators.profile import Counted, Step, added
from headgate.operators.program import Program
from headgate.operators.tuple_store import TupleStore
from headgate.operators.view_group import Held, Operators


@dataclass
class RunningGroup:
    """A view group: its views, its operators (None: they are built with the next batch from `held`), and what its views
    see in each visibility row.

    until: times before it are final
    listed: windows whose tuples are listed in a file; None: the next version lists them
    files: the files of what windows have folded; the next version writes those that are not there
    """

    views: tuple[int, ...]
    held: Held
    operators: Operators | None = None
    seen: tuple[Ints, VisibilityRows] = (np.empty(0, np.int64), np.empty(0, np.int32))
    until: int = NO_TIME
    listed: Mapping[str, Listed] | None = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)

    def state(self) -> Held:
        return self.held if self.operators is None else self.operators.held()

    @property
    def folded(self) -> Mapping[str, Folded]:
        return self.held.folded if self.operators is None else self.operators.folded


class ViewGroups:
    """`tables` are the tuples of tables, by their slots in the store."""

    def __init__(self, program: Program, store: TupleStore, evaluate: Evaluate) -> None:
        self._program = program
        self._store = store
        self._evaluate = evaluate
        self._groups: list[RunningGroup] = []
        self.tables: Ints = np.empty(0, np.int64)
        self._earlier: dict[int, dict[str, Step]] = {}
        """What was done for a view before its group was formed."""

    def __iter__(self) -> Iterator[RunningGroup]:
        return iter(self._groups)

    def add(self, group: RunningGroup) -> None:
        """A group that continues from a state; its windows hold their tuples already."""
        self._groups.append(group)

    @property
    def with_views(self) -> list[RunningGroup]:
        return [group for group in self._groups if group.views]

    def suspend_all(self) -> None:
        """Build all operators again with the next batch."""
        for group in self._groups:
            self._suspend(group)

    def _suspend(self, group: RunningGroup, held: Held | None = None) -> None:
        """Write down what the group's windows hold, or are to hold; its operators are built again with the next
        batch."""
        if group.operators is not None:
            self._count(group)
            group.held = held or group.operators.held()
            for tuples in group.held.windows.values():
                self._store.hold(tuples)
            group.operators.close()
            group.operators, group.listed = None, None

    def regroup(self, visibility: Visibility, policies: Mapping[int, bytes]) -> None:
        """Split groups into views that see the same of the tuples that are there; new views begin with nothing."""
        known = {view for group in self._groups for view in group.views}
        for new, old in visibility.copied:
            for group in self._groups:
                if old in group.views and new not in known:
                    group.views = (*group.views, new)
                    known.add(new)
                    self._earlier = {**self._earlier, new: self._earlier.get(old, {})}
        fresh = tuple(view for view in policies if view not in known)
        found = []
        for group in [*self._groups, RunningGroup(fresh, Held())]:
            together: dict[bytes, list[int]] = {}
            for view in group.views:
                if view in policies:
                    together.setdefault(policies[view], []).append(view)
            parts = [tuple(views) for views in together.values()]
            if parts != [group.views] or self._changed(group, visibility):
                self._suspend(group)
                group.listed = None
            found += self._parted(group, parts)
        self._groups = found

    def _parted(self, group: RunningGroup, parts: Sequence[tuple[int, ...]]) -> list[RunningGroup]:
        if len(parts) == 1:
            group.views = parts[0]
            return [group]
        for _ in range(len(parts) - 1):
            for tuples in group.held.windows.values():
                self._store.hold(tuples)
        if not parts:
            for tuples in group.held.windows.values():
                self._store.release(tuples)
        return [RunningGroup(views, group.held, until=group.until, listed=None, files=group.files) for views in parts]

    def _changed(self, group: RunningGroup, visibility: Visibility) -> bool:
        """Whether the group sees tuples that are there otherwise than when its operators were built."""
        rows, before = group.seen
        there = np.isin(rows, self._store.present)
        return bool((visibility.table[rows[there], group.views[0]] != before[there]).any())

    def operators(self, group: RunningGroup, visibility: Visibility) -> Operators:
        """The operators of a group, built if there are none."""
        view = group.views[0]
        if group.operators is None:
            targets = {visibility.targets[view] for view in group.views}
            blocks = [block for block in self._program.blocks if block.target in targets]
            seen = visibility.visible(view)
            windows = {name: self._store.seen(x, seen) for name, x in group.held.windows.items()}
            held = replace(group.held, windows=windows)
            group.operators = Operators(self._store, blocks, visibility, view, self._evaluate, self.tables, held)
            for tuples in group.held.windows.values():
                self._store.release(tuples)
            group.held = Held()
        group.seen = np.arange(len(visibility.table)), visibility.table[:, view].copy()
        return group.operators

    def merge(self, policies: Mapping[int, bytes]) -> None:
        """Let groups with equal states be one again."""
        alike: dict[tuple[object, ...], list[RunningGroup]] = {}
        for group in self._groups:
            if group.operators is not None:
                key = policies[group.views[0]], group.operators.sizes()
                alike.setdefault(key, []).append(group)
        for first, *others in alike.values():
            for other in others:
                if _may_join(first, other) and _equal(first.state(), other.state()):
                    self._join(first, other)
        self._groups = [group for group in self._groups if group.views]

    def _join(self, group: RunningGroup, other: RunningGroup) -> None:
        self._count(group)
        same = group.operators is not None and other.operators is not None
        if not same or {x.target for x in group.operators.blocks} != {x.target for x in other.operators.blocks}:  # type: ignore[union-attr]
            self._suspend(group)
        self._suspend(other)
        for tuples in other.held.windows.values():
            self._store.release(tuples)
        group.views = tuple(sorted((*group.views, *other.views)))
        other.views = ()

    def renew(self, visibility: Visibility) -> None:
        """Build operators again from what their windows hold: with tuples folded where there are many, and if they know
        keys that will perhaps never come again."""
        for group in self._groups:
            if group.operators is not None and (group.operators.due or group.operators.knows_the_gone):
                due, listed, profile = group.operators.due, group.listed, group.operators.profile
                held = group.operators.fold(due, visibility, group.views[0])
                self._suspend(group, held)
                # Other windows hold what they held.
                group.listed = None if listed is None else {x: y for x, y in listed.items() if x not in due}
                group.files = {x: y for x, y in group.files.items() if x not in due}
                operators = self.operators(group, visibility)
                operators.profile.steps = {**profile.steps, **operators.profile.steps}

    # Counts -----------------------------------------------------------------------------------------------------------

    def counted(self) -> Counted:
        """What was done for views, and for those that they were grouped with while they saw the same."""
        groups = [(x.views, x.operators.profile.copy()) for x in self._groups if x.operators is not None]
        return Counted(self._earlier, groups)

    def _count(self, group: RunningGroup) -> None:
        """Note for each view what its group did so far: from now on it may be grouped with others, which have seen
        something else before."""
        if group.operators is not None:
            done = group.operators.profile
            more = {view: added(self._earlier.get(view, {}), done.steps) for view in group.views}
            self._earlier = {**self._earlier, **more}
            done.begin_anew()


def policies(views: list[int], visibility: Visibility, present: Ints, program: Program) -> dict[int, bytes]:
    """What tells views apart: their sharing class, what they see of the tuples that are there, the bounds of their
    final times, and their cutoff."""
    seen = np.ascontiguousarray(visibility.table[present][:, views].T)
    sharing = [program.class_numbers[visibility.targets[view][0]] for view in views]
    bounds = np.column_stack([visibility.since[views], visibility.until[views], np.array(sharing, np.int64)])
    return {
        view: seen[at].tobytes() + bounds[at].tobytes() + str(visibility.cutoff.get(view, "")).encode()
        for at, view in enumerate(views)
    }


def _may_join(a: RunningGroup, b: RunningGroup) -> bool:
    """What was folded is there for the blocks of the group only."""
    if a.operators is None or b.operators is None:
        return False
    folded = a.folded or b.folded
    return not folded or {x.target for x in a.operators.blocks} == {x.target for x in b.operators.blocks}


def _equal(a: Held, b: Held) -> bool:
    """Of tuples that were folded only the sums are left. They were seen by all who see their carrier, so equal
    carriers with equal sums have folded equal tuples."""
    held, other = ({name: x for name, x in own.windows.items() if len(x)} for own in (a, b))
    return (
        a.last == b.last
        and held.keys() == other.keys()
        and all(np.array_equal(held[x], other[x]) for x in held)
        and a.folded.keys() == b.folded.keys()
        and all(x.equals(b.folded[name]) for name, x in a.folded.items())
    )
