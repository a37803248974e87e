"""Destinations of a run: its sinks together, with the state that each had before the batch in delivery.

After a crash a destination must be the one that results last went to: staged results exist in their sink only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from operator import or_
from typing import Any

from headgate.egress.delivery import Delivered, Handover
from headgate.egress.sinks import Sink, taken
from headgate.egress.version_results import check_one_each
from headgate.errors import StoreError
from headgate.model.rejected import RejectedRows
from headgate.model.results import ResultBatch
from headgate.model.snapshot import CatalogSnapshot, SnapshotSource
from headgate.recovery.state import Saved

Staged = Mapping[str, Sequence[ResultBatch]]
"""The results that are to be delivered, by the name of the sink."""


class Destinations:
    """`state` holds the states of all sinks, those of earlier runs included, by their names.

    INVARIANT: there is at least one sink."""

    def __init__(self, sinks: Sequence[Sink]) -> None:
        self._sinks = sinks
        self.state: dict[str, Any] = {}
        self._places: dict[str, str] = {}
        self._warnings: list[str] = []

    def claim(self, identity: str, epoch: int) -> None:
        for sink in self._sinks:
            sink.claim(identity, epoch)

    def let_go(self) -> None:
        for sink in self._sinks:
            sink.let_go()

    def warnings(self) -> list[str]:
        """Warnings for the operator, since the last call."""
        return [*taken(self._warnings), *(x for sink in self._sinks for x in sink.warnings())]

    def retain(self, now: CatalogSnapshot) -> None:
        """Drops what was kept for former subscribers; all results are out."""
        for sink in self._sinks:
            sink.retain(now)

    # After a restart --------------------------------------------------------------------------------------------------

    def check(self, saved: Saved, *, delivered: bool) -> None:
        """Refuses to continue without a sink that holds undelivered results, and warns if a destination is not the one
        that results last went to."""
        staged = {} if delivered else saved.rest.get("staged", {})
        for name in staged.keys() - {sink.name for sink in self._sinks}:
            raise StoreError(
                f"cannot continue: unpublished results wait in `{staged[name]}`, which was not given or was changed",
                hint="run again with that folder and format, or read everything again with --fresh",
            )
        known = saved.rest.get("places", {})
        self._places = dict(known)
        for sink in (x for x in self._sinks if x.place and known.get(x.place, x.name) != x.name):
            if known[sink.place].split()[0] == sink.name.split()[0]:
                self._warnings.append(
                    f"the folder of results `{sink.place}` was removed or replaced: what was there is not written again"
                )

    def restore(self, saved: Saved, out: Mapping[str, Any] | None) -> Staged:
        """Returns to the state that was saved, or, if the batch was delivered, to the one recorded then (`out`); gives
        the results that are still to be delivered."""
        self.state = dict(saved.rest["sinks"] if out is None else out)
        for sink in self._sinks:
            sink.restore(self.state, out=out is not None)
        return {sink.name: _to_come(saved, sink) for sink in self._sinks} if out is None else {}

    # A batch ----------------------------------------------------------------------------------------------------------

    def stage(self, version: int, results: Sequence[ResultBatch], rejected: Sequence[RejectedRows]) -> Staged:
        check_one_each(results)
        for sink in self._sinks:
            sink.stage(version, results, rejected)
        return dict.fromkeys((sink.name for sink in self._sinks), results)

    def plain(self, results: Sequence[ResultBatch], rejected: Sequence[RejectedRows]) -> dict[str, Any]:
        """What a version records of its sinks before these results are delivered."""
        return {
            "sinks": reduce(or_, (sink.state(results, rejected) for sink in self._sinks), self.state),
            "staged": {x.name: x.place for x in self._sinks if x.keeps and x.place and any(map(len, results))},
            "places": self._places | {sink.place: sink.name for sink in self._sinks if sink.place},
        }

    def to_save(self, results: Sequence[ResultBatch]) -> list[ResultBatch]:
        """The results that must be saved with the version, because not every sink keeps what is staged."""
        return [x for x in results if x.word or not all(sink.keeps for sink in self._sinks)]

    def deliver(
        self,
        snapshots: SnapshotSource,
        computed: CatalogSnapshot | None,
        staged: Staged,
        rejected: Sequence[RejectedRows],
    ) -> list[Delivered]:
        """Delivers into each sink; gives what was delivered into each."""
        found = [Handover(snapshots, x, computed, staged[x.name], rejected).run() for x in self._sinks]
        self.state = reduce(or_, (sink.state() for sink in self._sinks), self.state)
        return found


def _to_come(saved: Saved, sink: Sink) -> list[ResultBatch]:
    """The results that were being delivered into a sink when the process ended."""
    if not sink.keeps:
        return list(saved.results)
    if not sink.place:  # its results ended with the process
        return []
    staged = sink.staged(saved.version) if sink.name in saved.rest["staged"] else []
    return staged + [x for x in saved.results if x.word]
