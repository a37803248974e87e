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
from headgate.execution.results import Numbered, packed
from headgate.expressions.limits import Evaluate
from headgate.model.results import BlockResults
from headgate.model.visibility import HIDDEN, Visibility, VisibilityRows
from headgate.operators.evaluation import BlockEmitted
from headgate.operators.partition import Partition, PartitionState
from headgate.operators.program import TIME, VISIBILITY, Program
from headgate.operators.stateless import stateless_results
from headgate.visibility.role_limits import Changes


class Executor(Protocol):
    """Runs the partitions of a program.

    INVARIANT: one call of `run` is one batch, which takes effect wholly or not at all.
    """

    @property
    def partitions(self) -> PartitionStates:
        """The state of every partition, as it can be written down."""
        ...

    def __len__(self) -> int:
        """How many tuples the partitions keep."""
        ...

    def visibilities(self) -> Ints:
        """The visibility rows that tuples in the partitions refer to; the index may forget all others."""
        ...

    def waiting(self, views: Sequence[int], table: VisibilityRows, since: int) -> Ints:
        """The times of the tuples that wait to become final for these views, since a time. A tuple that several
        partition groups keep counts once."""
        ...

    def renumber_visibility(self, changed: Ints) -> None:
        """Replace each visibility row by another: rights have changed."""
        ...

    def restore(self, partition: PartitionState) -> None:
        """Continue from the state of other partitions, gathered into one."""
        ...

    def run(self, arriving: pa.Table, visibility: Visibility, tables: pa.Table | None) -> list[BlockResults]:
        """Process one batch and return the results of its blocks. `tables` holds the tuples of tables."""
        ...

    def state_changes(
        self, arriving: pa.Table, visibility: Visibility, tables: pa.Table | None, views: Collection[int]
    ) -> list[Changes]:
        """Tell which tuples this batch will bring into the windows of these views and take out of them. The batch
        itself comes next."""
        ...


class LocalExecutor(Executor):
    """One partition, in memory, in this process."""

    def __init__(self, program: Program, schema: pa.Schema, evaluate: Evaluate) -> None:
        self._program = program
        self._schema = schema
        self._evaluate = evaluate
        self._partition = Partition(program, schema, evaluate)

    @property
    def partitions(self) -> PartitionStates:
        return {WHOLE: self._partition.state()}

    def __len__(self) -> int:
        return len(self._partition)

    def visibilities(self) -> Ints:
        return self._partition.visibilities()

    def waiting(self, views: Sequence[int], table: VisibilityRows, since: int) -> Ints:
        return self._partition.waiting(views, table, since)[1]

    def renumber_visibility(self, changed: Ints) -> None:
        self._partition.renumber_visibility(changed)

    def restore(self, partition: PartitionState) -> None:
        self._partition = Partition(self._program, self._schema, self._evaluate)
        self._partition.load(partition)

    def run(self, arriving: pa.Table, visibility: Visibility, tables: pa.Table | None) -> list[BlockResults]:
        passed = stateless_results(self._program, arriving, visibility, self._evaluate)
        found = self._partition.advance(arriving, visibility, tables)
        blocks = Counter(block.query for block in (*self._program.blocks, *self._program.passing))
        return [
            packed(x, tuples, stateless=passes, alone=blocks[x.block.query] == 1)
            for some, passes in ((found, False), (passed, True))
            for x, tuples in some
        ]

    def state_changes(
        self, arriving: pa.Table, visibility: Visibility, tables: pa.Table | None, views: Collection[int]
    ) -> list[Changes]:
        found = self._partition.state_changes(arriving, visibility, tables, views)
        return [Changes(own, *parts) for own, parts in found]


