"""What a partition keeps, as values: in memory, to move it to other partitions; and as it was written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from headgate.columns.sorting import Ints
from headgate.model.times import NO_TIME
from headgate.operators.folding import Folded
from headgate.operators.segments import Read


@dataclass(frozen=True)
class ViewGroup:
    """Views that are computed together, and what they hold.

    views: the numbers of the views
    held: what each window holds for them, as positions in the partition's table, by name (`view_group.Held`)
    last: the time of the last instant of each block, by the key of its rows
    until: times before it are final for them
    folded: what windows hold beside these tuples, by name; carriers are positions too
    """

    views: tuple[int, ...]
    held: Mapping[str, Ints] = field(default_factory=dict)
    last: Mapping[str, int] = field(default_factory=dict)
    until: int = NO_TIME
    folded: Mapping[str, Folded] = field(default_factory=dict)

    def moved(self, place: Ints) -> ViewGroup:
        """For a table in which tuples have other positions: -1 for those that are gone."""
        held = {name: moved[moved >= 0] for name, x in self.held.items() for moved in [place[x]]}
        return replace(self, held=held, folded={name: x.moved(place) for name, x in self.folded.items()})


@dataclass(frozen=True)
class PartitionState:
    """The tuples that a partition keeps, and the view groups that hold them.

    INVARIANT: the tuples are in the order of SPEC.md, 4.2.
    """

    table: pa.Table
    classes: tuple[ViewGroup, ...] = ()


@dataclass(frozen=True)
class StoredPartition:
    """The state of a partition as `Partition.save` wrote it.

    record: the names of its segments and the records of its view groups, as plain values for a manifest
    read: reads the table of a file
    """

    record: Mapping[str, Any]
    read: Read

    @property
    def files(self) -> list[str]:
        return files_of(self.record)


def files_of(record: Mapping[str, Any]) -> list[str]:
    """The files that a partition's record names."""
    listed = (file for group in record["groups"] for file, _ in group["listed"].values())
    folded = (file for group in record["groups"] for file in group["folded"].values())
    return [*record["segments"], *dict.fromkeys([*listed, *folded])]


def empty(table: pa.Schema) -> PartitionState:
    return PartitionState(table.empty_table())
