"""The outlet: results and rejected rows leave through it exactly once, whatever is interrupted.

It commits and delivers results that were computed elsewhere, by the `Committer` of the pipeline: whoever hands them
over keeps them until the outlet has committed them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from headgate.egress.sinks import Sink
from headgate.egress.version_results import placed
from headgate.model.rejected import RejectedRows
from headgate.model.results import ResultBatch
from headgate.model.snapshot import SnapshotSource
from headgate.recovery.committer import Committer
from headgate.recovery.counts import RunCounts
from headgate.recovery.destinations import Destinations, Staged
from headgate.recovery.home import STATE, Home
from headgate.recovery.state import StateFolder


class Outlet:
    """`known` is what was committed last beside results, as plain values."""

    def __init__(self, home: Path, gate: SnapshotSource, sinks: Sequence[Sink]) -> None:
        self._gate = gate
        self.counts = RunCounts()
        self.known: Mapping[str, Any] = {}
        own = Home(home)
        try:
            states = StateFolder(home / STATE, own.epoch, own.check)
            self._committer = Committer(own, states, None, Destinations(sinks))
        except BaseException:
            own.close()
            raise
        try:
            self._committer.claim()
            self._go_on()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self._committer.close()

    def warnings(self) -> list[str]:
        return self._committer.destinations.warnings()

    def _go_on(self) -> None:
        saved = self._committer.newest()
        if saved is None:
            return
        self.known = saved.rest["known"]
        undelivered = self._committer.undelivered(saved)
        if undelivered is not None:
            self._deliver(*undelivered)

    def commit(
        self, known: Mapping[str, Any], results: Sequence[ResultBatch] = (), rejected: Sequence[RejectedRows] = ()
    ) -> None:
        """Commits all of this at once, then delivers what the rights of that moment permit."""
        self._committer.begin()
        results = placed(results)
        staged = self._committer.stage(results, rejected)
        self._committer.commit({}, {"known": known}, results, rejected)
        self.known = known
        self._deliver(staged, rejected)

    def _deliver(self, staged: Staged, rejected: Sequence[RejectedRows]) -> None:
        """No snapshot that results were computed for is given: every result is decided about, for each subscriber."""
        delivered = self._committer.deliver(self._gate, None, staged, rejected)
        self.counts.deliver(delivered)
        now = delivered[-1].now
        if not self._committer.retains(now):
            self._committer.retain(now)
            self.counts.retain(now)
