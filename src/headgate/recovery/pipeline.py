"""A pipeline: takes batches of tuples and delivers every subscriber's results exactly once, whatever is interrupted.

Everything that happens is a step, one after the other: follow the catalog snapshot, compute, commit a version, deliver
its results. After a crash the pipeline continues from the newest version: batches it contains are not taken again.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pyarrow as pa

from headgate.clock import Clock
from headgate.egress.filter import permitted
from headgate.egress.sinks import Sink
from headgate.egress.version_results import placed
from headgate.errors import SourceError
from headgate.execution.tasks.step import TaskRefusal
from headgate.ingress.batches import SourceBatch, TableBatch
from headgate.ingress.pushdown import Pushdown
from headgate.labels import Label
from headgate.logs import event
from headgate.model.limits import Limits
from headgate.model.rejected import RejectedRows
from headgate.model.results import ResultBatch
from headgate.model.snapshot import CatalogSnapshot, SnapshotSource
from headgate.model.tuples import TupleBatch
from headgate.plan.analysis import DeadlineCounts, LevelCounts, ViewCounts
from headgate.recovery.checkpoints import Checkpoints
from headgate.recovery.committer import Committer
from headgate.recovery.counts import RunCounts
from headgate.recovery.dead_letters import DeadLetters
from headgate.recovery.deadlines import Deadlines, Governing
from headgate.recovery.destinations import Destinations, Staged
from headgate.recovery.home import CHECKPOINTS, STATE, Home
from headgate.recovery.ingestion import Ingestion, ValidBatch
from headgate.recovery.live_queries import LiveQueries
from headgate.recovery.messages import CONTINUES, NO_TABLE, UNREAD, concerned_by, limited
from headgate.recovery.query_graph import Make
from headgate.recovery.shared_queries import SharedQueries
from headgate.recovery.source_notices import SourceNotices
from headgate.recovery.state import StateFolder
from headgate.recovery.step_lock import StepLock
from headgate.recovery.subscription_status import Notice, SubscriptionStatuses
from headgate.recovery.tables import ReadTable, no_tables
from headgate.recovery.unknown_roles import UnknownRoles
from headgate.storage import Storage
from headgate.stores import StateLocation


class Pipeline:
    """`make` makes the executor of a program; `sinks` take the results; `read_table` reads the content of tables;
    the state is in a folder of `home`, in `storage`, or at a `place` elsewhere, where checkpoints are kept too. With
    `take_over` it replaces another process that has not ended. Without `governing` there are no deadlines: queries that
    have one are computed at once, in the full version."""

    def __init__(
        self,
        home: Path,
        snapshots: SnapshotSource,
        make: Make,
        sinks: Sequence[Sink],
        clock: Clock,
        limits: Limits | None = None,
        read_table: ReadTable = no_tables,
        storage: Storage | None = None,
        *,
        place: StateLocation | None = None,
        take_over: bool = False,
        governing: Governing | None = None,
    ) -> None:
        own = Home(home, place, take_over=take_over)
        if place is not None:
            storage = place.below(STATE).storage()
        states = StateFolder(storage or home / STATE, own.epoch, own.check)
        checkpoints = None if place is None else Checkpoints(home / CHECKPOINTS, states)
        deadlines = Deadlines(governing.make if governing and governing.make else make, limits, governing)
        self.began = clock.now()
        self.counts = RunCounts()
        self._clock = clock
        self._lock = StepLock()
        self._snapshots, self._snapshot = snapshots, CatalogSnapshot()
        self._committer = Committer(own, states, checkpoints, Destinations(sinks))
        self._letters = DeadLetters(self.counts)
        self._unknown_roles = UnknownRoles()
        self._sources = SourceNotices()
        self._statuses = SubscriptionStatuses()
        self._shared = SharedQueries(make, limits, read_table, states, deadlines.others)
        self._live = LiveQueries(
            deadlines, self._shared, self._letters, self.counts, states, clock, governs=governing is not None
        )
        self._ingestion = Ingestion(self._shared, limits)
        try:
            self._committer.claim()
            self._recover()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self._committer.close()

    def _recover(self) -> None:
        """Continues from the newest version, if there is one."""
        saved, snapshot = self._committer.newest(), self._snapshots.snapshot()
        if saved is None:
            self._update(snapshot)
            return
        self._ingestion.done = dict(saved.rest["done"])
        self._statuses.restore(saved.rest.get("standings", ()))
        began = self._clock.now()
        self._shared.restore(saved, snapshot)
        event(
            "pipeline",
            "state restored",
            version=saved.version,
            partitions=len(saved.partitions),
            tuples=self._shared.graph.held,
            seconds=round(self._clock.now() - began, 3),
        )
        self._update(snapshot)
        ended = limited(self._shared.graph.ended(), NO_TABLE, self._shared.without_table(snapshot))
        self.counts.end(snapshot, [x for word in ended for x in permitted(snapshot, word)])
        undelivered = self._committer.undelivered(saved)
        if undelivered is not None:
            self._deliver(None, *undelivered)
        self._live.restore(saved, partial(self._finish, snapshot))

    # What is asked of it ----------------------------------------------------------------------------------------------

    def profile(self, query: str, subscriber: str | None = None) -> list[ViewCounts]:
        """What was done for the views of a query since this pipeline began: all, or the one that serves this
        subscriber. Waits for a batch to end."""
        with self._lock.between_steps():
            return [*self._shared.graph.profile(query, subscriber), *self.deadlines.profile(query, subscriber)]

    def warnings(self) -> list[str]:
        """Warnings for the operator, since the last call."""
        return self._committer.destinations.warnings()

    def notices(self) -> list[Notice]:
        """Changes of subscriptions since the last call, for the operator."""
        return self._statuses.for_operator()

    @property
    def unreadable(self) -> Mapping[str, SourceError]:
        """The tables that cannot be read, and why."""
        return self._shared.tables.unreadable

    @property
    def held(self) -> int:
        """How many tuples the state keeps."""
        return self._shared.graph.held + self.deadlines.held

    @property
    def deadlines(self) -> Deadlines:
        """The queries with deadlines, to be looked at."""
        return self._live.deadlines

    def due(self) -> tuple[Sequence[DeadlineCounts], Sequence[LevelCounts]]:
        """The queries with deadlines that run, and the levels in the last control period. It waits for nobody: those
        who ask may hold a lock that a batch needs."""
        return self.counts.due

    def done(self, stream: str) -> int:
        """The number of the last batch taken from a stream; -1 if none was."""
        return self._ingestion.done.get(stream, -1)

    @property
    def last_done(self) -> int:
        """The greatest number of a batch taken from any stream; -1 if none was."""
        return max(self._ingestion.done.values(), default=-1)

    # Batches ----------------------------------------------------------------------------------------------------------

    def take(
        self,
        stream: str,
        number: int,
        given: SourceBatch | pa.Table,
        came: int | None = None,
        settled: int | None = None,
    ) -> None:
        """Takes the next tuples of a stream, which `came` when the clock showed so many milliseconds (None: now). A
        batch whose number was taken before is not taken again. With this batch, all tuples have been taken that came
        before the clock showed `settled` (None: that is not known)."""
        arrived, driver = self._clock.now(), time.thread_time()
        batch = TableBatch(given) if isinstance(given, pa.Table) else given
        now = int(arrived * 1000) if came is None else came
        if not self._taken_by_tasks(stream, number, batch, now, settled):
            self._take(stream, number, batch, now, settled)
        self.counts.lag[stream] = self._clock.now() - arrived
        event(
            "pipeline",
            "batch done",
            stream=stream,
            batch=number,
            version=self._committer.version,
            tuples=self.counts.tuples[stream],
            seconds=round(self.counts.lag[stream], 3),
            driver_seconds=round(time.thread_time() - driver, 3),
            **self._shared.graph.work,
        )

    def _taken_by_tasks(self, stream: str, number: int, batch: SourceBatch, now: int, settled: int | None) -> bool:
        """Has tasks read a batch; False if the driver must read it."""
        with self._lock.step():
            if self._ingestion.is_done(stream, number):
                return True
            snapshot = self._follow()
            if stream not in self._ingestion.streams or self._live.reads(stream):
                return False
            self._shared.choose_executor(batch.size())
            splits = batch.splits() if self._shared.graph.reads_splits(stream) else None
            if splits is None:
                return False
            found = self._ingestion.read_by_tasks(stream, splits, now, self._floors(stream, settled))
            if isinstance(found, TaskRefusal):
                event("pipeline", "the driver reads a batch", stream=stream, batch=number, why=found.driver)
                return False
            results, tuples = found
            self.counts.unseen[stream] += self._shared.graph.unseen
            self._letters.reject(self._shared.graph.malformed)
            self._finish_batch(snapshot, stream, number, results, tuples)
            return True

    def _take(self, stream: str, number: int, batch: SourceBatch, now: int, settled: int | None) -> None:
        with self._lock.step():
            if self._ingestion.is_done(stream, number):
                return  # its files may be gone
            pushdown = self._pushdown(stream)
        # without the lock: other streams proceed
        decoded = batch.decoded(pushdown, now, partial(self._register, stream)) if pushdown else None
        whole = batch.all_rows() if pushdown and decoded is None else None
        with self._lock.step():
            if self._ingestion.is_done(stream, number):
                return
            snapshot = self._follow()
            if stream not in self._ingestion.streams:  # its queries left while it was being read
                self._skip(snapshot, stream, number)
            elif decoded is not None and self._ingestion.is_current(decoded):
                self._compute(snapshot, number, self._ingestion.decoded(stream, decoded), now, settled)
            else:
                valid = self._ingestion.validated(stream, batch.all_rows() if whole is None else whole, now)
                self._compute(snapshot, number, valid, now, settled)

    def _register(self, stream: str, texts: Sequence[tuple[str | None, ...]]) -> Pushdown | None:
        with self._lock.step():
            self._ingestion.register(stream, texts)
            return self._pushdown(stream)

    def _pushdown(self, stream: str) -> Pushdown | None:
        self._follow()
        return None if self._live.reads(stream) else self._ingestion.pushdown(stream)

    def take_labelled(
        self, given: TupleBatch, labels: Sequence[Label], number: int, came: int, settled: int | None
    ) -> None:
        """Takes tuples that were validated and labelled elsewhere; the numbers in `given` are places in `labels`. A
        column that the stream got since is NULL in them."""
        with self._lock.step():
            if self._ingestion.is_done(given.stream, number):
                return
            snapshot = self._follow()
            if given.stream not in self._ingestion.streams:  # its queries left while the tuples were on their way
                self._skip(snapshot, given.stream, number)
            else:
                self._compute(snapshot, number, self._ingestion.labelled(given, labels), came, settled)

    def _skip(self, snapshot: CatalogSnapshot, stream: str, number: int) -> None:
        """Takes a batch that nobody reads."""
        self._ingestion.done[stream] = number
        self._finish(snapshot, ())

    def _compute(
        self, snapshot: CatalogSnapshot, number: int, batch: ValidBatch, now: int, settled: int | None
    ) -> None:
        stream, floors = batch.arrivals.stream, self._floors(batch.arrivals.stream, settled)
        self.counts.unseen[stream] += batch.unseen
        self._letters.reject(batch.rejected)
        for text in batch.notes:
            self._letters.tell(stream, text)
        results = self._shared.batch([batch.arrivals], floors, clock=now)
        if self._live.reads(stream):
            self._live.arrive(batch.arrivals, now, floors)
            results += self._live.at_once()
        else:
            self.counts.unseen[stream] += self._shared.graph.unseen
        self._letters.late(stream, self._shared.graph.late)
        self._finish_batch(snapshot, stream, number, results, batch.tuples)

    def _floors(self, stream: str, settled: int | None) -> dict[str, int]:
        return self._shared.floors({} if settled is None else {stream: settled})

    def _finish_batch(
        self, snapshot: CatalogSnapshot, stream: str, number: int, results: Sequence[ResultBatch], tuples: int
    ) -> None:
        self._ingestion.done[stream] = number
        self.counts.batches += 1
        self._finish(snapshot, [*self._resumed(stream), *results])
        self.counts.tuples[stream] += tuples

    # Time -------------------------------------------------------------------------------------------------------------

    def work(self) -> float | None:
        """Does the next piece of work of a query with a deadline, if its time has come; returns when to call again, by
        the clock. None: there are no such queries."""
        if not self.deadlines.queries:
            return None
        with self._step() as snapshot:
            return self._live.work(partial(self._finish, snapshot))

    def pass_time(self, settled: Mapping[str, int]) -> None:
        """Time passes although nothing comes: all tuples of these streams have been taken that came before the clock
        showed so many milliseconds. Makes a batch without tuples if that makes something final. If not, the time counts
        all the same: whether it does must not depend on what others hold."""
        with self._lock.step():
            floors = self._shared.floors(settled)
            if self._shared.graph.is_due(floors):
                snapshot = self._follow()
                self._finish(snapshot, self._shared.batch([], floors))
            else:
                self._shared.graph.pass_time(floors)
            self._live.pass_time(floors)
            if self._live.due_at_once:
                self._finish(self._follow(), self._live.at_once())

    def end(self, unread: Mapping[str, str] | None = None, left_alone: Collection[str] = ()) -> None:
        """Ends all streams: every open window becomes final. If tuples arrive later nevertheless, windows start anew,
        because time cannot go back behind its end. `unread` gives the streams that were not read to their end, and why;
        queries that read them end without the results that would be wrong. Subscriptions over streams that are
        `left_alone` keep their windows: such a stream has no end here."""
        unread = unread or {}
        with self._step() as snapshot:
            self._live.finish_all(partial(self._finish, snapshot))
            kept, gone = concerned_by(self._served, left_alone), concerned_by(self._served, unread)
            found = [*self._shared.last(unread, kept), *self._live.end(kept, gone)]
            results = self._shared.limited(limited(found, UNREAD, gone))
            self._shared.start_anew(kept)
            self._ingestion.end()
            self._snapshot = CatalogSnapshot()
            self._letters.tell_all(unread)
            self._finish(snapshot, results)

    # Sources and subscriptions ----------------------------------------------------------------------------------------

    def wait(self, unread: Mapping[str, str]) -> None:
        """Notifies owners and waiting subscribers that these streams cannot be read at the moment, and why."""
        with self._step() as snapshot:
            self._letters.tell_all({x: why for x, why in unread.items() if x in snapshot.descriptors})
            self._finish(snapshot, self._sources.wait(self._served, unread))

    def resume(self, streams: Collection[str]) -> None:
        """Notifies everybody who was told that these streams cannot be read: they can be read again."""
        with self._step() as snapshot:
            told = [x for stream in sorted(streams) for x in self._resumed(stream)]
            if told or self._letters:
                self._finish(snapshot, told)

    def _resumed(self, stream: str) -> list[ResultBatch]:
        """The notices that a stream can be read again, if somebody was told that it cannot."""
        if self._sources.is_waiting(stream) and stream in self._served.descriptors:
            self._letters.tell(stream, CONTINUES)
        return self._sources.resume(self._served, stream)

    def tell(self, notes: Mapping[str, Sequence[str]]) -> None:
        """Sends messages about their files to the owners of streams."""
        with self._step() as snapshot:
            for stream, texts in notes.items():
                for text in texts if stream in snapshot.descriptors else ():
                    self._letters.tell(stream, text)
            self._finish(snapshot, ())

    def commit(self) -> None:
        """Commits what has changed since the last batch: rights, subscribers, time. A restart does not undo it."""
        with self._step() as snapshot:
            self._finish(snapshot, ())

    def settle(self) -> None:
        """Drops what is kept for subscribers who have left, and sends notices about subscriptions, even if no batch
        comes. What was delivered last may have been delivered under rights newer than those it was computed for: then
        what was kept is in line with them, and subscribers have yet to be told."""
        snapshot = self._snapshots.snapshot()
        if not self._committer.retains(snapshot) or snapshot is not self._snapshot or self._has_news:
            with self._lock.step():
                self._update(snapshot)
                if self._has_news:  # at once: perhaps no batch ever comes
                    self._finish(snapshot, ())
                self._retain(snapshot)

    @property
    def _has_news(self) -> bool:
        return self._statuses.pending or self._shared.served.has_news

    # Steps ------------------------------------------------------------------------------------------------------------

    @contextmanager
    def _step(self) -> Iterator[CatalogSnapshot]:
        with self._lock.step():
            yield self._follow()

    def _follow(self) -> CatalogSnapshot:
        """Brings everything in line with the catalog snapshot of this moment."""
        snapshot = self._snapshots.snapshot()
        self._update(snapshot)
        return snapshot

    def _update(self, snapshot: CatalogSnapshot) -> None:
        if snapshot is self._snapshot:
            return
        self._shared.served.admit(snapshot)
        self._ingestion.update(snapshot)
        tuples, rejected = self._shared.read_tables(self._ingestion.streams)
        self.counts.tuples.update(tuples)
        self._letters.reject(rejected)
        self._shared.update()
        self._statuses.update(snapshot)
        self._snapshot = snapshot
        self._live.update()

    @property
    def _served(self) -> CatalogSnapshot:
        """The part of the catalog snapshot for subscribers whose query can be run."""
        return self._shared.served.snapshot

    def _finish(self, snapshot: CatalogSnapshot, results: Sequence[ResultBatch]) -> None:
        """Commits a version and delivers its results."""
        self._letters.add(self._unknown_roles.notes(snapshot.roles, self._ingestion.streams))
        version, rejected = self._committer.begin(), self._letters.take()
        results = placed(self._with_notices(results))
        staged = self._committer.stage(results, rejected)
        self._ingestion.forget_labels()
        partitions, shared = self._shared.save(version)
        governed, live = self._live.save(version)
        rest = {"done": self._ingestion.done, "standings": self._statuses.plain(), **shared, **live}
        self._committer.commit({**partitions, **governed}, rest, results, rejected)
        self._deliver(snapshot, staged, rejected)

    def _with_notices(self, results: Sequence[ResultBatch]) -> list[ResultBatch]:
        results = [*results, *self._shared.served.news()]
        warned = self._shared.warnings()
        for query, why in dict.fromkeys((query, why) for _, query, why in warned):
            event("pipeline", "a query nears a limit", level=logging.WARNING, query=query, why=why)
        return [*self._statuses.notice(results, warned), *results]  # a status changed before the tuples of a batch came

    def _deliver(self, computed: CatalogSnapshot | None, staged: Staged, rejected: Sequence[RejectedRows]) -> None:
        delivered = self._committer.deliver(self._snapshots, computed, staged, rejected)
        self.counts.deliver(delivered)
        self._shared.graph.delivered()
        self._retain(delivered[-1].now)

    def _retain(self, snapshot: CatalogSnapshot) -> None:
        """Drops what was kept for former subscribers; all results are out."""
        if not self._committer.retains(snapshot):
            self._committer.retain(snapshot)
            self.counts.retain(snapshot)
