"""The labels of groups: which labels the tuples of each group have, kept up to date, as sets with numbers."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

import numpy as np

from headgate.columns.narrow import narrowed
from headgate.columns.sorting import Ints, dense
from headgate.loops import labels as loops
from headgate.loops.arrays import grown
from headgate.loops.counts import Counts
from headgate.loops.hashing import Interner
from headgate.operators.label_sets import LabelSets

if TYPE_CHECKING:
    from headgate.operators.block_rows import Changes
    from headgate.operators.grouping import Emissions
    from headgate.operators.sequence import Narrow

MOST_CELLS = 1 << 22
"""Counts have a place for each group and label up to this many, then a hash table."""
_MOST_SETS = 4096
"""Sets of labels that are remembered from batch to batch."""
_CACHED = 4096


class LabelKinds:
    """Small numbers for the labels that a view group has seen, with a random token for each."""

    def __init__(self) -> None:
        self.labels: list[int] = []
        self.tokens: Ints = np.empty((0, 2), np.int64)
        self._kinds: dict[int, int] = {}
        self._cached = np.full(_CACHED, -1)
        self._cached_kinds = np.empty(_CACHED, np.int64)

    def __len__(self) -> int:
        return len(self.labels)

    def of(self, labels: Ints) -> Ints:
        found, missed = np.empty(len(labels), np.int64), np.empty(len(labels), np.int64)
        missed = missed[: loops.kinds_of(labels, *self.cached, found, missed)]
        if len(missed):
            found[missed] = self.kinds_of_new(labels[missed])
        return found

    @property
    def cached(self) -> tuple[Ints, Ints]:
        """Labels that were asked for lately, each at a place that its number tells, and their kinds."""
        return self._cached, self._cached_kinds

    def kinds_of_new(self, labels: Ints) -> Ints:
        """The kinds of labels that are not cached; from now on they are."""
        kinds, kind = dense(labels)
        numbers = np.array([self._kind(label) for label in kinds.tolist()], np.int64)
        places = kinds & (_CACHED - 1)
        self._cached[places], self._cached_kinds[places] = kinds, numbers
        return numbers[kind]

    def _kind(self, label: int) -> int:
        if label not in self._kinds:
            self._kinds[label] = len(self.labels)
            self.labels.append(label)
            if len(self.labels) > len(self.tokens):
                more = np.frombuffer(secrets.token_bytes(16 * (len(self.labels) + 16)), np.int64).reshape(-1, 2)
                self.tokens = np.concatenate([self.tokens, more])
        return self._kinds[label]


class GroupLabels:
    """The labels of the groups of one grouping."""

    def __init__(self, kinds: LabelKinds) -> None:
        self._kinds = kinds
        self._cells = np.zeros((1, 1), np.int32)
        self._counts = Counts()
        self._sums = np.zeros((0, 2), np.int64)
        self._number = np.empty(0, np.int64)
        self._ends = self._members = np.empty(0, np.int64)
        self._forget_sets()

    def of(self, changes: Changes, group: Ints, kinds: Narrow, found: Emissions, groups: int) -> LabelSets:
        """The labels of each emitted group. `group` is the group of each change, `kinds` has the labels of rows by
        side."""
        self._room(groups, len(changes.row) * kinds.shape[1])
        numbers, progress = np.empty(len(found), np.int64), np.zeros(3, np.int64)
        progress[loops.MEMBERS] = self._ends[len(self._sets) - 1] if self._sets else 0
        counts, tokens, interned = self._counts, self._kinds.tokens[: len(self._kinds)], self._interned
        while not loops.set_numbers(
            changes.row, group, changes.sign, kinds, found.after, found.of, self._cells, counts.table, counts.seed,
            counts.used, tokens, self._sums, self._number, interned.table, interned.a, interned.b, interned.size,
            interned.seed, self._ends, self._members, progress, numbers,
        ):  # fmt: skip
            interned.reserve(1)
            self._ends = grown(self._ends, len(interned.a))
            self._members = grown(self._members, int(progress[loops.MEMBERS]) + len(tokens))
        sets = self._listed()
        if len(sets) > _MOST_SETS:
            self._forget_sets()
            self._number[:] = -1
        return LabelSets(narrowed(numbers, len(sets)), sets)

    def _room(self, groups: int, changes: int) -> None:
        self._sums, self._number = grown(self._sums, groups), grown(self._number, groups, -1)
        labels = len(self._kinds)
        if len(self._cells):
            held, wide = self._cells.shape
            if groups * labels > max(MOST_CELLS, held * wide):
                self._counts.reserve(int(np.count_nonzero(self._cells)))
                loops.into_table(self._cells, self._counts.table, self._counts.seed, self._counts.used)
                self._cells = np.zeros((0, 1), np.int32)
            elif labels > wide:
                self._cells = np.pad(self._cells, ((0, 0), (0, labels + 4 - wide)))
        if len(self._cells):
            self._cells = grown(self._cells, groups)
        else:
            self._counts.reserve(changes)

    def _listed(self) -> tuple[frozenset[int], ...]:
        """All sets that have a number, by number."""
        known, size = len(self._sets), len(self._interned)
        if known < size:
            ends = [0, *self._ends[:size].tolist()]
            labels, members = self._kinds.labels, self._members[ends[known] : ends[size]].tolist()
            begin = ends[known]
            self._sets += tuple(
                frozenset(labels[kind] for kind in members[first - begin : end - begin])
                for first, end in zip(ends[known:-1], ends[known + 1 :], strict=True)
            )
        return self._sets

    def _forget_sets(self) -> None:
        self._sets: tuple[frozenset[int], ...] = ()
        self._interned = Interner(paired=True)
        self._ends, self._members = np.zeros(len(self._interned.a), np.int64), np.empty(1024, np.int64)
