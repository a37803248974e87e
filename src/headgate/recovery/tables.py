"""Contents of tables: what each table held when a query that reads it started, for as long as any query reads it.

The content is written once, beside the state and before the first version that needs it. So a restart continues with
the same content, whatever the source holds by then, and queries that start later see the same.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Mapping

import numpy as np
import pyarrow as pa

from headgate.errors import SourceError
from headgate.ingress.validation import Ingress, RawBatch
from headgate.model.rejected import RejectedRows
from headgate.model.snapshot import CatalogSnapshot
from headgate.model.stream import StreamDescriptor
from headgate.model.times import BEGINNING
from headgate.model.tuples import TupleBatch
from headgate.recovery.state import StateFolder

ReadTable = Callable[[StreamDescriptor], RawBatch]
"""Reads everything that a table holds now, in its order."""


def no_tables(descriptor: StreamDescriptor) -> RawBatch:
    raise SourceError(f"cannot read table {descriptor.name}: no reader of tables is given")


class Tables:
    """`read` reads the content of a source. A table that cannot be read is not tried again while a query waits for
    it."""

    def __init__(self, states: StateFolder, read: ReadTable) -> None:
        self._states = states
        self._read = read
        self._files: dict[str, str] = {}
        self.unreadable: dict[str, SourceError] = {}
        self.snapshots: dict[str, TupleBatch] = {}

    def update(
        self, snapshot: CatalogSnapshot, ingress: Mapping[str, Ingress]
    ) -> tuple[Counter[str], list[RejectedRows]]:
        """Keeps exactly the tables that queries read. Returns how many tuples of each were read, and the rejected rows
        and messages for their owners."""
        needed = {name for query in snapshot.queries for name in query.tables}
        self.snapshots = {name: found for name, found in self.snapshots.items() if name in needed}
        self._files = {name: file for name, file in self._files.items() if name in needed}
        self.unreadable = {name: why for name, why in self.unreadable.items() if name in needed}
        counts, rejected = Counter[str](), list[RejectedRows]()
        for name in sorted(needed - self.snapshots.keys() - self.unreadable.keys()):
            try:
                whole = self._read(snapshot.descriptors[name])
                arrivals, bad = ingress[name].take(whole.table, BEGINNING)
            except Exception as fault:  # whatever it is, it concerns only the queries that read this table
                error = fault if isinstance(fault, SourceError) else _unread(name, fault)
                self.unreadable[name] = error
                counts[name] += 0
                rejected.append(RejectedRows(name, str(error), [{}]))
                continue
            self.snapshots[name] = arrivals
            counts[name] += len(whole)
            rejected += [*whole.rejected, *bad, *(RejectedRows(name, note, [{}]) for note in whole.notes)]
        return counts, rejected

    def forget(self) -> None:
        self.snapshots, self._files, self.unreadable = {}, {}, {}

    # Saved state ------------------------------------------------------------------------------------------------------

    def save(self, version: int) -> dict[str, str]:
        """Writes tables that are not written yet, for the next version; returns the names of the files it needs."""
        for name in self.snapshots.keys() - self._files.keys():
            file = f"{hashlib.sha256(name.encode()).hexdigest()[:16]}.{version}"
            self._states.save_table(file, _plain(self.snapshots[name]))
            self._files[name] = file
        return dict(self._files)

    def restore(self, files: Mapping[str, str]) -> None:
        self._files = dict(files)
        self.snapshots = {name: _arrivals(name, self._states.table(file)) for name, file in files.items()}


def _unread(name: str, fault: Exception) -> SourceError:
    return SourceError(f"cannot read table {name}: {type(fault).__name__}")


def _plain(snapshot: TupleBatch) -> pa.Table:
    """The numbers of labels, then the columns."""
    arrays = [pa.array(snapshot.labels, pa.int64()), *snapshot.columns.values()]
    return pa.table(arrays, names=["label", *snapshot.columns])


def _arrivals(name: str, table: pa.Table) -> TupleBatch:
    labels, *columns = (column.combine_chunks() for column in table.columns)
    values = dict(zip(table.schema.names[1:], columns, strict=True))
    return TupleBatch(name, np.full(len(labels), BEGINNING), labels.to_numpy(), values)
