"""Ingestion: validates the batches of all streams that running queries read, and knows which batch of each came last.

A batch is read in one of three ways: by tasks, by the driver with pushdown, or by the driver as a whole.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from headgate.errors import ColumnsChanged
from headgate.execution.tasks.step import TaskRefusal
from headgate.expressions.sql.types import ARROW
from headgate.ingress.batches import Decoded
from headgate.ingress.pushdown import Pushdown
from headgate.ingress.splits import Split
from headgate.ingress.validation import Ingress, RawBatch
from headgate.labels import Label
from headgate.model.limits import Limits
from headgate.model.rejected import RejectedRows
from headgate.model.results import ResultBatch
from headgate.model.snapshot import CatalogSnapshot
from headgate.model.tuples import TupleBatch
from headgate.recovery.shared_queries import SharedQueries


@dataclass(frozen=True)
class ValidBatch:
    """A batch after validation.

    arrivals: its tuples, without those that were dropped because no view sees them
    tuples: how many rows the batch had
    unseen: how many tuples were dropped
    rejected: the rows that are not tuples
    notes: about the source, for the owner of the stream
    """

    arrivals: TupleBatch
    tuples: int
    unseen: int = 0
    rejected: Sequence[RejectedRows] = ()
    notes: Sequence[str] = ()


class Ingestion:
    """`shared` computes the queries: its dictionary numbers labels, its query graph says what a batch must have."""

    def __init__(self, shared: SharedQueries, limits: Limits | None) -> None:
        self._shared = shared
        self._limits = limits
        self._snapshot = CatalogSnapshot()
        self.streams: dict[str, Ingress] = {}
        self.done: dict[str, int] = {}
        """By stream: the number of the last batch that was taken."""

    def is_done(self, stream: str, number: int) -> bool:
        return number <= self.done.get(stream, -1)

    # Catalog snapshots ------------------------------------------------------------------------------------------------

    def update(self, snapshot: CatalogSnapshot) -> None:
        """Follows a catalog snapshot. A stream that cannot be validated ends the queries that read it."""
        known, self._snapshot = self._snapshot, snapshot
        if snapshot.rules != known.rules or snapshot.descriptors != known.descriptors:
            self.streams = {}
            for name, descriptor in sorted(snapshot.descriptors.items()):
                number, served = self._shared.graph.dictionary.number, self._shared.served
                try:
                    self.streams[name] = Ingress(descriptor, snapshot.rules, number, self._limits)
                except Exception as error:
                    served.bar(served.snapshot.reading(name), error)

    def end(self) -> None:
        self.streams, self._snapshot = {}, CatalogSnapshot()

    def forget_labels(self) -> None:
        """Forgets labels that no tuple in windows or tables has. If a label arrives again, it is parsed again."""
        dictionary = self._shared.graph.dictionary
        if dictionary.is_forgetting_due:
            self._shared.forget_labels({number for ingress in self.streams.values() for number in ingress.fixed})
            for ingress in self.streams.values():
                ingress.forget(dictionary.labels)

    # By tasks ---------------------------------------------------------------------------------------------------------

    def read_by_tasks(
        self, stream: str, splits: Sequence[Split], now: int, floors: Mapping[str, int]
    ) -> tuple[list[ResultBatch], int] | TaskRefusal:
        """The results of a batch that tasks read, and how many tuples it had. Label texts that tasks meet for the first
        time get their numbers here, and then the batch is read again."""
        ingress = self.streams[stream]
        while True:
            found = self._shared.split_batch(stream, ingress.known, splits, now, floors)
            if not isinstance(found, TaskRefusal) or not found.unknown:
                return found
            with suppress(Exception):  # then the driver reads the batch, and it fails for its stream alone
                ingress.register(sorted(found.unknown, key=str))
            if not all(texts in ingress.known for texts in found.unknown):
                return TaskRefusal(driver="a label cannot be read")

    # With pushdown ----------------------------------------------------------------------------------------------------

    def register(self, stream: str, texts: Sequence[tuple[str | None, ...]]) -> None:
        """Numbers new labels."""
        if stream in self.streams:
            with suppress(Exception):  # then the batch is read whole, and fails for its stream alone
                self.streams[stream].register(texts)

    def pushdown(self, stream: str) -> Pushdown | None:
        """None: no query reads the stream now, or the pushdown cannot be determined."""
        ingress = self.streams.get(stream)
        if ingress is None:
            return None
        with suppress(Exception):  # a pushdown only says what can be left out; without it the whole batch is read
            return replace(self._shared.graph.pushdown(stream, ingress.known), unreadable=ingress.unreadable)
        return None

    def is_current(self, decoded: Decoded) -> bool:
        """Whether a batch that was read with pushdown can still be used."""
        return decoded.pushdown.still(self._shared.served.snapshot, self._shared.graph.dictionary.epoch)

    def decoded(self, stream: str, decoded: Decoded) -> ValidBatch:
        rejected = self.streams[stream].explained(decoded.rejected)
        return ValidBatch(decoded.arrivals, decoded.tuples, decoded.unseen, rejected)

    # As a whole -------------------------------------------------------------------------------------------------------

    def validated(self, stream: str, whole: RawBatch, now: int) -> ValidBatch:
        """Raises SourceError if the batch cannot be taken; nothing is changed then."""
        wanted = {name for name, _ in self._snapshot.descriptors[stream].columns}
        if not wanted.issubset(whole.table.column_names):  # its reader began before the stream got a column
            raise ColumnsChanged(f"the columns of stream {stream} have changed")
        arrivals, rejected = self.streams[stream].take(whole.table, now)
        return ValidBatch(arrivals, len(whole), rejected=[*whole.rejected, *rejected], notes=whole.notes)

    def labelled(self, given: TupleBatch, labels: Sequence[Label]) -> ValidBatch:
        """Tuples that were validated elsewhere; their label numbers are places in `labels`. A column that the stream
        got since is NULL in them."""
        numbers = np.array([self._shared.graph.dictionary.number(label) for label in labels], np.int64)
        columns = {
            name: given.columns[name] if name in given.columns else pa.nulls(len(given.times), ARROW[type_])
            for name, type_ in self._snapshot.descriptors[given.stream].columns
        }
        arrivals = replace(given, labels=numbers[given.labels], columns=columns)
        return ValidBatch(arrivals, len(given.times))
