"""Results in columns: of one block as operators compute them, and of one query as egress delivers them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import compress
from typing import Protocol, TypeVar

import numpy as np
import pyarrow as pa

from headgate.columns.narrow import of_kinds, positions_of, renumbered, used
from headgate.columns.sorting import Bools, Ints
from headgate.labels import LEAST, Label
from headgate.storage import Storage

T = TypeVar("T")
U = TypeVar("U")


class Workers(Protocol):
    """Processes other than the driver."""

    @property
    def on_this_machine(self) -> bool:
        """Whether all of them have the driver's folders."""
        ...

    @property
    def at_once(self) -> int:
        """How many of them work at a time."""
        ...

    def each(self, what: str, work: Callable[[T], U], items: Sequence[T]) -> list[U]:
        """Do the work with each item there. `what` names the job for people."""
        ...


@dataclass(frozen=True)
class Written:
    """Where results are that a task wrote to a file, so that they need not pass the driver.

    counts: how many results have each set of labels
    workers: who can read them; None in a worker
    """

    storage: Storage
    file: str
    counts: tuple[int, ...]
    workers: Workers | None = None


@dataclass(frozen=True)
class BlockResults:
    """Results of one block for some views, in order.

    labels: for each result the number of its set of labels in `sets`
    order: the sort columns by which the results of several partitions and blocks are merged; empty if nothing is
        merged. For a stateless block: the arrival number of the tuple. Else: the instant (its time, whether it is a
        slide, stream and arrival number of its tuple), then time and arrival number of the tuple of each join input.
    """

    query: str
    block: int
    views: tuple[int, ...]
    time: Ints
    values: tuple[pa.Array, ...]
    labels: Ints
    sets: tuple[frozenset[int], ...]
    order: tuple[Ints, ...]
    exceeded: str = ""
    """Why there are no results, now and later: the limit that was exceeded. Empty if none was."""
    written: Written | None = None
    """If they are in a file: then only their sets of labels are here."""

    def __len__(self) -> int:
        return len(self.time) if self.written is None else sum(self.written.counts)

    def where(self, chosen: Bools, views: tuple[int, ...]) -> BlockResults:
        """The chosen results, for the given views."""
        rows = np.flatnonzero(chosen)
        return replace(
            self,
            views=views,
            time=self.time[rows],
            values=tuple(column.take(pa.array(rows)) for column in self.values),
            labels=self.labels[rows],
            order=tuple(column[rows] for column in self.order),
        )

    def between(self, first: int, end: int) -> BlockResults:
        """The results from place `first` to before place `end`."""
        return replace(
            self,
            time=self.time[first:end],
            values=tuple(column.slice(first, end - first) for column in self.values),
            labels=self.labels[first:end],
            order=tuple(column[first:end] for column in self.order),
        )


@dataclass(frozen=True)
class Recipient:
    """Who receives results, and of which stream; level and roles are those of the subscription."""

    user: str
    level: str
    stream: str
    columns: tuple[str, ...]
    roles: frozenset[str] = frozenset()
    named: frozenset[str] | None = None
    """The sources that labels of results may name: those that the recipient may view; None: all."""

    @property
    def path(self) -> tuple[str, ...]:
        """The folder of the results. Each level above the least has its own, so that each can be guarded separately."""
        above = () if self.level == str(LEAST) else (self.level,)
        return (self.user, *above, self.stream)


@dataclass(frozen=True)
class ResultBatch:
    """Results of one query for subscribers of one view, in order; or a notice, which has no results.

    subscribers: all of them receive the same results
    blocks: for each result the block that it comes from, in a query of several blocks
    labels: for each result the number of its label in `kinds`
    ended, waits, suspended, changed, continues, warned, qos: the reason of a notice: the query ended for the
        subscribers, waits until a stream can be read again, is suspended until they have the rights, is another one
        from here on, no longer waits, nears a limit, or has another QoS from here on
    outgoing: the recipient of a notice whose subscription is no longer in the catalog snapshot
    """

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
    changed: str = ""
    continues: str = ""
    warned: str = ""
    qos: str = ""
    outgoing: Recipient | None = None
    places: Ints | None = None
    """For each result its position among all computed results, if some of those are no longer permitted."""
    place: int | None = None
    """Of a notice, where it stands: its place among the notices and results of a version."""
    moments: Ints | None = None
    """For each result the moment of the batch at which it comes, if other queries read it."""

    def __len__(self) -> int:
        return len(self.times)

    @property
    def word(self) -> dict[str, str]:
        """The kind of the notice and its reason; empty if this batch holds results."""
        if not (
            self.ended or self.waits or self.suspended or self.changed or self.continues or self.warned or self.qos
        ):
            return {}
        names = ("ended", "waits", "suspended", "changed", "continues", "warned", "qos")
        words = ((name, getattr(self, name)) for name in names)
        return {name: text for name, text in words if text}

    def to(self, subscribers: tuple[str, ...]) -> ResultBatch:
        return self if subscribers == self.subscribers else replace(self, subscribers=subscribers)

    def where(self, chosen: Bools) -> ResultBatch:
        """The chosen results, with their labels only: other labels may belong to tuples hidden from the recipients."""
        if chosen.all():
            return self._of_own_kinds()
        rows = np.flatnonzero(chosen)
        values = tuple(column.take(pa.array(rows)) for column in self.values)
        moments = None if self.moments is None else self.moments[rows]
        left = replace(self, blocks=self.blocks[rows], times=self.times[rows], values=values, labels=self.labels[rows])
        return replace(left, moments=moments)._of_own_kinds()

    def of_kinds(self, chosen: Sequence[bool]) -> ResultBatch:
        """The results whose labels are chosen, with these labels only."""
        return self.where(of_kinds(self.labels, chosen))

    def left_of_kinds(self, chosen: Sequence[bool]) -> ResultBatch:
        """As `of_kinds`; each result keeps its position among the computed results."""
        return self.left(of_kinds(self.labels, chosen))

    def _of_own_kinds(self) -> ResultBatch:
        there = used(self.labels, len(self.kinds))
        if there.all():
            return self
        labels = renumbered(self.labels, positions_of(there))
        return replace(self, labels=labels, kinds=tuple(compress(self.kinds, there.tolist())))

    def left(self, chosen: Bools) -> ResultBatch:
        """As `where`; each result keeps its position among the computed results."""
        places = np.arange(len(self)) if self.places is None else self.places
        return replace(self.where(chosen), places=places[chosen])


def notice(
    subscribers: tuple[str, ...],
    query: str,
    *,
    ended: str = "",
    waits: str = "",
    suspended: str = "",
    changed: str = "",
    continues: str = "",
    warned: str = "",
    qos: str = "",
    outgoing: Recipient | None = None,
) -> ResultBatch:
    nothing = np.empty(0, np.int64)
    words = ended, waits, suspended, changed, continues, warned, qos
    return ResultBatch(subscribers, query, nothing, nothing, (), nothing, (), *words, outgoing=outgoing)


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
    """Results one by one, for callers that want few of them; those of each subscriber are in order."""
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
