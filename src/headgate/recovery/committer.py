"""Commits versions and delivers their results, in two phases.

A version is committed when its manifest is written; its results are in the version then, or staged in sinks that keep
them. Then the results are delivered under the rights of that moment, and the delivery is recorded. After a crash the
results of the newest version, unless their delivery is recorded, are delivered in place of whatever part of them was
already written.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from headgate.egress.delivery import Delivered
from headgate.egress.sinks import plain_rejected, rejected_of
from headgate.execution.partitions import PartitionName
from headgate.model.rejected import RejectedRows
from headgate.model.results import ResultBatch
from headgate.model.snapshot import CatalogSnapshot, SnapshotSource
from headgate.recovery.checkpoints import Checkpoints
from headgate.recovery.destinations import Destinations, Staged
from headgate.recovery.home import Home
from headgate.recovery.state import Saved, StateFolder


class Committer:
    """`states` holds the versions, `destinations` are the sinks; `checkpoints` are kept beside a state that is
    elsewhere."""

    def __init__(
        self, home: Home, states: StateFolder, checkpoints: Checkpoints | None, destinations: Destinations
    ) -> None:
        self._home = home
        self.states = states
        self._checkpoints = checkpoints
        self.destinations = destinations
        self.version = 0
        self._retained = CatalogSnapshot()

    def claim(self) -> None:
        self.destinations.claim(self._home.identity, self._home.epoch)

    def close(self) -> None:
        self.destinations.let_go()
        self._home.close()

    # After a restart --------------------------------------------------------------------------------------------------

    def newest(self) -> Saved | None:
        """The newest version, if there is one; checkpoints return to it."""
        saved = self.states.newest()
        if self._checkpoints is not None:
            self._checkpoints.restore({} if saved is None else saved.rest.get("checkpoints", {}))
        if saved is not None:
            self.destinations.check(saved, delivered=self.states.out(saved.version) is not None)
            self.version = saved.version
        return saved

    def undelivered(self, saved: Saved) -> tuple[Staged, list[RejectedRows]] | None:
        """Takes the sinks back to this version; gives what is still to be delivered of it."""
        out = self.states.out(saved.version)
        staged = self.destinations.restore(saved, out)
        return (staged, [rejected_of(x) for x in saved.rest["refused"]]) if out is None else None

    # A version --------------------------------------------------------------------------------------------------------

    def begin(self) -> int:
        """The number of the next version."""
        self._home.check()
        self.version = self.states.next
        return self.version

    def stage(self, results: Sequence[ResultBatch], rejected: Sequence[RejectedRows]) -> Staged:
        return self.destinations.stage(self.version, results, rejected)

    def commit(
        self,
        partitions: Mapping[PartitionName, Mapping[str, Any]],
        rest: Mapping[str, Any],
        results: Sequence[ResultBatch],
        rejected: Sequence[RejectedRows],
    ) -> None:
        rest = {
            **rest,
            "refused": [plain_rejected(x) for x in rejected],
            **({} if self._checkpoints is None else {"checkpoints": self._checkpoints.save(self.version)}),
            **self.destinations.plain(results, rejected),
        }
        self.states.save(Saved(self.version, dict(partitions), rest, self.destinations.to_save(results)))

    def deliver(
        self,
        snapshots: SnapshotSource,
        computed: CatalogSnapshot | None,
        staged: Staged,
        rejected: Sequence[RejectedRows],
    ) -> list[Delivered]:
        """Delivers results into each sink, under the rights of that moment, which cannot change meanwhile, and records
        the delivery."""
        delivered = self.destinations.deliver(snapshots, computed, staged, rejected)
        self.states.note_out(self.version, self.destinations.state)
        return delivered

    # Former subscribers -----------------------------------------------------------------------------------------------

    def retains(self, snapshot: CatalogSnapshot) -> bool:
        """Whether `retain` was called with this snapshot last."""
        return snapshot is self._retained

    def retain(self, snapshot: CatalogSnapshot) -> None:
        """Drops what sinks keep for former subscribers; all results are out."""
        self.destinations.retain(snapshot)
        self._retained = snapshot
