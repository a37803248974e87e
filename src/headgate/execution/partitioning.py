"""Which blocks can be dealt out to several cells, and by which columns: by the analysis of a block alone.

Tuples are dealt by the value of one column of each stream (its *key*). That is right for a block if the cells together
yield what one cell would: every row must lie in one cell, everything that a result is made of too, and no cell may need
to know that something happened in another. Instants are what cells do not have in common: a tuple is an instant of its
own cell only. So the question for each block is whether it would notice the instants of others.

- What appears does so with a tuple of its own, which is an instant of its cell: ISTREAM and groups that gain rows
  notice nothing. At a sliding instant every row has a tuple in a window that slides, so its cell is looked at then as
  well: there RSTREAM and groups notice nothing either. Elsewhere RSTREAM yields everything at everybody's instants.
- What disappears by time does so at the next instant, whoever makes it. DSTREAM reports it then, and DISTINCT takes
  what comes back later for new. So both need windows that nothing leaves but by a tuple of the cell: UNBOUNDED and
  PARTITIONED.
- ROWS counts the tuples of all cells. PARTITIONED counts those of a partition, so its key is one of its own columns.
- A labelled column may turn to NULL between two instants, without any tuple. It is never a key; and where a block
  compares two instants, a row that comes or goes for that reason is noticed at the next instant of anybody.

Whatever is not known to be right stays in one cell.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice, product

from headgate.model.query import columns_read
from headgate.plan.binding import LEVEL
from headgate.plan.expressions import INTEGERS, Column, Compare, Type
from headgate.plan.normal import conjuncts
from headgate.plan.queries import Block, Reading

MOST_PARTITIONINGS = 64
_POOR = {Type.TIMESTAMP: 1, Type.DATE: 1, Type.FLOAT: 2, Type.DOUBLE: 2, Type.BOOLEAN: 3}
"""Types whose values are few, or that make keys nobody means as such; of others many different values are hoped for."""


@dataclass(frozen=True)
class HashPartitioning:
    """By which column the tuples of each stream are dealt: names of streams and columns, in order."""

    columns: tuple[tuple[str, str], ...]

    def with_(self, other: HashPartitioning) -> HashPartitioning | None:
        """Both at once; None if they deal the same stream differently."""
        own, theirs = dict(self.columns), dict(other.columns)
        if any(own[stream] != theirs[stream] for stream in own.keys() & theirs.keys()):
            return None
        return HashPartitioning(tuple(sorted((own | theirs).items())))

    def __str__(self) -> str:
        return ", ".join(f"{stream}.{column}" for stream, column in self.columns)


def partitionings(block: Block) -> tuple[HashPartitioning, ...]:
    """All ways to deal a block by one column of each stream, best first; none if it must stay in one cell.

    Only columns that the block reads are keys, so that whatever keeps the tuples of a block can also deal them anew.
    """
    if block.stateless or not _alone_in_time(block) or _notices_lost_columns(block):
        return ()
    found: dict[HashPartitioning, int] = {}
    for equal in _equal_columns(block):
        if _tells_results_apart(block, equal):
            for deal, poor in islice(_choices(block, equal), MOST_PARTITIONINGS):
                found[deal] = min(poor, found.get(deal, poor))
    return tuple(sorted(found, key=lambda deal: (found[deal], deal.columns))[:MOST_PARTITIONINGS])


# Instants -------------------------------------------------------------------------------------------------------------


def _alone_in_time(block: Block) -> bool:
    """Whether a cell does without the instants of others."""
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


def _compares(block: Block) -> bool:
    """Whether results depend on more than the rows of an instant that all cells concerned have."""
    slides = any(reading.window and reading.window.slide for reading in block.readings)
    return not (slides and (block.aggregated or block.operator == "RSTREAM"))


def _notices_lost_columns(block: Block) -> bool:
    """Whether rows may come or go without a tuple, when rights change, in a way that shows."""
    if not _compares(block):
        return False
    later = {*conjuncts(block.after), *(c for c in conjuncts(block.before) if len(c.inputs) > 1)}
    evaluated: Iterable[Column] = (column for condition in later for column in condition.columns)
    if block.distinct or block.operator == "DSTREAM":
        evaluated = columns_read(block)
    return any(_labelled(block, column) for column in evaluated)


def _equal_columns(block: Block) -> list[frozenset[Column]]:
    """Columns that are equal in every row, by conditions wherever they stand. Equal values of INT and BIGINT are dealt
    alike; other types that can be compared are not, since as numbers of a narrower type different ones are equal."""
    found = [frozenset({column}) for column in columns_read(block)]
    for condition in conjuncts(block.before) | conjuncts(block.after):
        match condition:
            case Compare("=", Column() as a, Column() as b) if a.type == b.type or {a.type, b.type} <= INTEGERS:
                touched = [equal for equal in found if a in equal or b in equal]
                found = [equal for equal in found if equal not in touched]
                found.append(frozenset().union(*touched))
    return found


def _tells_results_apart(block: Block, equal: frozenset[Column]) -> bool:
    """Whether rows of different keys are never in one result: of one group, or with the same values."""
    if block.aggregated:
        return not equal.isdisjoint(block.groups)
    return not block.distinct or any(expr in equal for _, expr in block.items if isinstance(expr, Column))


def _choices(block: Block, equal: frozenset[Column]) -> Iterator[tuple[HashPartitioning, int]]:
    """One of the equal columns for each stream; where a stream is read several times, the same in all."""
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
    """Whether the window of the tuples with one key is what the whole window holds of them."""
    window = reading.window
    return window is not None and (window.kind != "PARTITIONED" or key in window.partition)


def _labelled(block: Block, column: Column) -> bool:
    return column.name in dict(block.readings[column.input].stream.labels)


# Together -------------------------------------------------------------------------------------------------------------


def together(
    blocks: Mapping[tuple[str, int], Block],
) -> list[tuple[HashPartitioning | None, tuple[tuple[str, int], ...]]]:
    """Blocks, by their names, in as few partitionings as a greedy choice finds: a tuple travels once for each of its
    stream; those that stay in one cell come last, with no deal. The same blocks are always put together alike."""
    options = {name: partitionings(block) for name, block in sorted(blocks.items())}
    found: list[tuple[HashPartitioning | None, tuple[tuple[str, int], ...]]] = []
    waiting = {name: own for name, own in options.items() if own}
    while waiting:
        likely = sorted({(place, deal.columns) for own in waiting.values() for place, deal in enumerate(own)})
        tried = (
            _joining(HashPartitioning(columns), waiting) for columns in dict.fromkeys(columns for _, columns in likely)
        )
        deal, names = max(tried, key=lambda x: len(x[1]))
        found.append((deal, names))
        waiting = {name: own for name, own in waiting.items() if name not in names}
    alone = tuple(name for name, own in options.items() if not own)
    return [*found, (None, alone)] if alone else found


def _joining(
    deal: HashPartitioning, waiting: Mapping[tuple[str, int], tuple[HashPartitioning, ...]]
) -> tuple[HashPartitioning, tuple[tuple[str, int], ...]]:
    """The blocks that can be dealt like this, and how all of them are."""
    names = []
    for name, own in waiting.items():
        both = next((both for x in own if (both := deal.with_(x))), None)
        if both:
            deal = both
            names.append(name)
    return deal, tuple(names)
