"""Results on their way to subscribers, in columns."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import compress

import numpy as np
import pyarrow as pa

from headgate.columns.narrow import positions_of, renumbered, used
from headgate.columns.sorting import Bools, Ints
from headgate.labels import LEAST, Label


@dataclass(frozen=True)
class BlockResults:
    """Results of one block for some views, in order. `labels` numbers sets of labels, `sets` are these; `order` are the
    columns by which results of several batches are brought into one order, none where there are no others: the arrival
    of what merely passed; or the instant (its time, whether it slides, its tuple's stream and arrival), then time and
    arrival of the tuple of each side."""

    query: str
    block: int
    views: tuple[int, ...]
    time: Ints
    values: tuple[pa.Array, ...]
    labels: Ints
    sets: tuple[frozenset[int], ...]
    order: tuple[Ints, ...]
    exceeded: str = ""
    """Why there are none, and will be none any more."""

    def __len__(self) -> int:
        return len(self.time)

    def where(self, chosen: Bools, views: tuple[int, ...]) -> BlockResults:
        """Some of the results, for some of the views."""
        rows = np.flatnonzero(chosen)
        return replace(
            self,
            views=views,
            time=self.time[rows],
            values=tuple(column.take(pa.array(rows)) for column in self.values),
            labels=self.labels[rows],
            order=tuple(column[rows] for column in self.order),
        )


@dataclass(frozen=True)
class Recipient:
    """Whose results these are, and of what, in words: the level and the roles are those of the subscription."""

    user: str
    level: str
    stream: str
    columns: tuple[str, ...]
    roles: frozenset[str] = frozenset()
    named: frozenset[str] | None = None
    """The sources that labels of results may name: those that the reader may view; None: all."""

    @property
    def path(self) -> tuple[str, ...]:
        """Where they go: levels above the least have a folder each, so that each can be guarded as its level needs."""
        above = () if self.level == str(LEAST) else (self.level,)
        return (self.user, *above, self.stream)


@dataclass(frozen=True)
class ResultBatch:
    """Results of one query for some who look through one view, in order; all of them receive the same. `labels` are
    numbers of `kinds`; a query of several blocks says for each result which one it is from. If it `ended` for them,
    `waits` until a stream can be read again, or is `suspended` until they have the rights, that is why, and there are
    no results; `outgoing` says where that goes if nobody else knows any more."""

    subscribers: tuple[str, ...]
    query: str
    blocks: Ints
    times: Ints
    values: tuple[pa.Array, ...]
    labels: Ints
    kinds: tuple[Label, ...]
    ended: str = ""
    waits: str = ""
    suspended: str = ""
    outgoing: Recipient | None = None
    places: Ints | None = None
    """Which of the results that were computed these are, if some are not permitted any more."""

    def __len__(self) -> int:
        return len(self.times)

    @property
    def word(self) -> dict[str, str]:
        """What is notice instead of results; nothing if these are results."""
        words = (("ended", self.ended), ("waits", self.waits), ("suspended", self.suspended))
        return {name: text for name, text in words if text}

    def to(self, subscribers: tuple[str, ...]) -> ResultBatch:
        return replace(self, subscribers=subscribers)

    def where(self, chosen: Bools) -> ResultBatch:
        """Only these results, and no labels but theirs: others may be of what is hidden from whoever receives this."""
        if chosen.all():
            return self._of_own_kinds()
        rows = np.flatnonzero(chosen)
        values = tuple(column.take(pa.array(rows)) for column in self.values)
        left = replace(self, blocks=self.blocks[rows], times=self.times[rows], values=values, labels=self.labels[rows])
        return left._of_own_kinds()

    def _of_own_kinds(self) -> ResultBatch:
        there = used(self.labels, len(self.kinds))
        if there.all():
            return self
        labels = renumbered(self.labels, positions_of(there))
        return replace(self, labels=labels, kinds=tuple(compress(self.kinds, there.tolist())))

    def left(self, chosen: Bools) -> ResultBatch:
        """The same, and each keeps the place it had."""
        places = np.arange(len(self)) if self.places is None else self.places
        return replace(self.where(chosen), places=places[chosen])


def notice(
    subscribers: tuple[str, ...],
    query: str,
    *,
    ended: str = "",
    waits: str = "",
    suspended: str = "",
    outgoing: Recipient | None = None,
) -> ResultBatch:
    nothing = np.empty(0, np.int64)
    return ResultBatch(subscribers, query, nothing, nothing, (), nothing, (), ended, waits, suspended, outgoing)


@dataclass(frozen=True)
class DeliveredResult:
    """One result for one subscriber of one query."""

    subscriber: str
    query: str
    block: int
    time: int
    values: tuple[object, ...]
    label: Label


def delivered_results(result_batches: Iterable[ResultBatch]) -> list[DeliveredResult]:
    """Results one by one, for those who want few of them; each subscriber's are in order."""
    found: list[DeliveredResult] = []
    for result_batch in result_batches:
        columns = [column.to_pylist() for column in result_batch.values]
        values = list(zip(*columns, strict=True)) if columns else [()] * len(result_batch)
        rows = list(
            zip(
                result_batch.blocks.tolist(),
                result_batch.times.tolist(),
                values,
                result_batch.labels.tolist(),
                strict=True,
            )
        )
        found += [
            DeliveredResult(subscriber, result_batch.query, block, time, row, result_batch.kinds[label])
            for subscriber in result_batch.subscribers
            for block, time, row, label in rows
        ]
    return found
