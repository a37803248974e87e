"""What goes to the tasks of a batch, and what comes back from them. All of it can be pickled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from headgate.columns.sorting import Ints
from headgate.execution.executors import of_group
from headgate.execution.partition_groups import PartitionGroup
from headgate.execution.partitions import PartitionName
from headgate.expressions.limits import Evaluate
from headgate.ingress.pushdown import Pushdown
from headgate.ingress.splits import Split
from headgate.model.budget import Budget
from headgate.model.results import BlockResults, Workers
from headgate.model.stream import StreamDescriptor
from headgate.model.tuples import TupleBatch
from headgate.model.view import View
from headgate.model.visibility import Visibility
from headgate.operators.partition import Partition
from headgate.operators.partition_state import StoredPartition
from headgate.operators.profile import Step as Done
from headgate.operators.program import Program
from headgate.operators.segments import Numbers
from headgate.storage import Storage, read_table, write_table
from headgate.visibility.numbering import Numbering
from headgate.visibility.splits import SplitSummary

STATELESS = "stateless"
"""The name of the partitions of stateless blocks, which keep no state: names of groups have a full stop, or are
empty."""


@dataclass(frozen=True)
class TaskPlan:
    """What tasks run until queries change.

    run: identifies this plan among all that a worker may have met
    program: all blocks; `groups` are the windowed ones by partitioning
    partitions: how many partitions a group has that can be partitioned
    """

    run: str
    program: Program
    schema: pa.Schema
    groups: tuple[PartitionGroup, ...]
    partitions: int
    evaluate: Evaluate
    storage: Storage

    @property
    def windowed(self) -> list[PartitionName]:
        """The partitions that keep state, in order."""
        return [(group.name, number) for group in self.groups for number in range(self.partitions_of(group))]

    @property
    def names(self) -> list[PartitionName]:
        """All partitions, in order."""
        stateless = range(self.partitions if self.program.stateless else 0)
        return [*self.windowed, *((STATELESS, number) for number in stateless)]

    def partitions_of(self, group: PartitionGroup) -> int:
        return self.partitions if group.partitioning else 1

    def group(self, name: str) -> PartitionGroup:
        return next(group for group in self.groups if group.name == name)

    def schema_of(self, stream: str) -> pa.Schema:
        """The schema without the columns of other streams."""
        others = {field for (own, _), field in self.program.columns.items() if own != stream}
        return pa.schema([field for field in self.schema if field.name not in others])

    def parts(self, table: pa.Table, levels: Mapping[int, str]) -> dict[PartitionName, pa.Table]:
        """The tuples of each partition of windowed blocks, in their order."""
        found = {}
        for group in self.groups:
            part = table.select([name for name in group.schema.names if name in table.column_names])
            count = self.partitions_of(group)
            if count == 1:
                found[group.name, 0] = part
                continue
            numbers = group.partition_numbers(part, levels, count).astype(np.int16)
            ends = np.cumsum(np.bincount(numbers, minlength=count))
            part = part.take(pa.array(np.argsort(numbers, kind="stable")))
            for number, end in enumerate(ends.tolist()):
                begin = int(ends[number - 1]) if number else 0
                found[group.name, number] = part.slice(begin, end - begin)
        return found


@dataclass(frozen=True)
class TaskRecord:
    """The state of a partition as a task wrote it.

    key: another state has another
    record: what a version names it by (`Partition.save`), as plain values
    size: how many tuples it holds
    rows: the visibility rows that they have
    latest: the latest time of all tuples that came
    """

    key: str
    record: Mapping[str, Any]
    size: int
    rows: Ints
    latest: int

    @classmethod
    def of(cls, record: Mapping[str, Any], numbers: Numbers) -> TaskRecord:
        """From the record of a version."""
        key, size, identities, latest = record["task"]
        rows = numbers(np.array(identities, np.int64))
        return cls(key, record, size, rows[rows >= 0], latest)


def recorded(plan: TaskPlan, key: str, partition: Partition, identities: Ints) -> TaskRecord:
    """Write what changed in a partition, under names that begin with `key`."""
    files = count()

    def write(table: pa.Table) -> str:
        name = f"{key}-{next(files)}.arrow"
        write_table(plan.storage, name, table)
        return name

    record, rows = partition.save(write, identities), partition.visibilities()
    known = [key, len(partition), identities[rows].tolist(), partition.latest]
    return TaskRecord(key, {**record, "task": known}, len(partition), rows, partition.latest)


@dataclass(frozen=True)
class Base:
    """The states that the partitions of a batch continue from; a partition that is not there begins empty.

    visibility, numbering: as they were after the last batch
    changed: how rights have renumbered visibility rows since; None: not at all
    """

    records: Mapping[PartitionName, TaskRecord] = field(default_factory=dict)
    visibility: Visibility | None = None
    numbering: Numbering | None = None
    changed: Ints | None = None

    def renumbered(self, changed: Ints) -> Base:
        return replace(self, changed=changed if self.changed is None else changed[self.changed])

    def load(self, partition: Partition, name: PartitionName, group: PartitionGroup, storage: Storage) -> None:
        """Bring a new partition into the state of this name."""
        known = self.records.get(name)
        if known is not None and self.visibility is not None and self.numbering is not None:
            stored = StoredPartition(known.record, partial(read_table, storage))
            partition.load(stored, of_group(group, self.visibility), self.numbering)
            if self.changed is not None:
                partition.renumber_visibility(self.changed)


@dataclass(frozen=True)
class TaskStep:
    """One batch.

    number: the batch in its run; file names are made of it
    visibility: None as long as it is not known
    identities: those of visibility rows, by their number
    tables: the tuples of tables, and a number that changes with them
    """

    number: int
    base: Base
    visibility: Visibility | None
    identities: Ints
    tables: tuple[int, pa.Table | None] = (0, None)


@dataclass(frozen=True)
class Intake:
    """What tasks need to read the splits of a stream.

    rows: the visibility row of each label that somebody sees
    """

    descriptor: StreamDescriptor
    pushdown: Pushdown
    now: int
    rows: Mapping[int, int]
    levels: Mapping[int, str]


class DerivedSplit(Protocol):
    """Results of an earlier stage, as tuples for this one.

    rows: the visibility row of each label that somebody sees
    """

    @property
    def number(self) -> int: ...

    @property
    def size(self) -> int: ...

    @property
    def rows(self) -> Mapping[int, int]: ...

    def tuples(self) -> TupleBatch:
        """Reads them."""
        ...


class GivenResults(Protocol):
    """Results of a query that another one reads: the numbers of their labels, and the views that they are for."""

    @property
    def stream(self) -> str: ...

    @property
    def labels(self) -> Sequence[int]: ...

    @property
    def views(self) -> tuple[View, ...]: ...

    def __len__(self) -> int: ...

    def splits(self, rows: Mapping[int, int], first: int) -> Sequence[DerivedSplit]:
        """Their splits, numbered from `first` on; `rows` has the visibility row of each label that somebody sees."""
        ...


@dataclass(frozen=True)
class ResultIntake:
    """What tasks need to read the results of an earlier stage, beside the splits."""

    levels: Mapping[int, str]


@dataclass(frozen=True)
class IndexBefore:
    """What the visibility of a batch follows from, once tasks have summed its splits up.

    index: the visibility index before the batch, pickled: each task moves a copy of its own
    stream: the stream of all tuples
    floors: the watermarks that the clock gives streams after the batch
    """

    index: bytes
    stream: str
    floors: Mapping[str, int]


@dataclass(frozen=True)
class SplitStep:
    """One batch whose tuples tasks read.

    arrived: the arrival number of the first tuple
    before: what the visibility of the step follows from; None: the step has it already
    """

    step: TaskStep
    arrived: int
    before: IndexBefore | None = None


@dataclass(frozen=True)
class TaskRefusal:
    """Why tasks did not take a batch: new label texts, or (`driver`) because the driver must decide tuple by tuple."""

    unknown: frozenset[tuple[str | None, ...]] = frozenset()
    driver: str = ""


@dataclass(frozen=True)
class Outcome:
    """What a task did with one partition: its row of the manifest.

    record: the new state; None for stateless blocks
    splits: the summaries of all splits, if tasks read them; only with the first partition
    refused: the batch was not taken, because it has label texts without numbers, or must be read by the driver
    used: by view (its first column in the visibility rows), what was used for it here
    """

    name: PartitionName
    record: TaskRecord | None
    results: Sequence[BlockResults]
    splits: Sequence[SplitSummary] = ()
    refused: TaskRefusal | None = None
    used: Mapping[int, Budget] = field(default_factory=dict)
    seconds: float = 0.0
    process: str = ""
    """Where it ran: host and process."""
    cached: bool = False
    """Whether the partition was still in the worker's memory."""
    work: Mapping[int, Mapping[str, Done]] = field(default_factory=dict)
    """What the steps of the plan did here for each view, by their names."""
    came: tuple[int, int] = (0, 0)
    """How many tuples came to it from other processes, and in how many bytes."""


class Tasks(Workers, Protocol):
    """Runs the partitions of a step somewhere."""

    def run(self, plan: TaskPlan, step: TaskStep, parts: Mapping[PartitionName, pa.Table]) -> list[Outcome]:
        """Advance partitions by tuples that the driver has."""
        ...

    def run_splits(
        self, plan: TaskPlan, step: SplitStep, intake: Intake | ResultIntake, splits: Sequence[Split | DerivedSplit]
    ) -> list[Outcome]:
        """Advance partitions by tuples that tasks read."""
        ...

    def label_texts(self, intake: Intake, splits: Sequence[Split]) -> set[tuple[str | None, ...]]:
        """The label texts in these splits that have no number yet."""
        ...
