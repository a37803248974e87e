"""Decide which blocks can be hash-partitioned, and by which columns, from the block alone.

Tuples are partitioned by the value of one column of each stream (its *key*). That is correct for a block if its
partitions together emit what one partition would: every row, and everything a result is made of, must lie in one
partition, and no partition may need to know what happened in another. Partitions do not share their instants: a tuple
is an instant of its own partition only. So the question for each block is whether it would notice the instants of other
partitions.

- A row appears with a tuple of its own, which is an instant of its partition: ISTREAM, and groups that gain rows,
  notice nothing. At a sliding instant every row has a tuple in a sliding window, so its partition is evaluated then
  too: there RSTREAM and groups notice nothing either. Elsewhere RSTREAM emits every row at every instant, including
  those of other partitions.
- A row disappears by time at the next instant, whichever partition has it. DSTREAM reports the row then, and DISTINCT
  takes an equal row that appears later for new. So both need windows that tuples leave only because of a tuple of the
  same partition: UNBOUNDED and PARTITIONED.
- ROWS counts the tuples of all partitions. PARTITIONED counts those of one window partition, so the key must be one of
  its own partitioning columns.
- A labelled column may turn to NULL between two instants, without any tuple. It is never a key; and where a block
  compares two instants, a row that comes or goes for that reason is noticed at the next instant of any partition.

INVARIANT: a block that is not known to be safe stays in one partition.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice, product

from headgate.model.query import columns_read
from headgate.plan.expressions import INTEGERS, Column, Compare, Type
from headgate.plan.normal import conjuncts
from headgate.plan.queries import QueryBlock, Reading
from headgate.plan.reserved import LEVEL

MOST_PARTITIONINGS = 64
_POOR = {Type.TIMESTAMP: 1, Type.DATE: 1, Type.FLOAT: 2, Type.DOUBLE: 2, Type.BOOLEAN: 3}
"""Types that make poor keys, with a penalty: their values are few, or nobody means them as keys. Columns of other types
are expected to have many different values."""


@dataclass(frozen=True)
class HashPartitioning:
    """The key column of each stream: pairs of stream and column names, in order."""

    columns: tuple[tuple[str, str], ...]

    def with_(self, other: HashPartitioning) -> HashPartitioning | None:
        """The union of both; None if they partition a stream by different columns."""
        own, theirs = dict(self.columns), dict(other.columns)
        if any(own[stream] != theirs[stream] for stream in own.keys() & theirs.keys()):
            return None
        return HashPartitioning(tuple(sorted((own | theirs).items())))

    def __str__(self) -> str:
        return ", ".join(f"{stream}.{column}" for stream, column in self.columns)


def partitionings(block: QueryBlock) -> tuple[HashPartitioning, ...]:
    """All ways to partition a block by one column of each stream, best first; none if it must stay in one partition.

    Only columns that the block reads are keys, so the tuples kept for a block can always be partitioned anew.
    """
    if block.stateless or not _alone_in_time(block) or _notices_lost_columns(block):
        return ()
    found: dict[HashPartitioning, int] = {}
    for equal in _equal_columns(block):
        if _tells_results_apart(block, equal):
            for partitioning, poor in islice(_choices(block, equal), MOST_PARTITIONINGS):
                found[partitioning] = min(poor, found.get(partitioning, poor))
    return tuple(
        sorted(found, key=lambda partitioning: (found[partitioning], partitioning.columns))[:MOST_PARTITIONINGS]
    )


# Instants -------------------------------------------------------------------------------------------------------------


def _alone_in_time(block: QueryBlock) -> bool:
    """Whether a partition can ignore the instants of other partitions."""
    kinds = {reading.window.kind for reading in block.readings if reading.window}
    if "ROWS" in kinds:
        return False
    if not _compares(block):
        return True
    if block.operator == "RSTREAM":
        return False
    if block.distinct or block.operator == "DSTREAM":
        return kinds <= {"UNBOUNDED", "PARTITIONED"}
    return True


def _compares(block: QueryBlock) -> bool:
    """Whether results depend on more than the rows of one instant, at which every partition concerned is evaluated."""
    slides = any(reading.window and reading.window.slide for reading in block.readings)
    return not (slides and (block.aggregated or block.operator == "RSTREAM"))


def _notices_lost_columns(block: QueryBlock) -> bool:
    """Whether a change of rights can add or remove rows without a tuple, in a way that shows in results."""
    if not _compares(block):
        return False
    later = {*conjuncts(block.after), *(c for c in conjuncts(block.before) if len(c.inputs) > 1)}
    evaluated: Iterable[Column] = (column for condition in later for column in condition.columns)
    if block.distinct or block.operator == "DSTREAM":
        evaluated = columns_read(block)
    return any(_labelled(block, column) for column in evaluated)


def _equal_columns(block: QueryBlock) -> list[frozenset[Column]]:
    """Sets of columns that are equal in every row, by conditions before or after the windows. Equal INT and BIGINT
    values hash alike. Other comparable types do not: values that differ can be equal as numbers of a narrower type."""
    found = [frozenset({column}) for column in columns_read(block)]
    for condition in conjuncts(block.before) | conjuncts(block.after):
        match condition:
            case Compare("=", Column() as a, Column() as b) if a.type == b.type or {a.type, b.type} <= INTEGERS:
                touched = [equal for equal in found if a in equal or b in equal]
                found = [equal for equal in found if equal not in touched]
                found.append(frozenset().union(*touched))
    return found


def _tells_results_apart(block: QueryBlock, equal: frozenset[Column]) -> bool:
    """Whether rows with different keys never contribute to one result: to one group, or to equal DISTINCT values."""
    if block.aggregated:
        return not equal.isdisjoint(block.groups)
    return not block.distinct or any(expr in equal for _, expr in block.items if isinstance(expr, Column))


def _choices(block: QueryBlock, equal: frozenset[Column]) -> Iterator[tuple[HashPartitioning, int]]:
    """One of the equal columns for each stream, with its penalty; a stream that is read several times has the same key
    in all its readings."""
    allowed: dict[str, dict[str, int]] = {}
    for number, reading in enumerate(block.readings):
        own = {
            column.name: 3 if column.name == LEVEL else _POOR.get(column.type, 0)
            for column in equal
            if column.input == number and not _labelled(block, column) and _splits(reading, column)
        }
        known = allowed.setdefault(reading.stream.name, own)
        allowed[reading.stream.name] = {name: poor for name, poor in known.items() if name in own}
    streams = sorted(allowed)
    best_first = (sorted(allowed[stream], key=lambda name: (allowed[stream][name], name)) for stream in streams)
    for names in product(*best_first):
        chosen = tuple(zip(streams, names, strict=True))
        yield HashPartitioning(chosen), max(allowed[stream][name] for stream, name in chosen)


def _splits(reading: Reading, key: Column) -> bool:
    """Whether the window over the tuples of one key holds exactly those that the whole window holds of them."""
    window = reading.window
    return window is not None and (window.kind != "PARTITIONED" or key in window.partition)


def _labelled(block: QueryBlock, column: Column) -> bool:
    return column.name in dict(block.readings[column.input].stream.labels)


# Partitionings of many blocks -----------------------------------------------------------------------------------------


def together(
    blocks: Mapping[tuple[str, int], QueryBlock],
) -> list[tuple[HashPartitioning | None, tuple[tuple[str, int], ...]]]:
    """Put blocks, given by name, into as few partitionings as a greedy choice finds, because a tuple is copied once for
    each partitioning of its stream. Blocks that must stay in one partition come last, with None. The result is
    deterministic."""
    options = {name: partitionings(block) for name, block in sorted(blocks.items())}
    found: list[tuple[HashPartitioning | None, tuple[tuple[str, int], ...]]] = []
    waiting = {name: own for name, own in options.items() if own}
    while waiting:
        likely = sorted(
            {(place, partitioning.columns) for own in waiting.values() for place, partitioning in enumerate(own)}
        )
        tried = (
            _joining(HashPartitioning(columns), waiting) for columns in dict.fromkeys(columns for _, columns in likely)
        )
        partitioning, names = max(tried, key=lambda x: len(x[1]))
        found.append((partitioning, names))
        waiting = {name: own for name, own in waiting.items() if name not in names}
    alone = tuple(name for name, own in options.items() if not own)
    return [*found, (None, alone)] if alone else found


def _joining(
    partitioning: HashPartitioning, waiting: Mapping[tuple[str, int], tuple[HashPartitioning, ...]]
) -> tuple[HashPartitioning, tuple[tuple[str, int], ...]]:
    """The blocks that can be partitioned in this way, and the partitioning that covers all of them."""
    names = []
    for name, own in waiting.items():
        both = next((both for x in own if (both := partitioning.with_(x))), None)
        if both:
            partitioning = both
            names.append(name)
    return partitioning, tuple(names)
