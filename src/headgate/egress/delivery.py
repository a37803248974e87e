"""Delivery of a batch's results into a sink, under the rights that hold at that moment.

While the catalog is open (`SnapshotSource.open`) every change of rights waits, so nothing outside the process may be
waited for in that time. Slow work comes before: results are filtered and prepared while the catalog is not held. Then
the catalog is opened, all prepared results are checked against its rights once more, and published. Waiting for a disk
or an external system comes after. If rights changed in between, or may have changed, delivery starts again.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from headgate.egress.filter import permits_all, permitted
from headgate.egress.sinks import Sink
from headgate.errors import LeaseLost
from headgate.model.rejected import RejectedRows
from headgate.model.results import ResultBatch
from headgate.model.snapshot import CatalogSnapshot, SnapshotSource

ROUNDS = 3
"""Results are prepared this many times before the catalog is opened. After that they are prepared while it is open, so
that a user who keeps changing rights cannot delay results."""


@dataclass(frozen=True)
class Delivered:
    """Results that are prepared or published.

    now: the catalog snapshot whose rights they were filtered by
    results: those that are permitted
    withheld: how many are not, counted for each subscriber
    """

    now: CatalogSnapshot
    results: Sequence[ResultBatch]
    withheld: int = 0

    def permitted(self, now: CatalogSnapshot) -> bool:
        if now is self.now:
            return True
        keys = {(name, result_batch.query) for result_batch in self.results for name in result_batch.subscribers}
        named = all(now.naming.get(key) == self.now.naming.get(key) for key in keys)
        return named and all(permits_all(now, x) for x in self.results)


@dataclass(frozen=True)
class Handover:
    """The delivery of one batch's results into one sink. `computed` is the catalog snapshot they were computed for;
    None after a restart."""

    snapshots: SnapshotSource
    sink: Sink
    computed: CatalogSnapshot | None
    results: Sequence[ResultBatch]
    rejected: Sequence[RejectedRows]

    def run(self) -> Delivered:
        """If the lease is lost midway, the remaining results are still delivered, unless rights forbid them by now."""
        rounds, ready = 0, None
        while True:
            if ready is None and rounds < ROUNDS:
                ready = self._ready(self.snapshots.snapshot())
            rounds += 1
            with suppress(LeaseLost), self.snapshots.open() as now:
                ready = ready or self._ready(now)
                if not ready.permitted(now):
                    ready = None
                    continue
                self.snapshots.verify()
                self.sink.publish(self.snapshots.verify)
                ready = replace(ready, now=now)
                break
        self.sink.complete()
        return ready

    def _ready(self, now: CatalogSnapshot) -> Delivered:
        same = now is self.computed
        allowed = (
            list(self.results) if same else [x for result_batch in self.results for x in permitted(now, result_batch)]
        )
        self.sink.prepare(allowed, self.rejected, as_staged=same)
        return Delivered(now, allowed, _received(self.results) - _received(allowed))


def _received(result_batches: Sequence[ResultBatch]) -> int:
    return sum(len(x) * len(x.subscribers) for x in result_batches)