class PartitionedExecutor(Executor):
    """A fixed number of partitions for each partition group that has keys, in memory, in this process. `program` is the
    program of all groups together."""

    def __init__(self, program: Program, shares: Sequence[PartitionGroup], partitions: int, evaluate: Evaluate) -> None:
        self._program = program
        self._shares = shares
        self._count = partitions
        self._evaluate = evaluate
        self._partitions = {
            (share.name, number): Partition(share.program, share.schema, evaluate)
            for share in shares
            for number in range(self._partitions_of(share))
        }
        self._restored: PartitionState | None = None
        self._dealt: tuple[pa.Table, dict[PartitionName, pa.Table]] | None = None
        self._tables: tuple[pa.Table, dict[PartitionName, pa.Table]] | None = None

    @property
    def partitions(self) -> PartitionStates:
        if self._restored is not None:
            return {WHOLE: self._restored}
        return {name: partition.state() for name, partition in self._partitions.items()}

    def __len__(self) -> int:
        kept = 0 if self._restored is None else self._restored.table.num_rows
        return kept + sum(map(len, self._partitions.values()))

    def visibilities(self) -> Ints:
        found = [partition.visibilities() for partition in self._partitions.values()]
        if self._restored is not None:
            found.append(self._restored.table.column(VISIBILITY).to_numpy())
        return distinct(np.concatenate([np.empty(0, np.int64), *found]))

    def waiting(self, views: Sequence[int], table: VisibilityRows, since: int) -> Ints:
        if self._restored is not None:
            kept = self._restored.table
            visibilities, times = (kept.column(x).to_numpy() for x in (VISIBILITY, TIME))
            seen = (table[:, views] != HIDDEN).any(axis=1)[visibilities]
            return np.asarray(times[seen & (times >= since)], np.int64)
        parts = [partition.waiting(views, table, since) for partition in self._partitions.values()]
        arrivals, times = (np.concatenate([np.empty(0, np.int64), *x]) for x in zip(*parts, strict=True))
        _, first = np.unique(arrivals, return_index=True)
        return np.asarray(times[first], np.int64)

    def renumber_visibility(self, changed: Ints) -> None:
        if self._restored is not None:
            self._restored = renumbered_visibility(self._restored, changed)
        for partition in self._partitions.values():
            partition.renumber_visibility(changed)

    def restore(self, partition: PartitionState) -> None:
        """The state is split among the partitions with the next batch: the levels of labels, which may be keys, are
        known only then."""
        self._restored = partition

    def run(self, arriving: pa.Table, visibility: Visibility, tables: pa.Table | None) -> list[BlockResults]:
        found: list[tuple[BlockEmitted, Numbered]] = []
        for own, partition, coming, there in self._each(arriving, visibility, tables):
            found += partition.advance(coming, own, there)
        passed = stateless_results(self._program, arriving, visibility, self._evaluate)
        return [
            *(packed(x, tuples, stateless=False) for x, tuples in found),
            *(packed(x, tuples, stateless=True) for x, tuples in passed),
        ]

    def state_changes(
        self, arriving: pa.Table, visibility: Visibility, tables: pa.Table | None, views: Collection[int]
    ) -> list[Changes]:
        found = list[Changes]()
        for own, partition, coming, there in self._each(arriving, visibility, tables):
            mine = _views(own).intersection(views)
            found += [Changes(seeing, *part) for seeing, part in partition.state_changes(coming, own, there, mine)]
        return found

    def _each(
        self, arriving: pa.Table, visibility: Visibility, tables: pa.Table | None
    ) -> Iterator[tuple[Visibility, Partition, pa.Table, pa.Table | None]]:
        """Every partition, with its group's visibility, its part of the arriving tuples, and its part of the tables."""
        if self._restored is not None:
            for share in self._shares:
                for name, state in self._anew(share, self._restored, visibility):
                    self._partitions[name].load(state)
            self._restored = None
        if self._dealt is None or self._dealt[0] is not arriving:
            self._dealt = arriving, self._parts(arriving, visibility)
        if tables is not None and (self._tables is None or self._tables[0] is not tables):
            self._tables = tables, self._parts(tables, visibility)
        for share in self._shares:
            own = _of_share(share, visibility)
            for number in range(self._partitions_of(share)):
                name = share.name, number
                there = None if tables is None or self._tables is None else self._tables[1][name]
                yield own, self._partitions[name], self._dealt[1][name], there

    def _partitions_of(self, share: PartitionGroup) -> int:
        return self._count if share.deal else 1

    def _parts(self, table: pa.Table, visibility: Visibility) -> dict[PartitionName, pa.Table]:
        """The part of each partition."""
        found = {}
        for share in self._shares:
            part = table.select(share.schema.names)
            numbers = share.partition_numbers(part, visibility.levels, self._count)
            for number in range(self._partitions_of(share)):
                found[share.name, number] = part.filter(pa.array(numbers == number))
        return found

    def _anew(
        self, share: PartitionGroup, partition: PartitionState, visibility: Visibility
    ) -> Iterator[tuple[PartitionName, PartitionState]]:
        """Split a state that holds the tuples of all groups into the partitions of one group."""
        own = replace(partition, table=partition.table.select(share.schema.names))
        numbers = share.partition_numbers(own.table, visibility.levels, self._count)
        views = _views(_of_share(share, visibility)) | {old for _, old in visibility.copied}
        for number, part in enumerate(split(own, numbers, self._partitions_of(share), views)):
            yield (share.name, number), part


def _of_share(share: PartitionGroup, visibility: Visibility) -> Visibility:
    """The visibility as the partitions of one group need it: views of other groups' blocks have no target here."""
    pushdown = share.targets()
    return replace(
        visibility, targets=tuple(target if target in pushdown else ("", 0) for target in visibility.targets)
    )


def _views(visibility: Visibility) -> frozenset[int]:
    return frozenset(view for view, (query, _) in enumerate(visibility.targets) if query)
