"""A pipeline: takes batches of tuples and delivers every subscriber's results exactly once, whatever is interrupted.

Delivery is two-phase. A batch is committed when the manifest of its version is written; its results are in the version
then, or staged in sinks that keep them. Then the results are delivered under the rights of that moment, and the
delivery is recorded. After a crash the pipeline continues from the
newest state: batches it contains are not taken again, and its results, unless their delivery is recorded, are delivered
in place of whatever part of them was already written.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from headgate.clock import Clock
from headgate.columns.sorting import distinct
from headgate.egress.filter import permitted
from headgate.egress.sinks import Sink, plain_rejected, rejected_of
from headgate.errors import ColumnsChanged, SourceError, StoreError
from headgate.execution.partitions import PartitionName
from headgate.execution.tasks.step import TaskRefusal
from headgate.expressions.sql.types import ARROW
from headgate.ingress.batches import SourceBatch, TableBatch
from headgate.ingress.pushdown import Pushdown
from headgate.ingress.splits import Split
from headgate.ingress.validation import Ingress
from headgate.labels import Label
from headgate.logs import event, failure
from headgate.model.limits import Limits
from headgate.model.rejected import RejectedRows
from headgate.model.results import ResultBatch, notice
from headgate.model.snapshot import CatalogSnapshot, SnapshotSource
from headgate.model.tuples import TupleBatch
from headgate.plain import counted
from headgate.plan.analysis import DeadlineCounts, LevelCounts, ViewCounts
from headgate.recovery.checkpoints import Checkpoints
from headgate.recovery.counts import RunCounts
from headgate.recovery.deadlines import Deadlines, Governing
from headgate.recovery.destinations import Destinations, Staged
from headgate.recovery.home import CHECKPOINTS, STATE, Home
from headgate.recovery.isolation import Served
from headgate.recovery.live_query import LiveQuery, WorkPiece
from headgate.recovery.live_state import PREFIX, LiveStates
from headgate.recovery.messages import (
    CONTINUES,
    LATE,
    NO_TABLE,
    UNREAD,
    WAITS,
    concerned_by,
    limited,
    note,
    reasons,
)
from headgate.recovery.query_graph import Make, QueryGraph
from headgate.recovery.state import Saved, StateFolder
from headgate.recovery.subscription_status import Notice, SubscriptionStatuses
from headgate.recovery.tables import ReadTable, Tables, no_tables
from headgate.storage import Storage
from headgate.stores import StateLocation

Done = TypeVar("Done")

MOST_NOTICES = 1000
"""Kept until they are read; of more than these only the last."""


class Pipeline:
    """`make` makes the executor of a program; `sinks` take the results; `read_table` reads the content of tables;
    the state is in a folder of `home`, in `storage`, or at a `place` elsewhere, where checkpoints are kept too. With
    `take_over` it replaces another process that has not ended. Without `governing` there are no deadlines: queries that
    have one are computed batch by batch, like all others."""

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
        self._home = Home(home, place, take_over=take_over)
        self._snapshots = snapshots
        self._sinks = Destinations(sinks)
        self._clock = clock
        self._lock, self._turnstile = threading.Lock(), threading.Lock()
        if place is not None:
            storage = place.below(STATE).storage()
        self._states = StateFolder(storage or home / STATE, self._home.epoch, self._home.check)
        self._checkpoints = None if place is None else Checkpoints(home / CHECKPOINTS, self._states)
        self._tables = Tables(self._states, read_table)
        self._rejected: list[RejectedRows] = []
        self._waiting: dict[str, set[tuple[str, str]]] = {}
        """By stream that cannot be read: who was told (subscriber and query)."""
        self._version = 0
        self._done: dict[str, int] = {}
        self._failed: BaseException | None = None
        self._limits = limits
        self._make = make
        self._graph = QueryGraph(make, limits)
        self._ingress: dict[str, Ingress] = {}
        self._governs = governing is not None
        self._live = Deadlines(governing.make if governing and governing.make else make, limits, governing)
        self._live_states = LiveStates(self._states)
        self._ticked = 0
        self._snapshot = CatalogSnapshot()
        self._served = Served()
        self._good: tuple[Mapping[PartitionName, Mapping[str, Any]], Sequence[Mapping[str, Any]]] = {}, ()
        """What the query graph saved last."""
        self._kept = CatalogSnapshot()
        self._standings = SubscriptionStatuses()
        self._notices: deque[Notice] = deque(maxlen=MOST_NOTICES)
        self.counts = RunCounts()
        self.began = clock.now()
        try:
            self._sinks.claim(self._home.identity, self._home.epoch)
            self._go_on()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self._sinks.let_go()
        self._home.close()

    def profile(self, query: str, subscriber: str | None = None) -> list[ViewCounts]:
        """What was done for the views of a query since this pipeline began: all, or the one that serves this
        subscriber. Waits for a batch to end."""
        with self._lock:
            live = [x for (name, _), y in self._live.queries.items() if name == query for x in y.profile(subscriber)]
            return [*self._graph.profile(query, subscriber), *live]

    def warnings(self) -> list[str]:
        """Warnings for the operator, since the last call."""
        return self._sinks.warnings()

    def _go_on(self) -> None:
        """Continues from the newest state, if there is one."""
        saved, snapshot = self._states.newest(), self._snapshots.snapshot()
        if self._checkpoints is not None:
            self._checkpoints.restore({} if saved is None else saved.rest.get("checkpoints", {}))
        if saved is None:
            self._update(snapshot)
            return
        out = self._states.out(saved.version)
        self._sinks.check(saved, delivered=out is not None)
        self._version, self._done = saved.version, dict(saved.rest["done"])
        self._standings.restore(saved.rest.get("standings", ()))
        self._tables.restore(saved.rest.get("tables", {}))
        self._served.restore(saved.rest.get("barred", ()))
        self._good = {x: y for x, y in saved.partitions.items() if not x[0].startswith(PREFIX)}, saved.rest["chain"]
        self._graph.dictionary.restore(self._states, saved.rest["labels"])
        self._served.admit(snapshot)
        began = self._clock.now()
        self._isolated(self._restore)
        event(
            "pipeline",
            "state restored",
            version=saved.version,
            partitions=len(saved.partitions),
            tuples=self._graph.held,
            seconds=round(self._clock.now() - began, 3),
        )
        self._update(snapshot)
        ended = limited(self._graph.ended(), NO_TABLE, self._tableless(snapshot))
        self.counts.end(snapshot, [x for word in ended for x in permitted(snapshot, word)])
        staged = self._sinks.restore(saved, out)
        if out is None:
            self._deliver(None, staged, [rejected_of(x) for x in saved.rest["refused"]])
        self._go_on_live(saved, snapshot)

    def _go_on_live(self, saved: Saved, snapshot: CatalogSnapshot) -> None:
        """Does what was decided before the process ended as it was decided then. Without deadlines, also what was not
        decided yet; afterwards the queries are computed like all others, from empty windows."""
        plain = {tuple(x["key"]): x for x in saved.rest.get("live", {}).get("queries", ())}
        if not plain:
            return
        self._live.seed = saved.rest["live"]["seed"]
        for live, own in self._live.meet(self._served.snapshot, self._tick()):
            rest = plain.get(live.key)
            self._live_step(live, partial(live.meet, own))
            if rest is not None and rest["meaning"] == live.query.meaning:
                self._live_states.restore(live, rest, saved.partitions)
        self._feed_live()
        self._catch_up(snapshot, everything=not self._governs)
        if not self._governs:
            self._live.queries.clear()

    def _restore(self, served: CatalogSnapshot) -> None:
        """Goes back to the state that was saved last."""
        partitions, chain = self._good
        self._graph.restore(self._states.stored(partitions), chain, self._others(served))

    def _update(self, snapshot: CatalogSnapshot) -> None:
        """Brings queries, views and rights in line with this catalog snapshot."""
        if snapshot is self._snapshot:
            return
        self._served.admit(snapshot)
        if snapshot.rules != self._snapshot.rules or snapshot.descriptors != self._snapshot.descriptors:
            self._ingress = {}
            for name in sorted(snapshot.descriptors):
                self._enter(name, snapshot)
        tuples, rejected = self._tables.update(self._served.snapshot, self._ingress)
        self.counts.tuples.update(tuples)
        self._reject(rejected)
        self._isolated(self._follow)
        self._standings.update(snapshot)
        self._snapshot = snapshot
        if self._governs:
            for live, own in self._live.meet(self._served.snapshot, self._tick()):
                self._live_step(live, partial(live.meet, own))
            self._feed_live()

    def _follow(self, served: CatalogSnapshot) -> None:
        self._graph.update(self._others(served))
        self._prepare(served)

    def _prepare(self, served: CatalogSnapshot) -> None:
        self._graph.feed(self._tables.snapshots)
        self._graph.end(self._tableless(served) & self._others(served).clearances.keys(), NO_TABLE)

    def _others(self, served: CatalogSnapshot) -> CatalogSnapshot:
        """What is computed batch by batch."""
        return self._live.others(served) if self._governs else served

    def _enter(self, stream: str, snapshot: CatalogSnapshot) -> None:
        try:
            descriptor, number = snapshot.descriptors[stream], self._graph.dictionary.number
            self._ingress[stream] = Ingress(descriptor, snapshot.rules, number, self._limits)
        except Exception as error:
            self._served.bar(self._served.snapshot.reading(stream), error)

    def _isolated(self, act: Callable[[CatalogSnapshot], Done]) -> Done:
        """Runs a step for all subscribers who are served. If it fails, runs it again, from the state saved last, for
        all except those for whom it fails."""

        def again(some: CatalogSnapshot) -> Done:
            self._restore(some)
            self._prepare(some)
            return act(some)

        return self._served.isolated(act, again)

    def _tableless(self, snapshot: CatalogSnapshot) -> set[tuple[str, str]]:
        """The subscribers who are told that a table cannot be read. The others see none of its tuples anyway."""
        return {key for table in self._tables.unreadable for key in snapshot.concerned(table)}

    @property
    def unreadable(self) -> Mapping[str, SourceError]:
        """The tables that cannot be read, and why."""
        return self._tables.unreadable

    def _reject(self, rejected: Sequence[RejectedRows]) -> None:
        """Collects rejected rows, which go to the owners of streams with the next version."""
        self.counts.rejected.update({(x.stream, x.reason): len(x) for x in rejected})
        self._rejected += rejected

    @property
    def held(self) -> int:
        """How many tuples the state keeps."""
        return self._graph.held + self._live.held

    # Deadlines --------------------------------------------------------------------------------------------------------

    def work(self) -> float | None:
        """Does the next piece of work of a query with a deadline, if its time has come; returns when to call again, by
        the clock. None: there are no such queries."""
        if not self._live.queries:
            return None
        with self._unharmed():
            snapshot = self._snapshots.snapshot()
            self._update(snapshot)
            self._catch_up(snapshot)
            governor = self._live.governor
            if governor is None or not self._live.queries:
                return None
            now = self._tick()
            self._live.begin(now)
            found = self._live.next(now)
            if found is None:
                return governor.next_quantum(now) / 1e9
            number, live, piece = found
            begun = self._tick()  # what was decided before is not part of the work
            self._finish(snapshot, self._work_on(live, piece))
            done = self._tick()
            self._live.done(done, number, live, piece, done - begun)
            self.counts.due = self._live.status()
            return done / 1e9

    def due(self) -> tuple[Sequence[DeadlineCounts], Sequence[LevelCounts]]:
        """The queries with deadlines that run, and the levels in the last control period. It waits for nobody: those
        who ask may hold a lock that a batch needs."""
        return self.counts.due

    @property
    def deadlines(self) -> Deadlines:
        """The queries with deadlines, to be looked at."""
        return self._live

    def _catch_up(self, snapshot: CatalogSnapshot, *, everything: bool = False) -> None:
        """Does what is to be done whatever time it is: what was admitted before, or everything that waits."""
        waiting = self._live.undone()
        for live, piece in chain(waiting, self._live.unasked()) if everything else waiting:
            self._finish(snapshot, self._work_on(live, piece))
            self._live.redone(self._tick(), live, piece)

    def _tick(self) -> int:
        """The clock, in nanoseconds; it does not go back."""
        self._ticked = max(self._ticked, int(self._clock.now() * 1e9))
        return self._ticked

    def _work_on(self, live: LiveQuery, piece: WorkPiece) -> list[ResultBatch]:
        found = self._live_step(live, partial(live.run, piece)) or []
        if live.graph.late:
            self.counts.late[piece.waiting.tuples.stream] += live.graph.late
            why = f"{LATE}: {counted(live.graph.late, 'tuple')}"
            self._rejected += reasons({piece.waiting.tuples.stream: why})
        self._graph.warned += live.graph.warned
        return limited(found, NO_TABLE, self._tableless(self._served.snapshot))

    def _live_step(self, live: LiveQuery, act: Callable[[], Done]) -> Done | None:
        """Runs a step of one query; if it fails, the query ends for its subscribers, and nobody else notices."""
        try:
            return act()
        except StoreError:
            raise
        except Exception as error:
            failure("pipeline", "a query with a deadline failed", error)
            self._served.bar(live.keys, error)
            self._live.drop(live.key)
            return None

    def _feed_live(self) -> None:
        """Gives tables to the queries with deadlines that read them."""
        labels, tables = self._graph.dictionary.labels, self._tables.snapshots
        unreadable = self._tableless(self._served.snapshot)
        for live in list(self._live.queries.values()):
            own = {name: live.own_numbers(tables[name], labels) for name in live.query.tables & tables.keys()}
            self._live_step(live, partial(live.feed, own))
            live.graph.end(unreadable & set(live.keys), NO_TABLE)

    # Batches ----------------------------------------------------------------------------------------------------------

    def done(self, stream: str) -> int:
        """The number of the last batch taken from a stream; -1 if none was."""
        return self._done.get(stream, -1)

    @property
    def last_done(self) -> int:
        """The greatest number of a batch taken from any stream; -1 if none was."""
        return max(self._done.values(), default=-1)

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
        self._take(stream, number, batch, int(arrived * 1000) if came is None else came, settled)
        self.counts.lag[stream] = self._clock.now() - arrived
        event(
            "pipeline",
            "batch done",
            stream=stream,
            batch=number,
            version=self._version,
            tuples=self.counts.tuples[stream],
            seconds=round(self.counts.lag[stream], 3),
            driver_seconds=round(time.thread_time() - driver, 3),
            **self._graph.work,
        )

    def _take(self, stream: str, number: int, batch: SourceBatch, now: int, settled: int | None) -> None:
        if self._taken_by_tasks(stream, number, batch, now, settled):
            return
        with self._unharmed():
            if number <= self._done.get(stream, -1):
                return  # its files may be gone
            pushdown = self._pushdown(stream)
        decoded = (
            batch.decoded(pushdown, now, partial(self._register, stream)) if pushdown else None
        )  # without the lock: other streams proceed
        whole = batch.all_rows() if pushdown and decoded is None else None
        with self._unharmed():
            if number <= self._done.get(stream, -1):
                return
            snapshot = self._snapshots.snapshot()
            self._update(snapshot)
            if decoded is not None and not decoded.pushdown.still(self._served.snapshot, self._graph.dictionary.epoch):
                decoded = None
            if decoded is None and whole is None and stream in self._ingress:
                whole = batch.all_rows()  # before any change, as it may be unreadable
            if stream not in self._ingress:  # its queries left while it was being read
                self._done[stream] = number
                self._finish(snapshot, ())
                return
            if decoded is not None:
                self._done[stream] = number
                self.counts.batches += 1
                self.counts.unseen[stream] += decoded.unseen
                self._reject(self._ingress[stream].explained(decoded.rejected))
                results = self._results(decoded.arrivals, now, settled)
                self._finish(snapshot, [*self._resumed(stream), *results])
                self.counts.tuples[stream] += decoded.tuples
                return
            assert whole is not None  # noqa: S101
            self._check_columns(stream, whole.table)
            # raises if the batch cannot be taken; nothing is changed then
            arrivals, rejected = self._ingress[stream].take(whole.table, now)
            self._done[stream] = number
            self.counts.batches += 1
            self._reject([*whole.rejected, *rejected])
            self._rejected += [note(stream, text) for text in whole.notes]
            results = self._results(arrivals, now, settled)
            self._finish(snapshot, [*self._resumed(stream), *results])
            self.counts.tuples[stream] += len(whole)

    def take_labelled(
        self, given: TupleBatch, labels: Sequence[Label], number: int, came: int, settled: int | None
    ) -> None:
        """Takes tuples that were validated and labelled elsewhere; the numbers in `given` are places in `labels`. A
        column that the stream got since is NULL in them."""
        stream = given.stream
        with self._unharmed():
            if number <= self._done.get(stream, -1):
                return
            snapshot = self._snapshots.snapshot()
            self._update(snapshot)
            self._done[stream] = number
            if stream not in self._ingress:  # its queries left while the tuples were on their way
                self._finish(snapshot, ())
                return
            numbers = np.array([self._graph.dictionary.number(label) for label in labels], np.int64)
            wanted = self._snapshot.descriptors[stream].columns
            columns = {
                name: given.columns[name] if name in given.columns else pa.nulls(len(given.times), ARROW[type_])
                for name, type_ in wanted
            }
            self.counts.batches += 1
            results = self._results(replace(given, labels=numbers[given.labels], columns=columns), came, settled)
            self._finish(snapshot, [*self._resumed(stream), *results])
            self.counts.tuples[stream] += len(given.times)

    def _taken_by_tasks(self, stream: str, number: int, batch: SourceBatch, now: int, settled: int | None) -> bool:
        """Has tasks read a batch; False if the driver must read it."""
        with self._unharmed():
            if number <= self._done.get(stream, -1):
                return True
            snapshot = self._snapshots.snapshot()
            self._update(snapshot)
            if stream not in self._ingress:
                return False
            if self._live.reads(stream):
                return False
            self._graph.choose_executor(batch.size())
            splits = batch.splits() if self._graph.reads_splits(stream) else None
            if splits is None:
                return False
            floors = self._floors({} if settled is None else {stream: settled})
            found = self._split_results(stream, splits, now, floors)
            if isinstance(found, TaskRefusal):
                event("pipeline", "the driver reads a batch", stream=stream, batch=number, why=found.driver)
                return False
            results, tuples = found
            self._done[stream] = number
            self.counts.batches += 1
            self.counts.unseen[stream] += self._graph.unseen
            results = limited(results, NO_TABLE, self._tableless(self._served.snapshot))
            self._finish(snapshot, [*self._resumed(stream), *results])
            self.counts.tuples[stream] += tuples
            return True

    def _split_results(
        self, stream: str, splits: Sequence[Split], now: int, floors: Mapping[str, int]
    ) -> tuple[list[ResultBatch], int] | TaskRefusal:
        """Label texts that tasks meet for the first time get their numbers here, and then the batch is read again."""
        ingress = self._ingress[stream]
        while True:
            found = self._isolated(lambda _: self._graph.split_batch(stream, ingress.known, splits, now, floors))
            if not isinstance(found, TaskRefusal) or not found.unknown:
                return found
            with suppress(Exception):  # then the driver reads the batch, and it fails for its stream alone
                ingress.register(sorted(found.unknown, key=str))
            if not all(texts in ingress.known for texts in found.unknown):
                return TaskRefusal(driver="a label cannot be read")

    def _check_columns(self, stream: str, table: pa.Table) -> None:
        """A reader that began before the stream got a column has left that column out."""
        wanted = {name for name, _ in self._snapshot.descriptors[stream].columns}
        if not wanted.issubset(table.column_names):
            raise ColumnsChanged(f"the columns of stream {stream} have changed")

    def _register(self, stream: str, texts: Sequence[tuple[str | None, ...]]) -> Pushdown | None:
        with self._unharmed():
            if stream in self._ingress:
                with suppress(Exception):  # then the batch is read whole, and fails for its stream alone
                    self._ingress[stream].register(texts)
            return self._pushdown(stream)

    def _pushdown(self, stream: str) -> Pushdown | None:
        """None: no query reads the stream now, or the pushdown cannot be determined."""
        self._update(self._snapshots.snapshot())
        ingress = self._ingress.get(stream)
        if ingress is None or self._live.reads(stream):
            return None
        with suppress(Exception):  # a pushdown only says what can be left out; without it the whole batch is read
            return replace(self._graph.pushdown(stream, ingress.known), unreadable=ingress.unreadable)
        return None

    def _results(self, arrivals: TupleBatch, now: int, settled: int | None) -> list[ResultBatch]:
        floors = self._floors({} if settled is None else {arrivals.stream: settled})
        found = self._isolated(lambda _: self._graph.batch([arrivals], clock=now, floors=floors))
        results = limited(found, NO_TABLE, self._tableless(self._served.snapshot))
        if self._live.reads(arrivals.stream):
            labels = self._graph.dictionary.labels
            self._live.arrive(arrivals, labels, self._served.snapshot, now, floors, self._states.write)
        else:
            self.counts.unseen[arrivals.stream] += self._graph.unseen
        if self._graph.late:
            self.counts.late[arrivals.stream] += self._graph.late
            self._rejected += reasons({arrivals.stream: f"{LATE}: {counted(self._graph.late, 'tuple')}"})
        return results

    def _floors(self, settled: Mapping[str, int]) -> dict[str, int]:
        """The watermarks that the clock gives streams with a declared delay."""
        known = ((stream, self._served.snapshot.descriptors.get(stream), clock) for stream, clock in settled.items())
        return {stream: clock - x.delay for stream, x, clock in known if x is not None and x.delay is not None}

    def pass_time(self, settled: Mapping[str, int]) -> None:
        """Time passes although nothing comes: all tuples of these streams have been taken that came before the clock
        showed so many milliseconds. Makes a batch without tuples if that makes something final. If not, the time counts
        all the same: whether it does must not depend on what others hold."""
        with self._unharmed():
            floors = self._floors(settled)
            if self._graph.is_due(floors):
                snapshot = self._snapshots.snapshot()
                self._update(snapshot)
                found = self._isolated(lambda _: self._graph.batch([], floors=floors))
                self._finish(snapshot, limited(found, NO_TABLE, self._tableless(self._served.snapshot)))
            else:
                self._graph.pass_time(floors)
            self._live.pass_time(int(self._clock.now() * 1000), floors)

    def end(self, unread: Mapping[str, str] | None = None, left_alone: Collection[str] = ()) -> None:
        """Ends all streams: every open window becomes final. If tuples arrive later nevertheless, windows start anew,
        because time cannot go back behind its end. `unread` gives the streams that were not read to their end, and why;
        queries that read them end without the results that would be wrong. Subscriptions over streams that are
        `left_alone` keep their windows: such a stream has no end here."""
        with self._unharmed():
            snapshot = self._snapshots.snapshot()
            self._update(snapshot)
            self._live.recall()
            self._catch_up(snapshot, everything=True)
            kept = concerned_by(self._served.snapshot, left_alone)
            found = [*self._isolated(lambda some: self._last(some, unread or {}, kept)), *self._live.end()]
            told = limited(found, UNREAD, concerned_by(self._served.snapshot, unread or {}))
            told = limited(told, NO_TABLE, self._tableless(self._served.snapshot))
            if kept:
                self._isolated(lambda some: self._restore(some.only(kept)))
            else:
                self._graph = QueryGraph(self._make, self._limits)
            self._ingress, self._snapshot = {}, CatalogSnapshot()
            self._tables.forget()
            self._rejected += reasons(unread or {})
            self._finish(snapshot, told)

    def _last(
        self, served: CatalogSnapshot, unread: Mapping[str, str], kept: Collection[tuple[str, str]]
    ) -> list[ResultBatch]:
        if kept:  # they go on from what was saved last
            served = served.only(served.clearances.keys() - set(kept))
            self._graph.update(self._others(served))
        self._graph.end(concerned_by(served, unread) & self._others(served).clearances.keys(), UNREAD)
        return self._graph.batch([], last=True)

    def wait(self, unread: Mapping[str, str]) -> None:
        """Notifies owners and waiting subscribers that these streams cannot be read at the moment, and why."""
        with self._unharmed():
            snapshot = self._snapshots.snapshot()
            self._update(snapshot)
            concerned = concerned_by(self._served.snapshot, unread)
            told = [notice((name,), query, waits=WAITS) for name, query in sorted(concerned)]
            self._waiting |= {stream: set(concerned_by(self._served.snapshot, (stream,))) for stream in unread}
            self._rejected += reasons({x: why for x, why in unread.items() if x in snapshot.descriptors})
            self._finish(snapshot, told)

    def resume(self, streams: Collection[str]) -> None:
        """Notifies everybody who was told that these streams cannot be read: they can be read again."""
        with self._unharmed():
            snapshot = self._snapshots.snapshot()
            self._update(snapshot)
            told = [x for stream in sorted(streams) for x in self._resumed(stream)]
            if told or self._rejected:
                self._finish(snapshot, told)

    def _resumed(self, stream: str) -> list[ResultBatch]:
        """The notices that a stream can be read again, if somebody was told that it cannot."""
        concerned = self._waiting.pop(stream, None)
        if concerned is None:
            return []
        if stream in self._served.snapshot.descriptors:
            self._rejected.append(note(stream, CONTINUES))
        still = concerned & {key for waiting in self._waiting.values() for key in waiting}
        told = sorted((concerned - still) & self._served.snapshot.clearances.keys())
        return [notice((name,), query, continues=CONTINUES) for name, query in told]

    def tell(self, notes: Mapping[str, Sequence[str]]) -> None:
        """Sends messages about their files to the owners of streams."""
        with self._unharmed():
            snapshot = self._snapshots.snapshot()
            self._update(snapshot)
            self._rejected += [
                note(x, text) for x, texts in notes.items() if x in snapshot.descriptors for text in texts
            ]
            self._finish(snapshot, ())

    def commit(self) -> None:
        """Commits what has changed since the last batch: rights, subscribers, time. A restart does not undo it."""
        with self._unharmed():
            snapshot = self._snapshots.snapshot()
            self._update(snapshot)
            self._finish(snapshot, ())

    def settle(self) -> None:
        """Drops what is kept for subscribers who have left, and sends notices about subscriptions, even if no batch
        comes."""
        snapshot = self._snapshots.snapshot()
        if snapshot is not self._kept or self._standings.pending:
            with self._unharmed():
                news = self._served.has_news(snapshot)  # at once: perhaps no batch ever comes
                self._update(snapshot)
                if news or self._standings.pending:
                    self._finish(snapshot, ())
                self._keep(snapshot)

    def notices(self) -> list[Notice]:
        """Changes of subscriptions since the last call, for the operator."""
        found = list(self._notices)
        self._notices.clear()
        return found

    def _keep(self, now: CatalogSnapshot) -> None:
        """Drops what was kept for former subscribers; all results are out."""
        if now is self._kept:
            return
        self._sinks.retain(now)
        self.counts.retain(now)
        self._kept = now

    @contextmanager
    def _unharmed(self) -> Iterator[None]:
        """Runs one step at a time, and none after one that failed: a failed step leaves memory neither in the state
        before it nor in the state after it. Everything can be done again from the written state. A batch that cannot be
        read (SourceError) has changed nothing."""
        with self._turnstile:
            self._lock.acquire()  # who waits longest is next: a thread that works all the time keeps nobody out
        try:
            if self._failed is not None:
                raise self._failed
            try:
                yield
            except SourceError:
                raise
            except BaseException as error:
                self._failed = error
                raise
        finally:
            self._lock.release()

    def _forget_labels(self) -> None:
        """Forgets labels that no tuple in windows or tables has. If a label arrives again, it is parsed again."""
        if self._graph.dictionary.is_forgetting_due:
            tables = {number for table in self._tables.snapshots.values() for number in distinct(table.labels).tolist()}
            own = {number for ingress in self._ingress.values() for number in ingress.fixed}
            self._graph.forget_labels(tables | own)
            for ingress in self._ingress.values():
                ingress.forget(self._graph.dictionary.labels)

    def _finish(self, snapshot: CatalogSnapshot, results: Sequence[ResultBatch]) -> None:
        self._home.check()
        self._version = self._states.next
        rejected, self._rejected = self._rejected, []
        results = [*results, *self._served.news()]
        warned, self._graph.warned = self._graph.warned, []
        for query, why in dict.fromkeys((query, why) for _, query, why in warned):
            event("pipeline", "a query nears a limit", level=logging.WARNING, query=query, why=why)
        words, notices = self._standings.notice(results, warned)
        self._notices += notices
        results = [*words, *results]  # a status changed before the tuples of this batch came
        staged = self._sinks.stage(self._version, results, rejected)
        self._forget_labels()
        self._good = partitions, chain = self._graph.save(self._states.write)
        governed, live = self._live_states.save(self._live.queries, self._live.seed, self._version)
        rest = {
            "done": self._done,
            "chain": chain,
            "barred": self._served.plain(),
            "labels": self._graph.dictionary.save(self._states, self._version),
            "tables": self._tables.save(self._version),
            "refused": [plain_rejected(x) for x in rejected],
            "standings": self._standings.plain(),
            **({"live": live} if live else {}),
            **({} if self._checkpoints is None else {"checkpoints": self._checkpoints.save(self._version)}),
            **self._sinks.plain(results, rejected),
        }
        self._states.save(Saved(self._version, {**partitions, **governed}, rest, self._sinks.to_save(results)))
        self._deliver(snapshot, staged, rejected)

    def _deliver(
        self,
        computed: CatalogSnapshot | None,
        staged: Staged,
        rejected: Sequence[RejectedRows],
    ) -> None:
        """Delivers results into each sink, under the rights of that moment, which cannot change meanwhile."""
        delivered = self._sinks.deliver(self._snapshots, computed, staged, rejected)
        self._states.note_out(self._version, self._sinks.state)
        self.counts.deliver(delivered)
        self._graph.delivered()
        self._keep(delivered[-1].now)
