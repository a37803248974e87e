"""The outlet: results and rejected rows leave through it exactly once, whatever is interrupted.

It is the second half of the pipeline of `recovery/pipeline.py` (commit, deliver, record) for results that were computed
elsewhere: whoever hands them over keeps them until the outlet has committed them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from headgate.egress.sinks import Sink, plain_rejected, rejected_of
from headgate.egress.version_results import placed
from headgate.model.rejected import RejectedRows
from headgate.model.results import ResultBatch
from headgate.model.snapshot import SnapshotSource
from headgate.recovery.counts import RunCounts
from headgate.recovery.destinations import Destinations, Staged
from headgate.recovery.home import STATE, Home
from headgate.recovery.state import Saved, StateFolder


class Outlet:
    """`known` is what was committed last beside results, as plain values."""

    def __init__(self, home: Path, gate: SnapshotSource, sinks: Sequence[Sink]) -> None:
        self._gate, self._sinks = gate, Destinations(sinks)
        self._home = Home(home)
        self.counts = RunCounts()
        self.known: Mapping[str, Any] = {}
        try:
            self._states = StateFolder(home / STATE, self._home.epoch, self._home.check)
            self._sinks.claim(self._home.identity, self._home.epoch)
            self._go_on()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self._sinks.let_go()
        self._home.close()

    def warnings(self) -> list[str]:
        return self._sinks.warnings()

    def _go_on(self) -> None:
        saved = self._states.newest()
        if saved is None:
            return
        out = self._states.out(saved.version)
        self._sinks.check(saved, delivered=out is not None)
        self.known = saved.rest["known"]
        staged = self._sinks.restore(saved, out)
        if out is None:
            self._deliver(saved.version, staged, [rejected_of(x) for x in saved.rest["refused"]])

    def commit(
        self, known: Mapping[str, Any], results: Sequence[ResultBatch] = (), refused: Sequence[RejectedRows] = ()
    ) -> None:
        """Commits all of this at once, then delivers what the rights of that moment permit."""
        self._home.check()
        version, results = self._states.next, placed(results)
        staged = self._sinks.stage(version, results, refused)
        rest = {
            "known": known,
            "refused": [plain_rejected(x) for x in refused],
            **self._sinks.plain(results, refused),
        }
        self._states.save(Saved(version, {}, rest, self._sinks.to_save(results)))
        self.known = known
        self._deliver(version, staged, refused)

    def _deliver(self, version: int, staged: Staged, refused: Sequence[RejectedRows]) -> None:
        """No snapshot that results were computed for is given: every result is decided about, for each subscriber."""
        delivered = self._sinks.deliver(self._gate, None, staged, refused)
        self._states.note_out(version, self._sinks.state)
        self.counts.deliver(delivered)
        now = delivered[-1].now
        self._sinks.retain(now)
        self.counts.retain(now)
