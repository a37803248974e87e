"""Runs the queries with deadlines: each piece of work at its time, apart from all other queries.

A fault in one of them ends it for its subscribers, and nobody else notices.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import partial
from itertools import chain
from typing import Any, TypeVar

from headgate.clock import Clock
from headgate.egress.version_results import joined
from headgate.errors import StoreError
from headgate.execution.partitions import PartitionName
from headgate.logs import failure
from headgate.model.results import ResultBatch
from headgate.model.tuples import TupleBatch
from headgate.recovery.counts import RunCounts
from headgate.recovery.dead_letters import DeadLetters
from headgate.recovery.deadlines import Deadlines, DonePiece
from headgate.recovery.live_query import LiveQuery, WorkPiece
from headgate.recovery.live_state import LiveStates
from headgate.recovery.shared_queries import SharedQueries
from headgate.recovery.state import Saved, StateFolder

Done = TypeVar("Done")
Finish = Callable[[list[ResultBatch]], None]
"""Commits and delivers results."""
TOGETHER = 100_000_000
"""After so many nanoseconds of work it is committed: a commit takes as long as a piece, and results wait for it. Tuples
that come wait for it too."""


class LiveQueries:
    """`shared` are the other queries: the same subscribers are served, the same tables read. Unless it `governs`,
    there are no deadlines: what comes is computed at once, in the full version."""

    def __init__(
        self,
        deadlines: Deadlines,
        shared: SharedQueries,
        letters: DeadLetters,
        counts: RunCounts,
        states: StateFolder,
        clock: Clock,
        *,
        governs: bool,
    ) -> None:
        self.deadlines = deadlines
        self._shared = shared
        self._letters, self._counts = letters, counts
        self._write, self._saved = states.write, LiveStates(states)
        self._clock = clock
        self._ticked = 0
        self._governs = governs

    def _tick(self) -> int:
        """The clock, in nanoseconds; it does not go back."""
        self._ticked = max(self._ticked, int(self._clock.now() * 1e9))
        return self._ticked

    # Catalog snapshots and tuples -------------------------------------------------------------------------------------

    def update(self) -> None:
        """Follows the catalog snapshot of those who are served."""
        for live, own in self.deadlines.meet(self._shared.served.snapshot, self._tick()):
            self._isolated(live, partial(live.meet, own))
        self._feed()

    def _feed(self) -> None:
        """Gives tables to the queries that read them."""
        labels, tables = self._shared.graph.dictionary.labels, self._shared.tables.snapshots
        unreadable = self._shared.without_table()
        for live in list(self.deadlines.queries.values()):
            self._isolated(live, partial(live.feed, tables, labels, unreadable))

    def reads(self, stream: str) -> bool:
        return self.deadlines.reads(stream)

    def arrive(self, arrivals: TupleBatch, came: int, floors: Mapping[str, int]) -> None:
        """Tuples came; they wait for their time."""
        labels, served = self._shared.graph.dictionary.labels, self._shared.served.snapshot
        write = self._write if self._governs else lambda _: ""  # without deadlines, nothing stays
        self.deadlines.arrive(arrivals, labels, served, came, floors, write)

    def pass_time(self, floors: Mapping[str, int]) -> None:
        self.deadlines.pass_time(int(self._clock.now() * 1000), floors)

    # Work -------------------------------------------------------------------------------------------------------------

    def work(self, finish: Finish) -> float | None:
        """Does the next pieces of work of one level, if their time has come, and commits them together; returns when to
        call again, by the clock. None: there are no such queries."""
        self.catch_up(finish)
        governor = self.deadlines.governor
        if governor is None or not self.deadlines.queries:
            return None
        now = self._tick()
        self.deadlines.begin(now)
        found = self.deadlines.next(now)
        if found is None:
            return governor.next_quantum(now) / 1e9
        run, results, level = list[DonePiece](), list[ResultBatch](), found[1].level
        begun = now = self._tick()  # what was decided before is not part of the work
        while found is not None:
            number, live, piece = found
            if live.tells(piece.version) and (run or (results := self._end_version(live, piece.version))):
                self.deadlines.put_back(number, live, piece)  # notices come before all results of a version
                break
            results += self._run(live, piece)
            before, now = now, self._tick()
            run.append(DonePiece(number, live, piece, now - before))
            found = self.deadlines.next(now, level) if now - begun < TOGETHER else None
        finish(joined(results))
        done = self._tick()
        self.deadlines.done(done, run, done - now)
        self._counts.due = self.deadlines.status()
        return done / 1e9

    def catch_up(self, finish: Finish, *, everything: bool = False) -> None:
        """Does what is to be done whatever time it is: what was admitted before, or everything that waits."""
        waiting = self.deadlines.undone()
        for live, piece in chain(waiting, self.deadlines.unasked()) if everything else waiting:
            if ended := self._end_version(live, piece.version):
                with live.still_undone(piece):
                    finish(ended)
            finish(self._run(live, piece))
            self.deadlines.redone(self._tick(), live, piece)

    @property
    def due_at_once(self) -> bool:
        """Whether something waits although there are no deadlines."""
        return not self._governs and self.deadlines.waits

    def at_once(self) -> list[ResultBatch]:
        """The results of all that waits, if there are no deadlines."""
        if not self.due_at_once:
            return []
        waiting = self.deadlines.unasked(full=True)
        return joined([y for live, x in waiting for y in (*self._end_version(live, x.version), *self._run(live, x))])

    def finish_all(self, finish: Finish) -> None:
        """Does everything that waits."""
        self.deadlines.recall()
        self.catch_up(finish, everything=True)

    def end(self, kept: Collection[tuple[str, str]], unread: Collection[tuple[str, str]]) -> list[ResultBatch]:
        """The results of all open windows; the queries are forgotten, except those that are `kept` for their
        subscribers. Subscribers (by name and query) to whose streams something is `unread` are told so instead."""
        found = list[ResultBatch]()
        for live in [x for x in self.deadlines.queries.values() if not set(x.keys) & set(kept)]:
            found += self._isolated(live, partial(live.end, unread)) or []
            self.deadlines.drop(live.key)
        return found

    def _end_version(self, live: LiveQuery, following: int) -> list[ResultBatch]:
        """The last results of the version in force, before another one."""
        return self._shared.limited(self._isolated(live, partial(live.change, following)) or [])

    def _run(self, live: LiveQuery, piece: WorkPiece) -> list[ResultBatch]:
        """The results of a piece whose version is in force."""
        found = self._isolated(live, partial(live.run, piece))
        if found is None:
            return []
        self._letters.late(piece.waiting.tuples.stream, live.graph.late)
        self._shared.graph.warned += live.graph.warned
        return self._shared.limited(found)

    def _isolated(self, live: LiveQuery, act: Callable[[], Done]) -> Done | None:
        """Runs a step of one query; if it fails, the query ends for its subscribers, and no step of it runs again."""
        if self.deadlines.queries.get(live.key) is not live:
            return None
        try:
            return act()
        except StoreError:
            raise
        except Exception as error:
            failure("pipeline", "a query with a deadline failed", error)
            self._shared.served.bar(live.keys, error)
            self.deadlines.drop(live.key)
            return None

    # Saved state ------------------------------------------------------------------------------------------------------

    def save(self, version: int) -> tuple[Mapping[PartitionName, Mapping[str, Any]], dict[str, Any]]:
        """The records of partitions, and the rest as plain values."""
        partitions, live = self._saved.save(self.deadlines.queries, self.deadlines.seed, version)
        return partitions, {"live": live} if live else {}

    def restore(self, saved: Saved, finish: Finish) -> None:
        """Does what was decided before the process ended as it was decided then. Without deadlines, also what was not
        decided yet."""
        plain = {tuple(x["key"]): x for x in saved.rest.get("live", {}).get("queries", ())}
        if not plain:
            return
        self.deadlines.seed = saved.rest["live"]["seed"]
        for live, own in self.deadlines.meet(self._shared.served.snapshot, self._tick()):
            rest = plain.get(live.key)
            self._isolated(live, partial(live.meet, own))
            if rest is not None and rest["meaning"] == live.query.meaning:
                self._isolated(live, partial(self._saved.restore, live, rest, saved.partitions))
        self._feed()
        self.catch_up(finish, everything=not self._governs)
        for live in () if self._governs else list(self.deadlines.queries.values()):
            if ended := self._end_version(live, len(live.deadline.versions) - 1):
                finish(ended)
