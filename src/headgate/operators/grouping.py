"""Groups of rows that are kept up to date: a batch costs what its rows change.

The rows of a block enter and leave (`Changes`), each belongs to a group, and the block emits groups: those that gained
a row, every group at each instant, or, with DISTINCT, those that appear or are gone. Aggregates and labels are kept for
each group and read for each emission.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from headgate.columns.sorting import Ints
from headgate.expressions.limits import few_rows
from headgate.expressions.sql import arrow_type
from headgate.loops import grouping as loops
from headgate.loops.arrays import few_slots, grown
from headgate.loops.heaps import Heaps
from headgate.loops.keys import KeyCodes
from headgate.model.budget import charge
from headgate.operators.accumulators import Accumulator, Amounts, accumulator
from headgate.operators.block_rows import BlockRows, Changes
from headgate.operators.group_labels import GroupLabels, LabelKinds
from headgate.operators.join import JoinSet
from headgate.operators.label_sets import LabelSets
from headgate.operators.visible import Reader
from headgate.plan.expressions import AggregateCall, Expr

GAINED, APPEARED, GONE, EVERY = loops.GAINED, loops.APPEARED, loops.GONE, 3
_NONE = np.empty(0, np.int64)
_ROOM = 4096
_PART = 1 << 18


@dataclass(frozen=True)
class Emissions:
    """Groups to emit: `of` is the group, after so many changes (`after`), `leading` its first row, `at` the number of
    the instant; in the order of instants, and at each in the order of first rows."""

    after: Ints
    of: Ints
    leading: Ints
    at: Ints

    def __len__(self) -> int:
        return len(self.of)


NO_EMISSIONS = Emissions(_NONE, _NONE, _NONE, _NONE)
_NO_LABELS = LabelSets(_NONE, ())


class Grouping:
    """The groups of the rows of one set, by the values of expressions; one group if there are none."""

    def __init__(self, rows: BlockRows, exprs: tuple[Expr, ...], kind: int, kinds: LabelKinds) -> None:
        self._rows = rows.top
        self._block = rows
        self.exprs = exprs
        self._kind = kind
        self._codes = KeyCodes(*(arrow_type(x.type) for x in exprs)) if exprs else None
        self._group_of = np.empty(0, np.int32)
        self._alone = kind == GAINED and not isinstance(
            rows.top, JoinSet
        )  # one row enters at each instant: its group is emitted
        self._count = self._before = self._stamp = self._touched = self._leads = _NONE
        self._alive = self._alive_at = _NONE
        self._living = np.zeros(1, np.int64)
        self._gained = np.zeros(0, np.int8)
        self._first = self._last = _NONE
        self._following = np.empty(0, np.int32)
        self._heaps = Heaps()
        self._mark = 0
        self._labels = GroupLabels(kinds)
        self.accumulators: dict[AggregateCall, Accumulator] = {}

    def __len__(self) -> int:
        return 1 if self._codes is None else len(self._codes)

    @property
    def keys(self) -> int:
        """How many groups it knows, of rows that are there or were; or values of one aggregate, if those are more."""
        return max(len(self), *(x.keys for x in self.accumulators.values()), 0)

    def add(self, call: AggregateCall) -> None:
        """Keep this aggregate too. All are added before the first row."""
        self.accumulators.setdefault(call, accumulator(call))

    # A batch ----------------------------------------------------------------------------------------------------------

    def begin(self, changes: Changes, reader: Reader) -> None:
        """Take rows that were there before, all of one instant; nobody receives anything. They come in parts, so that
        what is computed on the way stays small."""
        for part in changes.parts(_PART):
            group = self._groups(part, reader)
            if not self._alone:
                self._emissions(part, group)  # which also counts the rows of each group
            self._labels.of(part, group, self._rows.kinds(), NO_EMISSIONS, len(self))
            for call in self.accumulators:
                self.values(call, part, GroupResults(NO_EMISSIONS, _NO_LABELS, group), reader)

    def advance(self, changes: Changes, reader: Reader) -> GroupResults:
        """Apply changes; the results have no values yet (`values`)."""
        group = self._groups(changes, reader)
        found = self._emissions(changes, group)
        labels = self._labels.of(changes, group, self._rows.kinds(), found, len(self))
        return GroupResults(found, labels, group)

    def _groups(self, changes: Changes, reader: Reader) -> Ints:
        """The group of each change."""
        if self._codes is None:
            return np.zeros(len(changes.row), np.int64)
        self._group_of = grown(self._group_of, self._rows.capacity)
        if len(changes.new):
            columns = reader.computed(self._block.streams, self._block.sides(changes.new), self.exprs)
            self._group_of[changes.new] = self._codes.codes(columns, null_is_a_value=True)
            few_slots(len(self._codes))
        return self._group_of[changes.row].astype(np.int64)

    def values(self, call: AggregateCall, changes: Changes, found: GroupResults, reader: Reader) -> pa.Array:
        """The values of an aggregate for all emissions."""
        new, argument = changes.new, None
        if call.argument is not None:
            (argument,) = reader.computed(self._block.streams, self._block.sides(new), [call.argument])
        charge(8 * len(found.emissions))
        kept = self.accumulators[call]
        return kept.advance(changes, found.group, new, argument, found.emissions, len(self), self._rows.capacity)

    def carry(self, call: AggregateCall, rows: Ints, amounts: Amounts) -> None:
        """Add what was folded to the groups of the rows that carry it, after `begin`."""
        group = np.zeros(len(rows), np.int64) if self._codes is None else self._group_of[rows].astype(np.int64)
        self.accumulators[call].add(group, amounts)

    def _emissions(self, changes: Changes, group: Ints) -> Emissions:
        if self._alone:
            return Emissions(changes.entered + 1, group[changes.entered], changes.new, changes.enters)
        groups, capacity = len(self), self._rows.capacity
        for name in ("_count", "_before", "_stamp", "_touched", "_leads", "_alive", "_alive_at"):
            setattr(self, name, grown(getattr(self, name), groups + 1))
        self._gained = grown(self._gained, groups + 1)
        self._first, self._last = grown(self._first, groups + 1, -1), grown(self._last, groups + 1, -1)
        fifo, heaps = self._rows.fifo, self._heaps
        self._following = grown(self._following, capacity if fifo else 1)
        heaps.grow(groups + 1, 1 if fifo else capacity)
        keys = self._rows.orders()
        leading = (
            fifo, self._first, self._last, self._following, heaps.root, heaps.child, heaps.following, heaps.previous,
            np.ascontiguousarray(keys[:1]) if fifo else keys,
        )  # fmt: skip
        found = self._every(changes, group, leading) if self._kind == EVERY else self._changed(changes, group, leading)
        order = np.lexsort((*(keys[found.leading, x] for x in reversed(range(keys.shape[1]))), found.at))
        return Emissions(found.after, found.of[order], found.leading[order], found.at)

    def _changed(self, changes: Changes, group: Ints, leading: tuple[object, ...]) -> Emissions:
        room = len(changes.row)
        after, of, first, at = (np.empty(room, np.int64) for _ in range(4))
        found = loops.changed_groups(
            self._kind, changes.row, group, changes.sign, changes.step, self._count, self._before, self._stamp,
            self._mark, self._gained, self._touched, self._leads, *leading, after, of, first, at,
        )  # fmt: skip
        self._mark += len(changes.row)
        return Emissions(after[:found], of[:found], first[:found], at[:found])

    def _every(self, changes: Changes, group: Ints, leading: tuple[object, ...]) -> Emissions:
        parts, progress, steps = list[tuple[Ints, ...]](), np.zeros(2, np.int64), len(changes.instants)
        room = max(_ROOM, len(changes.row))
        while True:
            arrays = tuple(np.empty(room, np.int64) for _ in range(4))
            found = loops.every_group(
                changes.row, group, changes.sign, changes.step, steps, self._count, self._alive, self._alive_at,
                self._living, *leading, progress, *arrays,
            )  # fmt: skip
            parts.append(tuple(x[:found] for x in arrays))
            charge(32 * found)
            few_rows(np.array([len(x[0]) for x in parts]))
            if progress[1] >= steps:
                return Emissions(*(np.concatenate(x) for x in zip(*parts, strict=True)))
            room = max(2 * room, int(self._living[0]))


@dataclass(frozen=True)
class GroupResults:
    """`group` is the group of each change."""

    emissions: Emissions
    labels: LabelSets
    group: Ints
