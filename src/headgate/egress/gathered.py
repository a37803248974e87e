"""Results of one query that several partitions computed, put together in the order of their reader.

Partitions that run in tasks leave their results in files. The driver knows how many results have which label, decides
by that, and hands the work to tasks again. INVARIANT: nothing is read of results that were not chosen by their label.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import compress

import numpy as np
import pyarrow as pa

from headgate.columns.sorting import Ints
from headgate.execution.results import merged_order
from headgate.execution.tasks.written import WrittenRows, opened, read_back
from headgate.labels import Label
from headgate.model.results import BlockResults, ResultBatch, Workers


@dataclass(frozen=True)
class Piece:
    """What one partition computed for one block.

    kinds: for each set of labels the number of its label in `Gathering.kinds`; -1 if it is not chosen
    passes: whether the block is stateless
    """

    results: BlockResults
    kinds: tuple[int, ...]
    passes: bool

    @classmethod
    def of(cls, results: BlockResults, kinds: tuple[int, ...], passes: bool) -> Piece:
        """Without what other processes cannot have or do not need."""
        place = results.written
        return cls(
            replace(results, sets=(), written=None if place is None else replace(place, workers=None)), kinds, passes
        )

    def chosen(self) -> BlockResults:
        """Its chosen results; `labels` are the numbers of their labels."""
        return self._chosen_of(read_back(self.results))

    def _chosen_of(self, found: BlockResults) -> BlockResults:
        numbers = np.array(self.kinds, np.int64)[found.labels]
        kept = numbers >= 0
        if kept.all():
            return replace(found, labels=numbers)
        return replace(found.where(kept, found.views), labels=numbers[kept])

    def in_file(self) -> WrittenRows | None:
        """Its results, if all of them are chosen and in a file."""
        return opened(self.results) if all(kind >= 0 for kind in self.kinds) else None

    def between(self, rows: WrittenRows | None, first: int, end: int) -> BlockResults:
        """The chosen results from place `first` to before place `end`; `rows` is what `in_file` gave."""
        if rows is None:
            return self.chosen().between(first, end)
        return self._chosen_of(rows.rows(first, end))


@dataclass(frozen=True)
class Gathering:
    """All that is needed to put results together, in any process."""

    query: str
    pieces: tuple[Piece, ...]
    kinds: tuple[Label, ...]

    @cached_property
    def counts(self) -> Ints:
        """How many results have each label."""
        found = np.zeros(len(self.kinds), np.int64)
        for piece in self.pieces:
            own = piece.results.written
            each = np.bincount(piece.results.labels, minlength=len(piece.kinds)) if own is None else own.counts
            for kind, count in zip(piece.kinds, each, strict=True):
                if kind >= 0:
                    found[kind] += count
        return found

    def of_kinds(self, chosen: Sequence[bool]) -> Gathering:
        """Without the other results, and without labels that no result has."""
        left = np.array(chosen, np.bool_) & (self.counts > 0)
        places = np.where(left, np.cumsum(left) - 1, -1).tolist()
        pieces = tuple(
            replace(x, kinds=tuple(places[kind] if kind >= 0 else -1 for kind in x.kinds)) for x in self.pieces
        )
        return Gathering(self.query, pieces, tuple(compress(self.kinds, left.tolist())))

    def ordered(self) -> tuple[list[BlockResults], Ints]:
        """The chosen results of all pieces, and their order."""
        parts = self.chosen()
        return parts, merged_order([piece.passes for piece in self.pieces], parts)

    def chosen(self) -> list[BlockResults]:
        return [piece.chosen() for piece in self.pieces]

    def rows_between(self, first: int, end: int) -> tuple[list[BlockResults], Ints]:
        """The chosen results from place `first` to before place `end`, among others, and their order. Mostly pieces are
        in the order of times; then only results of the times between are read and put into order."""
        passing = [piece.passes for piece in self.pieces]
        rows = [piece.in_file() for piece in self.pieces]
        times = [x.time for x in self.chosen()] if None in rows else [x.times() for x in rows if x is not None]
        if any(passing) or not all(bool((x[1:] >= x[:-1]).all()) for x in times):
            parts, order = self.ordered()
            return parts, order[first:end]
        begins = _before(times, first)
        ends = [len(x) for x in times] if end == sum(map(len, times)) else _before(times, end, after=True)
        found = zip(self.pieces, rows, begins, ends, strict=True)
        parts = [piece.between(own, begin, until) for piece, own, begin, until in found]
        skipped = first - sum(begins)
        return parts, merged_order(passing, parts)[skipped : skipped + end - first]

    def results(self) -> ResultBatch:
        """The results in order, without subscribers."""
        parts, order = self.ordered()
        return joined(self.query, parts, order, self.kinds)


def _before(times: Sequence[Ints], place: int, *, after: bool = False) -> list[int]:
    """Where to cut columns of times, each of which ascends, at a time such that as many as possible, but at most
    `place`, are before; with `after`, as few as possible, but at least `place`."""
    low = min((int(x[0]) for x in times if len(x)), default=0)
    high = max((int(x[-1]) for x in times if len(x)), default=0) + 1

    def cut(time: int) -> list[int]:
        return [int(np.searchsorted(x, time)) for x in times]

    while high - low > 1:  # at most `place` are before `low`; all are before the first `high`
        middle = (low + high) // 2
        low, high = (middle, high) if sum(cut(middle)) <= place else (low, middle)
    found = cut(low)
    return cut(high) if after and sum(found) < place else found


def joined(query: str, parts: Sequence[BlockResults], order: Ints, kinds: tuple[Label, ...]) -> ResultBatch:
    """Results of several blocks or partitions as one batch; their `labels` are numbers of these labels."""
    return ResultBatch(
        (),
        query,
        _blocks(parts, order),
        np.concatenate([part.time for part in parts])[order],
        tuple(pa.concat_arrays(x).take(pa.array(order)) for x in zip(*(x.values for x in parts), strict=True)),
        np.concatenate([part.labels for part in parts])[order],
        kinds,
    )


def _blocks(parts: Sequence[BlockResults], order: Ints) -> Ints:
    if len({part.block for part in parts}) == 1:
        return np.full(len(order), parts[0].block)
    return np.repeat([part.block for part in parts], [len(part) for part in parts])[order]


class GatheredBatch(ResultBatch):
    """Results that are not here. Their number and labels are known; whoever asks for the results themselves makes this
    process read them."""

    def __init__(self, subscribers: tuple[str, ...], gathering: Gathering, workers: Workers) -> None:
        for name, value in (
            ("subscribers", subscribers),
            ("query", gathering.query),
            ("kinds", gathering.kinds),
            ("gathering", gathering),
            ("workers", workers),
        ):
            object.__setattr__(self, name, value)

    gathering: Gathering
    workers: Workers

    @cached_property
    def here(self) -> ResultBatch:
        return self.gathering.results()

    def __len__(self) -> int:
        return int(self.gathering.counts.sum())

    @property
    def blocks(self) -> Ints:
        return self.here.blocks

    @property
    def times(self) -> Ints:
        return self.here.times

    @property
    def values(self) -> tuple[pa.Array, ...]:
        return self.here.values

    @property
    def labels(self) -> Ints:
        return self.here.labels

    def to(self, subscribers: tuple[str, ...]) -> ResultBatch:
        return GatheredBatch(subscribers, self.gathering, self.workers)

    def of_kinds(self, chosen: Sequence[bool]) -> ResultBatch:
        return GatheredBatch(self.subscribers, self.gathering.of_kinds(chosen), self.workers)

    def left_of_kinds(self, chosen: Sequence[bool]) -> ResultBatch:
        if all(chosen):
            return self
        return self.here.to(self.subscribers).left_of_kinds(chosen)
