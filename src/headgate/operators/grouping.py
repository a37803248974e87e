"""Groups of rows that are kept up to date: a batch costs what its rows change.

The rows of a block enter and leave (`Changes`), each belongs to a group, and the block emits groups: those that gained
a row, every group at each instant, or, with DISTINCT, those that appear or are gone. Aggregates and labels are kept for
each group and read for each emission.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from headgate.columns.sorting import Ints, dense
from headgate.expressions.limits import few_rows
from headgate.expressions.sql import arrow_type
from headgate.loops import grouping as loops
from headgate.loops.arrays import grown
from headgate.loops.heaps import Heaps
from headgate.loops.keys import KeyCodes
from headgate.model.budget import charge
from headgate.operators.accumulators import Accumulator, accumulator
from headgate.operators.block_rows import BlockRows, Changes
from headgate.operators.join import JoinSet
from headgate.operators.label_sets import LabelSets, side_by_side
from headgate.operators.sequence import LabelKinds
from headgate.operators.visible import Reader
from headgate.plan.expressions import AggregateCall, Expr

GAINED, APPEARED, GONE, EVERY = loops.GAINED, loops.APPEARED, loops.GONE, 3
_NONE = np.empty(0, np.int64)
_ROOM = 4096
_MOST_WORDS = 4


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


class Grouping:
    """The groups of the rows of one set, by the values of expressions; one group if there are none."""

    def __init__(self, rows: BlockRows, exprs: tuple[Expr, ...], kind: int, kinds: LabelKinds) -> None:
        self._rows = rows.top
        self._block = rows
        self.exprs = exprs
        self._kind = kind
        self._codes = KeyCodes(*(arrow_type(x.type) for x in exprs)) if exprs else None
        self.group_of = _NONE
        self._alone = kind == GAINED and not isinstance(
            rows.top, JoinSet
        )  # one row enters at each instant: its group is emitted
        self._count = self._before = self._stamp = self._touched = self._leads = _NONE
        self._alive = self._alive_at = _NONE
        self._living = np.zeros(1, np.int64)
        self._gained = np.zeros(0, np.int8)
        self._first = self._last = self._following = _NONE
        self._heaps = Heaps()
        self._mark = 0
        self._labels = _Labels(kinds)
        self.accumulators: dict[AggregateCall, Accumulator] = {}

    def __len__(self) -> int:
        return 1 if self._codes is None else len(self._codes)

    def add(self, call: AggregateCall) -> None:
        """Keep this aggregate too. All are added before the first row."""
        self.accumulators.setdefault(call, accumulator(call))

    # A batch ----------------------------------------------------------------------------------------------------------

    def advance(self, changes: Changes, reader: Reader) -> GroupResults:
        """Apply changes; the results have no values yet (`values`)."""
        new = changes.row[changes.entered]
        self.group_of = grown(self.group_of, self._rows.capacity)
        self.group_of[new] = 0
        if self._codes is not None and len(new):
            columns = reader.computed(self._block.streams, self._block.sides(new), self.exprs)
            self.group_of[new] = self._codes.codes(columns, null_is_a_value=True)
        group = self.group_of[changes.row]
        found = self._emissions(changes, group)
        labels = self._labels.of(changes, group, self._rows.kinds(), found, len(self))
        return GroupResults(found, labels, group)

    def values(self, call: AggregateCall, changes: Changes, found: GroupResults, reader: Reader) -> pa.Array:
        """The values of an aggregate for all emissions."""
        new, argument = changes.row[changes.entered], None
        if call.argument is not None:
            (argument,) = reader.computed(self._block.streams, self._block.sides(new), [call.argument])
        charge(8 * len(found.emissions))
        kept = self.accumulators[call]
        return kept.advance(changes, found.group, new, argument, found.emissions, len(self), self._rows.capacity)

    def _emissions(self, changes: Changes, group: Ints) -> Emissions:
        if self._alone:
            after = changes.entered + 1
            return Emissions(after, group[changes.entered], changes.row[changes.entered], changes.step[changes.entered])
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


class _Labels:
    """The labels that the rows of each group have: bits for up to some hundred labels; with more, lists."""

    def __init__(self, kinds: LabelKinds) -> None:
        self._kinds = kinds
        self._count = np.zeros((0, 1), np.int32)
        self._word = np.zeros((0, 1), np.int64)
        self._lists: dict[int, dict[int, int]] | None = None

    def of(self, changes: Changes, group: Ints, kinds: Ints, found: Emissions, groups: int) -> LabelSets:
        labels = self._kinds.labels
        if self._lists is None and len(labels) > loops.WORD * _MOST_WORDS:
            self._to_lists()
        if self._lists is not None:
            return self._listed(self._lists, changes, group, kinds, found)
        self._grow(groups, len(labels))
        words = np.empty((len(found), self._word.shape[1]), np.int64)
        loops.label_words(
            changes.row, group, changes.sign, kinds, found.after, found.of, self._count, self._word, words
        )
        return words_as_sets(words, labels)

    def _grow(self, groups: int, labels: int) -> None:
        words = -(-max(labels, 1) // loops.WORD)
        if labels > self._count.shape[1] or words > self._word.shape[1]:
            self._count = np.pad(
                self._count, ((0, 0), (0, max(labels + 4, self._count.shape[1]) - self._count.shape[1]))
            )
            self._word = np.pad(self._word, ((0, 0), (0, words - self._word.shape[1])))
        self._count, self._word = grown(self._count, groups), grown(self._word, groups)

    def _to_lists(self) -> None:
        self._lists = {}
        for group, kind in zip(*(x.tolist() for x in np.nonzero(self._count)), strict=True):
            self._lists.setdefault(group, {})[kind] = int(self._count[group, kind])

    def _listed(
        self, lists: dict[int, dict[int, int]], changes: Changes, group: Ints, kinds: Ints, found: Emissions
    ) -> LabelSets:
        labels, known, numbers = self._kinds.labels, dict[frozenset[int], int](), []
        steps = list(zip(group.tolist(), changes.sign.tolist(), kinds[changes.row].tolist(), strict=True))
        done, sets = 0, dict[int, int]()
        for after, of in zip(found.after.tolist(), found.of.tolist(), strict=True):
            for own, sign, some in steps[done:after]:
                _count_labels(lists.setdefault(own, {}), sign, some, sets, own)
            done = max(done, after)
            if of not in sets:
                there = frozenset(labels[kind] for kind in lists.get(of, ()))
                sets[of] = known.setdefault(there, len(known))
            numbers.append(sets[of])
        for own, sign, some in steps[done:]:
            _count_labels(lists.setdefault(own, {}), sign, some, sets, own)
        return LabelSets(np.array(numbers, np.int64), tuple(known) or (frozenset(),))


def _count_labels(counts: dict[int, int], sign: int, kinds: list[int], sets: dict[int, int], group: int) -> None:
    for kind in kinds:
        left = counts.get(kind, 0) + sign
        if left == 0:
            del counts[kind]
        else:
            counts[kind] = left
        if left == 0 or (left == 1 and sign > 0):
            sets.pop(group, None)


def words_as_sets(words: Ints, labels: list[int]) -> LabelSets:
    """Label sets from words of bits."""
    parts = []
    for number in range(words.shape[1]):
        own = labels[number * loops.WORD : (number + 1) * loops.WORD]
        kinds, place = dense(words[:, number])
        sets = tuple(frozenset(x for bit, x in enumerate(own) if kind >> bit & 1) for kind in kinds.tolist())
        parts.append(LabelSets(place, sets or (frozenset(),)))
    return side_by_side(parts)
