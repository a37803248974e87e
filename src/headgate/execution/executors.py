"""Executors run the partitions of a program: all blocks in one partition, or the tuples hash-partitioned so that each
partition computes its part alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from typing import Protocol

import numpy as np
import pyarrow as pa

from headgate.columns.sorting import Ints, distinct
from headgate.execution.partition_groups import PartitionGroup
from headgate.execution.partitions import WHOLE, PartitionName, PartitionStates, renumbered_visibility, split
from headgate.execution.results import packed
from headgate.expressions.limits import Evaluate
from headgate.model.results import BlockResults
from headgate.model.visibility import HIDDEN, Visibility
from headgate.operators.partition import GroupResults, PartitionState, advance, empty, state_changes, with_copied
from headgate.operators.program import VISIBILITY, Program
from headgate.operators.stateless import stateless_results
from headgate.visibility.role_limits import Changes


class Executor(Protocol):
    """Runs the partitions of a program.

    INVARIANT: one call of `run` is one batch, which takes effect wholly or not at all.
    """

    @property
    def partitions(self) -> PartitionStates:
        """The state of every partition."""
        ...

    def visibilities(self) -> Ints:
        """The visibility rows that tuples in the partitions refer to; the index may forget all others."""
        return distinct(
            np.concatenate([partition.table.column(VISIBILITY).to_numpy() for partition in self.partitions.values()])
        )

    def restore(self, partition: PartitionState) -> None:
        """Continue from the state of other partitions, gathered into one."""
        ...

    def run(
        self, arriving: pa.Table, visibility: Visibility, changed: Ints | None, tables: pa.Table | None
    ) -> list[BlockResults]:
        """Process one batch and return the results of its blocks.

        `changed` maps each visibility row to the row that replaces it, if rights changed since the last batch. `tables`
        holds the tuples of tables, which partitions do not keep.
        """
        ...

    def state_changes(
        self, arriving: pa.Table, visibility: Visibility, changed: Ints | None, views: Collection[int]
    ) -> list[Changes]:
        """Tell which tuples this batch would bring into the windows of these views and take out of them. No state
        changes."""
        ...


class LocalExecutor(Executor):
    """One partition, in memory, in this process."""

    def __init__(self, program: Program, schema: pa.Schema, evaluate: Evaluate) -> None:
        self._program = program
        self._evaluate = evaluate
        self._partition = empty(schema)

    @property
    def partitions(self) -> PartitionStates:
        return {WHOLE: self._partition}

    def restore(self, partition: PartitionState) -> None:
        self._partition = partition

    def run(
        self, arriving: pa.Table, visibility: Visibility, changed: Ints | None, tables: pa.Table | None
    ) -> list[BlockResults]:
        partition = self._partition if changed is None else renumbered_visibility(self._partition, changed)
        passed = stateless_results(self._program, arriving, visibility, self._evaluate)
        self._partition, found = advance(self._program, partition, arriving, visibility, self._evaluate, tables)
        blocks = Counter(block.query for block in (*self._program.blocks, *self._program.passing))
        return [
            packed(x, stateless=passes, alone=blocks[x.block.query] == 1)
            for x, passes in (*((x, False) for x in found), *((x, True) for x in passed))
        ]

    def state_changes(
        self, arriving: pa.Table, visibility: Visibility, changed: Ints | None, views: Collection[int]
    ) -> list[Changes]:
        partition = self._partition if changed is None else renumbered_visibility(self._partition, changed)
        found = state_changes(self._program, partition, arriving, visibility, self._evaluate, views)
        return [Changes(own, *parts) for own, parts in found]


class PartitionedExecutor(Executor):
    """A fixed number of partitions for each partition group that has keys, in memory, in this process. `program` is the
    program of all groups together."""

    def __init__(self, program: Program, shares: Sequence[PartitionGroup], partitions: int, evaluate: Evaluate) -> None:
        self._program = program
        self._shares = shares
        self._count = partitions
        self._evaluate = evaluate
        self._partitions: dict[PartitionName, PartitionState] = {
            (share.name, number): empty(share.schema) for share in shares for number in range(self._cells_of(share))
        }
        self._restored: PartitionState | None = None

    @property
    def partitions(self) -> PartitionStates:
        return self._partitions if self._restored is None else {WHOLE: self._restored}

    def restore(self, partition: PartitionState) -> None:
        """The state is split among the partitions with the next batch: the levels of labels, which may be keys, are
        known only then."""
        self._restored = partition

    def run(
        self, arriving: pa.Table, visibility: Visibility, changed: Ints | None, tables: pa.Table | None
    ) -> list[BlockResults]:
        after, found = {}, list[GroupResults]()
        there: dict[PartitionName, pa.Table] = {}
        for share in self._shares if tables is not None else ():
            there |= self._dealt(share, tables, _of_share(share, visibility))
        for share, own, name, partition, coming in self._each(arriving, visibility, changed):
            after[name], yielded = advance(share.program, partition, coming, own, self._evaluate, there.get(name))
            found += yielded
        passed = stateless_results(self._program, arriving, visibility, self._evaluate)
        self._partitions, self._restored = after, None
        return _packed(found, passed)

    def state_changes(
        self, arriving: pa.Table, visibility: Visibility, changed: Ints | None, views: Collection[int]
    ) -> list[Changes]:
        found = list[Changes]()
        for share, own, _, partition, coming in self._each(arriving, visibility, changed):
            mine = _views(own).intersection(views)
            parts = state_changes(share.program, partition, coming, own, self._evaluate, mine)
            found += [Changes(looking, *part) for looking, part in parts]
        return found

    def _each(
        self, arriving: pa.Table, visibility: Visibility, changed: Ints | None
    ) -> Iterator[tuple[PartitionGroup, Visibility, PartitionName, PartitionState, pa.Table]]:
        """Every partition, with its group, its group's visibility, its name, its state and its part of the arriving
        tuples."""
        partitions = self._partitions
        if self._restored is not None:
            partitions = {
                name: partition
                for share in self._shares
                for name, partition in self._anew(share, self._restored, visibility)
            }
        for share in self._shares:
            own = _of_share(share, visibility)
            for name, coming in self._dealt(share, arriving, own):
                yield (
                    share,
                    own,
                    name,
                    partitions[name] if changed is None else renumbered_visibility(partitions[name], changed),
                    coming,
                )

    def _cells_of(self, share: PartitionGroup) -> int:
        return self._count if share.deal else 1

    def _dealt(
        self, share: PartitionGroup, arriving: pa.Table, visibility: Visibility
    ) -> Iterator[tuple[PartitionName, pa.Table]]:
        """For each partition of a group: its part of those tuples that at least one view of the group sees."""
        table = arriving.select(share.schema.names)
        seen = (visibility.table[:, sorted(_views(visibility))] != HIDDEN).any(axis=1)
        table = table.filter(pa.array(seen[table.column(VISIBILITY).to_numpy()]))
        numbers = share.partition_numbers(table, visibility.levels, self._count)
        for number in range(self._cells_of(share)):
            yield (share.name, number), table.filter(pa.array(numbers == number))

    def _anew(
        self, share: PartitionGroup, partition: PartitionState, visibility: Visibility
    ) -> Iterator[tuple[PartitionName, PartitionState]]:
        """Split a state that holds the tuples of all groups into the partitions of one group."""
        classes = with_copied(partition.classes, visibility.copied)
        own = replace(partition, table=partition.table.select(share.schema.names), classes=classes)
        numbers = share.partition_numbers(own.table, visibility.levels, self._count)
        for number, part in enumerate(split(own, numbers, self._cells_of(share), _views(_of_share(share, visibility)))):
            yield (share.name, number), part


def _of_share(share: PartitionGroup, visibility: Visibility) -> Visibility:
    """The visibility as the partitions of one group need it: views of other groups' blocks have no target here."""
    pushdown = share.targets()
    return replace(
        visibility, targets=tuple(target if target in pushdown else ("", 0) for target in visibility.targets)
    )


def _views(visibility: Visibility) -> frozenset[int]:
    return frozenset(view for view, (query, _) in enumerate(visibility.targets) if query)


def _packed(found: Sequence[GroupResults], passed: Sequence[GroupResults]) -> list[BlockResults]:
    return [*(packed(x, stateless=False) for x in found), *(packed(x, stateless=True) for x in passed)]
