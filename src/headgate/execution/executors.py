"""Executors run the partitions of a program: all blocks in one partition, or the tuples hash-partitioned so that each
partition computes its part alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from headgate.columns.sorting import Ints, distinct
from headgate.execution.compile import FIELDS
from headgate.execution.partition_groups import PartitionGroup
from headgate.execution.partitions import WHOLE, PartitionName, PartitionStates, fitted, gathered, split
from headgate.execution.results import Numbered, packed
from headgate.expressions.limits import Evaluate
from headgate.model.results import BlockResults
from headgate.model.times import NO_TIME
from headgate.model.visibility import Visibility, VisibilityRows
from headgate.operators.evaluation import BlockEmitted
from headgate.operators.partition import Partition
from headgate.operators.partition_state import PartitionState, StoredPartition
from headgate.operators.profile import Step, side_by_side
from headgate.operators.program import Program
from headgate.operators.segments import Numbers, Write
from headgate.operators.stateless import Stateless
from headgate.visibility.role_limits import WindowChanges

Partitions = Mapping[PartitionName, PartitionState] | Mapping[PartitionName, StoredPartition]


class Executor(Protocol):
    """Runs the partitions of a program.

    INVARIANT: one call of `run` is one batch, which takes effect wholly or not at all.
    """

    @property
    def partitions(self) -> PartitionStates:
        """The state of every partition, whole, in memory."""
        ...

    def save(self, write: Write, identities: Ints) -> dict[PartitionName, dict[str, Any]]:
        """Write what changed in each partition since the last call; returns their records, for a manifest.
        `identities` are those of visibility rows, by their number."""
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

    def restore(
        self, partitions: Partitions, streams: tuple[str, ...], visibility: Visibility, numbers: Numbers
    ) -> None:
        """Continue from the state of other partitions, of a program with these streams, as it was after its last batch.
        `numbers` gives the numbers of visibility rows from their identities."""
        ...

    def waits(self, since: int, until: int) -> bool:
        """Whether a tuple with a time in [since, until) waits for a view."""
        ...

    @property
    def latest(self) -> int:
        """The latest time of all tuples that came."""
        ...

    def counted(self) -> Callable[[int], dict[str, Step]]:
        """What the steps of the plan did for each view, by their names, from the start of this executor to now."""
        ...

    def run(self, arriving: pa.Table, visibility: Visibility, tables: pa.Table | None) -> list[BlockResults]:
        """Process one batch and return the results of its blocks. `tables` holds the tuples of tables."""
        ...

    def state_changes(
        self, arriving: pa.Table, visibility: Visibility, tables: pa.Table | None, views: Collection[int]
    ) -> list[WindowChanges]:
        """Tell which tuples this batch will bring into the windows of these views and take out of them. The batch
        itself comes next."""
        ...


class LocalExecutor(Executor):
    """One partition, in memory, in this process."""

    def __init__(self, program: Program, schema: pa.Schema, evaluate: Evaluate) -> None:
        self._program = program
        self._schema = schema
        self._evaluate = evaluate
        self._stateless = Stateless(program, evaluate)
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

    def save(self, write: Write, identities: Ints) -> dict[PartitionName, dict[str, Any]]:
        return {WHOLE: self._partition.save(write, identities)}

    def restore(
        self, partitions: Partitions, streams: tuple[str, ...], visibility: Visibility, numbers: Numbers
    ) -> None:
        self._partition = Partition(self._program, self._schema, self._evaluate)
        whole = partitions.get(WHOLE)
        if isinstance(whole, StoredPartition) and len(partitions) == 1:
            self._partition.load(whole, visibility, numbers)
        else:
            program = self._program, self._schema, self._evaluate
            self._partition.adopt(as_one(partitions, streams, *program, visibility, numbers))

    def waits(self, since: int, until: int) -> bool:
        return self._partition.waits(since, until)

    @property
    def latest(self) -> int:
        return self._partition.latest

    def counted(self) -> Callable[[int], dict[str, Step]]:
        held, passed = self._partition.counted(), self._stateless.counted()
        return lambda view: {**held.of(view), **passed.of(view)}

    def run(self, arriving: pa.Table, visibility: Visibility, tables: pa.Table | None) -> list[BlockResults]:
        passed = self._stateless.results(arriving, visibility)
        found = self._partition.advance(arriving, visibility, tables)
        blocks = Counter(block.query for block in (*self._program.blocks, *self._program.stateless))
        return [
            packed(x, tuples, stateless=passes, alone=blocks[x.block.query] == 1)
            for some, passes in ((found, False), (passed, True))
            for x, tuples in some
        ]

    def state_changes(
        self, arriving: pa.Table, visibility: Visibility, tables: pa.Table | None, views: Collection[int]
    ) -> list[WindowChanges]:
        found = self._partition.state_changes(arriving, visibility, tables, views)
        return [WindowChanges(own, *parts) for own, parts in found]


class PartitionedExecutor(Executor):
    """A fixed number of partitions for each partition group that has keys, in memory, in this process. `program` is the
    program of all groups together."""

    def __init__(self, program: Program, groups: Sequence[PartitionGroup], partitions: int, evaluate: Evaluate) -> None:
        self._program = program
        self._groups = groups
        self._count = partitions
        self._evaluate = evaluate
        self._stateless = Stateless(program, evaluate)
        self._schema = pa.unify_schemas([pa.schema(FIELDS), *(group.schema for group in groups)])
        self._partitions = self._empty()
        self._divided: tuple[pa.Table, dict[PartitionName, pa.Table]] | None = None
        self._tables: tuple[pa.Table, dict[PartitionName, pa.Table]] | None = None

    @property
    def partitions(self) -> PartitionStates:
        return {name: partition.state() for name, partition in self._partitions.items()}

    def save(self, write: Write, identities: Ints) -> dict[PartitionName, dict[str, Any]]:
        return {name: partition.save(write, identities) for name, partition in self._partitions.items()}

    def __len__(self) -> int:
        return sum(map(len, self._partitions.values()))

    def visibilities(self) -> Ints:
        found = [partition.visibilities() for partition in self._partitions.values()]
        return distinct(np.concatenate([np.empty(0, np.int64), *found]))

    def waiting(self, views: Sequence[int], table: VisibilityRows, since: int) -> Ints:
        parts = [partition.waiting(views, table, since) for partition in self._partitions.values()]
        arrivals, times = (np.concatenate([np.empty(0, np.int64), *x]) for x in zip(*parts, strict=True))
        _, first = np.unique(arrivals, return_index=True)
        return np.asarray(times[first], np.int64)

    def waits(self, since: int, until: int) -> bool:
        return any(partition.waits(since, until) for partition in self._partitions.values())

    @property
    def latest(self) -> int:
        return max((partition.latest for partition in self._partitions.values()), default=NO_TIME)

    def renumber_visibility(self, changed: Ints) -> None:
        for partition in self._partitions.values():
            partition.renumber_visibility(changed)

    def restore(
        self, partitions: Partitions, streams: tuple[str, ...], visibility: Visibility, numbers: Numbers
    ) -> None:
        self._partitions = self._empty()
        if are_divided_so(partitions, self._groups, self._count):
            for name, stored in partitions.items():
                if isinstance(stored, StoredPartition):
                    group = next(x for x in self._groups if x.name == name[0])
                    self._partitions[name].load(stored, of_group(group, visibility), numbers)
            return
        program = self._program, self._schema, self._evaluate
        whole = as_one(partitions, streams, *program, visibility, numbers)
        for group in self._groups:
            for name, state in divided(group, whole, visibility, self._count):
                self._partitions[name].adopt(state)

    def counted(self) -> Callable[[int], dict[str, Step]]:
        parts, passed = [x.counted() for x in self._partitions.values()], self._stateless.counted()
        return lambda view: {**side_by_side(x.of(view) for x in parts), **passed.of(view)}

    def run(self, arriving: pa.Table, visibility: Visibility, tables: pa.Table | None) -> list[BlockResults]:
        found: list[tuple[BlockEmitted, Numbered]] = []
        for own, partition, coming, there in self._each(arriving, visibility, tables):
            found += partition.advance(coming, own, there)
        passed = self._stateless.results(arriving, visibility)
        return [
            *(packed(x, tuples, stateless=False) for x, tuples in found),
            *(packed(x, tuples, stateless=True) for x, tuples in passed),
        ]

    def state_changes(
        self, arriving: pa.Table, visibility: Visibility, tables: pa.Table | None, views: Collection[int]
    ) -> list[WindowChanges]:
        found = list[WindowChanges]()
        for own, partition, coming, there in self._each(arriving, visibility, tables):
            mine = _views(own).intersection(views)
            found += [
                WindowChanges(seeing, *part) for seeing, part in partition.state_changes(coming, own, there, mine)
            ]
        return found

    def _each(
        self, arriving: pa.Table, visibility: Visibility, tables: pa.Table | None
    ) -> Iterator[tuple[Visibility, Partition, pa.Table, pa.Table | None]]:
        """Every partition, with its group's visibility, its part of the arriving tuples, and its part of the tables."""
        if self._divided is None or self._divided[0] is not arriving:
            self._divided = arriving, self._parts(arriving, visibility)
        if tables is not None and (self._tables is None or self._tables[0] is not tables):
            self._tables = tables, self._parts(tables, visibility)
        for group in self._groups:
            own = of_group(group, visibility)
            for number in range(self._partitions_of(group)):
                name = group.name, number
                there = None if tables is None or self._tables is None else self._tables[1][name]
                yield own, self._partitions[name], self._divided[1][name], there

    def _empty(self) -> dict[PartitionName, Partition]:
        return {
            (group.name, number): Partition(group.program, group.schema, self._evaluate)
            for group in self._groups
            for number in range(self._partitions_of(group))
        }

    def _partitions_of(self, group: PartitionGroup) -> int:
        return self._count if group.partitioning else 1

    def _parts(self, table: pa.Table, visibility: Visibility) -> dict[PartitionName, pa.Table]:
        """The part of each partition."""
        found = {}
        for group in self._groups:
            part = table.select(group.schema.names)
            numbers = group.partition_numbers(part, visibility.levels, self._count)
            for number in range(self._partitions_of(group)):
                found[group.name, number] = part.filter(pa.array(numbers == number))
        return found


