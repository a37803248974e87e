"""The states of all partitions taken together: renumbered after a change of rights, and gathered or split when another
processor restores them, with other queries or another number of partitions.

State can always be partitioned anew, so neither queries nor partitions are ever fixed. A partition knows of each view
which tuples its windows hold, which tuples are not final yet, and the last instants of its blocks. A tuple is
identified by its arrival number. A view is in the partitions of one group only, so it holds the union of what it holds
in them. Keys are columns that the block itself reads, so the tuples kept for it have them. Of last instants the
greatest counts: where a block can be partitioned, a row that a later instant of another partition would have met was
met in its own partition, or was gone by then.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from headgate.columns.sorting import Ints
from headgate.execution.compile import FIELDS
from headgate.model.times import NO_TIME
from headgate.operators.folding import Folded
from headgate.operators.folding import together as together_folded
from headgate.operators.partition_state import PartitionState, ViewGroup, empty
from headgate.operators.program import ARRIVAL, STREAM, VISIBILITY, Program

PartitionName = tuple[str, int]
"""The name of a partition group, and the number of a partition in it."""
PartitionStates = Mapping[PartitionName, PartitionState]
WHOLE: PartitionName = ("", 0)
"""The name of a partition that holds everything."""


def renumbered_visibility(partition: PartitionState, changed: Ints) -> PartitionState:
    """A partition's state with its tuples' visibility rows renumbered after a change of rights."""
    numbers = partition.table.column(VISIBILITY).to_numpy()
    column = pa.array(changed[numbers] if len(numbers) else numbers, pa.int64())
    return replace(
        partition,
        table=partition.table.set_column(partition.table.schema.get_field_index(VISIBILITY), VISIBILITY, column),
    )


def fitted(partition: PartitionState, streams: tuple[str, ...], program: Program, schema: pa.Schema) -> PartitionState:
    """Convert a partition's state from one program to another: drop tuples of streams that no query reads any more, and
    set columns that were not kept to NULL."""
    table = partition.table
    known = np.array([name in program.streams for name in streams] or [False])
    numbers = np.array([program.streams.index(x) if x in program.streams else 0 for x in streams] or [0])
    kept = known[table.column(STREAM).to_numpy()] if table.num_rows else np.empty(0, np.bool_)
    place = np.where(kept, np.cumsum(kept) - 1, -1)
    classes = tuple(c.moved(place) for c in partition.classes)
    table = table.filter(pa.array(kept))
    renumbered = pa.array(numbers[table.column(STREAM).to_numpy()] if table.num_rows else [], pa.int16())
    columns = [
        renumbered
        if field.name == STREAM
        else table.column(field.name).combine_chunks()
        if field.name in table.schema.names
        else pa.nulls(table.num_rows, field.type)
        for field in schema
    ]
    return PartitionState(pa.Table.from_arrays(columns, schema=schema), classes)


def split(partition: PartitionState, numbers: Ints, partitions: int, views: frozenset[int]) -> list[PartitionState]:
    """Split a partition into several: `numbers` is the new partition of each tuple. Only these views are kept."""
    found = []
    mine = [replace(c, views=tuple(view for view in c.views if view in views)) for c in partition.classes]
    for number in range(partitions):
        here = numbers == number
        place = np.where(here, np.cumsum(here) - 1, -1)
        classes = tuple(c.moved(place) for c in mine if c.views)
        found.append(PartitionState(partition.table.filter(pa.array(here)).combine_chunks(), classes))
    return found


def gathered(partitions: PartitionStates) -> PartitionState:
    """Merge all partitions into one. A tuple that several partition groups keep is there once, with every column that
    any of them keeps."""
    if not partitions:
        return empty(pa.schema(FIELDS))
    tables = [partition.table for partition in partitions.values()]
    arrivals = [table.column(ARRIVAL).to_numpy() for table in tables]
    every, place = np.unique(np.concatenate(arrivals), return_inverse=True)
    places = np.split(place.reshape(-1).astype(np.int64), np.cumsum([len(x) for x in arrivals])[:-1])
    groups: dict[str, list[tuple[PartitionState, Ints]]] = {}
    for (group, _), partition, own in zip(partitions, partitions.values(), places, strict=True):
        groups.setdefault(group, []).append((partition, own))
    classes = [class_ for group in groups.values() for class_ in _classes(group)]
    return PartitionState(_table(tables, places, len(every)), tuple(classes))


def _table(tables: Sequence[pa.Table], places: Sequence[Ints], size: int) -> pa.Table:
    """Put each tuple at its position, and take each of its columns from any table that has it."""
    fields = {field.name: field for table in tables for field in table.schema}
    columns = []
    for name, field in fields.items():
        having = [(table, own) for table, own in zip(tables, places, strict=True) if name in table.schema.names]
        values = pa.chunked_array([chunk for table, _ in having for chunk in table.column(name).chunks], field.type)
        at = np.full(size, -1)
        at[np.concatenate([own for _, own in having])] = np.arange(len(values))
        columns.append(values.take(pa.array(at, mask=at < 0)).combine_chunks())
    return pa.Table.from_arrays(columns, schema=pa.schema(list(fields.values())))


def _classes(partitions: Sequence[tuple[PartitionState, Ints]]) -> list[ViewGroup]:
    """The view groups of one partition group: views that share a view group in each of its partitions still share
    one."""
    together: dict[tuple[int, ...], list[int]] = {}
    known = [
        {view: number for number, c in enumerate(partition.classes) for view in c.views} for partition, _ in partitions
    ]
    for view in sorted({view for own in known for view in own}):
        together.setdefault(tuple(own.get(view, -1) for own in known), []).append(view)
    found = []
    for numbers, views in together.items():
        held: dict[str, list[Ints]] = {}
        folded: dict[str, list[Folded]] = {}
        last: dict[str, int] = {}
        until = NO_TIME
        for (partition, places), number in zip(partitions, numbers, strict=True):
            if number >= 0:
                until = max(until, partition.classes[number].until)
                for key, own in partition.classes[number].held.items():
                    held.setdefault(key, []).append(places[own])
                for key, carried in partition.classes[number].folded.items():
                    folded.setdefault(key, []).append(carried.moved(places))
                for key, time in partition.classes[number].last.items():
                    last[key] = max(time, last.get(key, time))
        windows = {key: np.sort(np.concatenate(own)) for key, own in held.items()}
        whole = {key: together_folded(parts) for key, parts in folded.items()}
        found.append(ViewGroup(tuple(views), windows, last, until, whole))
    return found
