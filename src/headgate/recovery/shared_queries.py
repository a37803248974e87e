"""Queries that are computed batch by batch, all in one query graph. A fault in one of them harms only its subscribers.

A step runs for all subscribers who are served. If it fails, it runs again from the state that was saved last, for all
except those for whom it fails.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from headgate.columns.sorting import distinct
from headgate.errors import StoreError
from headgate.execution.partitions import PartitionName
from headgate.execution.tasks.step import TaskRefusal
from headgate.ingress.splits import Split
from headgate.ingress.validation import Ingress
from headgate.logs import failure
from headgate.model.limits import Limits
from headgate.model.rejected import RejectedRows
from headgate.model.results import ResultBatch
from headgate.model.snapshot import CatalogSnapshot
from headgate.model.tuples import TupleBatch
from headgate.recovery.isolation import Served
from headgate.recovery.live_state import PREFIX
from headgate.recovery.messages import NO_TABLE, UNREAD, concerned_by, limited
from headgate.recovery.query_graph import Make, QueryGraph
from headgate.recovery.state import Saved, StateFolder
from headgate.recovery.tables import ReadTable, Tables

Done = TypeVar("Done")


class SharedQueries:
    """`of` gives the part of a catalog snapshot that is computed here."""

    def __init__(
        self,
        make: Make,
        limits: Limits | None,
        read_table: ReadTable,
        states: StateFolder,
        of: Callable[[CatalogSnapshot], CatalogSnapshot],
    ) -> None:
        self._empty = partial(QueryGraph, make, limits)
        self.graph = self._empty()
        self.served = Served()
        self.tables = Tables(states, read_table)
        self._states = states
        self._of = of
        self._saved: tuple[Mapping[PartitionName, Mapping[str, Any]], Sequence[Mapping[str, Any]]] = {}, ()
        """What the query graph saved last."""

    # Catalog snapshots ------------------------------------------------------------------------------------------------

    def read_tables(self, ingress: Mapping[str, Ingress]) -> tuple[Mapping[str, int], list[RejectedRows]]:
        """Reads the tables that queries read since now: the number of tuples of each, and rejected rows."""
        return self.tables.update(self.served.snapshot, ingress)

    def update(self) -> None:
        """Brings queries, views and rights in line with the catalog snapshot of those who are served."""
        self._isolated(self._update)

    def _update(self, served: CatalogSnapshot) -> None:
        self.graph.update(self._of(served))
        self._prepare(served)

    def _prepare(self, served: CatalogSnapshot) -> None:
        self.graph.feed(self.tables.snapshots)
        self.graph.end(self.without_table(served) & self._of(served).clearances.keys(), NO_TABLE)

    def without_table(self, snapshot: CatalogSnapshot | None = None) -> set[tuple[str, str]]:
        """The subscribers who are told that a table cannot be read. The others see none of its tuples anyway."""
        return concerned_by(snapshot or self.served.snapshot, self.tables.unreadable)

    # Steps ------------------------------------------------------------------------------------------------------------

    def _isolated(self, act: Callable[[CatalogSnapshot], Done]) -> Done:
        def again(some: CatalogSnapshot) -> Done:
            self._return(some)
            return act(some)

        return self.served.isolated(act, again)

    def _return(self, some: CatalogSnapshot) -> None:
        """Returns to the state before the step."""
        self._restore(some)
        self._prepare(some)

    def choose_executor(self, size: int) -> None:
        """As `QueryGraph.choose_executor`."""
        self._isolated(lambda _: self.graph.choose_executor(size))

    def batch(
        self, arrivals: Sequence[TupleBatch], floors: Mapping[str, int], *, clock: int | None = None
    ) -> list[ResultBatch]:
        """As `QueryGraph.batch`."""
        return self.limited(self._isolated(lambda _: self.graph.batch(arrivals, clock=clock, floors=floors)))

    def split_batch(
        self,
        stream: str,
        labels: Mapping[tuple[str | None, ...], int],
        splits: Sequence[Split],
        now: int,
        floors: Mapping[str, int],
    ) -> tuple[list[ResultBatch], int] | TaskRefusal:
        """As `QueryGraph.split_batch`. After a fault the driver reads the batch, and finds the query whose fault it is:
        without that query, perhaps nobody reads the stream, and then tasks cannot try."""
        try:
            found = self.graph.split_batch(stream, labels, splits, now, floors)
        except StoreError:
            raise
        except Exception as error:
            failure("pipeline", "tasks could not take a batch", error)
            self._isolated(self._return)
            return TaskRefusal(driver=f"a fault ({type(error).__name__})")
        return found if isinstance(found, TaskRefusal) else (self.limited(found[0]), found[1])

    def last(self, unread: Collection[str], kept: Collection[tuple[str, str]]) -> list[ResultBatch]:
        """The results of all open windows, except those of the subscribers who are `kept`. Queries over `unread`
        streams end without the results that would be wrong."""
        return self._isolated(lambda some: self._last(some, unread, kept))

    def _last(
        self, served: CatalogSnapshot, unread: Collection[str], kept: Collection[tuple[str, str]]
    ) -> list[ResultBatch]:
        if kept:
            served = served.only(served.clearances.keys() - set(kept))
            self.graph.update(self._of(served))
        self.graph.end(concerned_by(served, unread) & self._of(served).clearances.keys(), UNREAD)
        return self.graph.batch([], last=True)

    def start_anew(self, kept: Collection[tuple[str, str]]) -> None:
        """Empties all windows; those of the subscribers who are `kept` go on from what was saved last."""
        if kept:
            self._isolated(lambda some: self._restore(some.only(kept)))
        else:
            self.graph = self._empty()
        self.tables.forget()

    def limited(self, results: Sequence[ResultBatch]) -> list[ResultBatch]:
        """Results in which only those hear of a table that cannot be read who may know of it."""
        return limited(results, NO_TABLE, self.without_table())

    def floors(self, settled: Mapping[str, int]) -> dict[str, int]:
        """The watermarks that the clock gives streams with a declared delay."""
        known = ((stream, self.served.snapshot.descriptors.get(stream), clock) for stream, clock in settled.items())
        return {stream: clock - x.delay for stream, x, clock in known if x is not None and x.delay is not None}

    def warnings(self) -> list[tuple[str, str, str]]:
        """Since the last call: subscribers whose query nears a limit, the query, and a warning."""
        warned, self.graph.warned = self.graph.warned, []
        return warned

    # Saved state ------------------------------------------------------------------------------------------------------

    def forget_labels(self, held: Collection[int]) -> None:
        """Forgets all labels except these and those of tuples in windows and tables."""
        tables = {number for table in self.tables.snapshots.values() for number in distinct(table.labels).tolist()}
        self.graph.forget_labels(tables | set(held))

    def save(self, version: int) -> tuple[Mapping[PartitionName, Mapping[str, Any]], dict[str, Any]]:
        """The records of partitions, and the rest as plain values."""
        self._saved = partitions, chain = self.graph.save(self._states.write)
        return partitions, {
            "chain": chain,
            "barred": self.served.plain(),
            "labels": self.graph.dictionary.save(self._states, version),
            "tables": self.tables.save(version),
        }

    def restore(self, saved: Saved, snapshot: CatalogSnapshot) -> None:
        """Continues from a saved version, with this catalog snapshot."""
        self.tables.restore(saved.rest.get("tables", {}))
        self.served.restore(saved.rest.get("barred", ()))
        self._saved = {x: y for x, y in saved.partitions.items() if not x[0].startswith(PREFIX)}, saved.rest["chain"]
        self.graph.dictionary.restore(self._states, saved.rest["labels"])
        self.served.admit(snapshot)
        self._isolated(self._restore)

    def _restore(self, served: CatalogSnapshot) -> None:
        """Returns to the state that was saved last."""
        partitions, chain = self._saved
        self.graph.restore(self._states.stored(partitions), chain, self._of(served))