def divided(
    group: PartitionGroup, partition: PartitionState, visibility: Visibility, count: int
) -> Iterator[tuple[PartitionName, PartitionState]]:
    """Split a state that holds the tuples of all groups into the partitions of one group."""
    own = replace(partition, table=partition.table.select(group.schema.names))
    numbers = group.partition_numbers(own.table, visibility.levels, count)
    views = _views(of_group(group, visibility)) | {old for _, old in visibility.copied}
    for number, part in enumerate(split(own, numbers, count if group.partitioning else 1, views)):
        yield (group.name, number), part


def are_divided_so(partitions: Partitions, groups: Sequence[PartitionGroup], count: int) -> bool:
    """Whether partitions that were written are divided into these groups, and compute the same blocks."""
    stored = {name: x.record["blocks"] for name, x in partitions.items() if isinstance(x, StoredPartition)}
    own = {(group.name, x): group for group in groups for x in range(count if group.partitioning else 1)}
    return (
        bool(stored)
        and stored.keys() == own.keys()
        and all(sorted(map(tuple, blocks)) == sorted(own[name].targets()) for name, blocks in stored.items())
    )


def as_one(
    partitions: Partitions,
    streams: tuple[str, ...],
    program: Program,
    schema: pa.Schema,
    evaluate: Evaluate,
    visibility: Visibility,
    numbers: Numbers,
) -> PartitionState:
    """The state of these partitions, of a program with these streams, as one partition of another program. A partition
    that was written has the stream numbers of this other program as soon as it is read."""
    found, numbered = {}, streams
    for name, state in partitions.items():
        if isinstance(state, StoredPartition):
            partition, numbered = Partition(program, schema, evaluate), program.streams
            partition.load(state, visibility, numbers)
            whole, own = partition.state(), set(state.record["columns"])
            found[name] = replace(whole, table=whole.table.select([x for x in whole.table.schema.names if x in own]))
        else:
            found[name] = state
    return fitted(gathered(found), numbered, program, schema)


def of_group(group: PartitionGroup, visibility: Visibility) -> Visibility:
    """The visibility as the partitions of one group need it: views of other groups' blocks have no target here."""
    wanted = group.targets()
    return replace(visibility, targets=tuple(x if x in wanted else ("", 0) for x in visibility.targets))


def _views(visibility: Visibility) -> frozenset[int]:
    return frozenset(view for view, (query, _) in enumerate(visibility.targets) if query)
