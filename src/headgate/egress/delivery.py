"""Letting results out: under the rights of that very moment, which nobody can change meanwhile, and without waiting.

While rights are held everyone who wants to change anything waits, so nothing outside of the process is waited for then.
What takes time comes before: results are decided about and made ready where nobody looks. Then rights are held, it is
decided once more whether all of it is still permitted, and it is let out. What has to wait for a disk or for somebody
else's system comes after. If rights have changed in between, or may have, it begins again.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from headgate.egress.filter import permits_all, permitted
from headgate.egress.sinks import Sink
from headgate.errors import LeaseLost
from headgate.model.rejected import RejectedRows
from headgate.model.results import ResultBatch
from headgate.model.snapshot import CatalogSnapshot, SnapshotSource

ROUNDS = 3
"""So often results are made ready before rights are held. After that it is done while they are, so that nobody who
keeps changing rights can hold results up."""


@dataclass(frozen=True)
class Delivered:
    """What is ready to go out, or went out, and under which rights."""

    now: CatalogSnapshot
    results: Sequence[ResultBatch]

    def permitted(self, now: CatalogSnapshot) -> bool:
        if now is self.now:
            return True
        keys = {(name, result_batch.query) for result_batch in self.results for name in result_batch.subscribers}
        named = all(now.naming.get(key) == self.now.naming.get(key) for key in keys)
        return named and all(permits_all(now, x) for x in self.results)


@dataclass(frozen=True)
class Handover:
    """The results of a batch on their way into one sink. `computed` is the demand they were computed for; None after a
    restart."""

    gate: SnapshotSource
    sink: Sink
    computed: CatalogSnapshot | None
    results: Sequence[ResultBatch]
    refused: Sequence[RejectedRows]

    def run(self) -> Delivered:
        """If the lease on rights is lost in the middle it goes on with the rest, unless that is forbidden by now."""
        rounds, ready = 0, None
        while True:
            if ready is None and rounds < ROUNDS:
                ready = self._ready(self.gate.snapshot())
            rounds += 1
            with suppress(LeaseLost), self.gate.open() as now:
                ready = ready or self._ready(now)
                if not ready.permitted(now):
                    ready = None
                    continue
                self.gate.verify()
                self.sink.publish(self.gate.verify)
                ready = Delivered(now, ready.results)
                break
        self.sink.complete()
        return ready

    def _ready(self, now: CatalogSnapshot) -> Delivered:
        same = now is self.computed
        allowed = (
            list(self.results) if same else [x for result_batch in self.results for x in permitted(now, result_batch)]
        )
        self.sink.prepare(allowed, self.refused, as_staged=same)
        return Delivered(now, allowed)
