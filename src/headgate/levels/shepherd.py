"""The shepherd (paper 002, section 3.2): reads every source once, validates and labels its tuples, and hands each to
the processors of the levels that dominate it. It is trusted, and computes nothing else.

For whoever drives it, it is a pipeline: it takes batches, notes which it has taken, and continues after a crash. A
batch is taken when its records and its number are committed together; processors then work at their own pace, so no
level waits for one that it does not dominate.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from headgate.clock import Clock
from headgate.columns.sorting import Ints
from headgate.cql.overload import Shed
from headgate.egress.sinks import Sink
from headgate.errors import ColumnsChanged, SourceError
from headgate.ingress.batches import SourceBatch, TableBatch
from headgate.ingress.pushdown import Pushdown
from headgate.ingress.validation import Ingress
from headgate.labels import LEAST, Level, parse_level
from headgate.levels.child import Resources, Start
from headgate.levels.folders import LevelFolders
from headgate.levels.lane import Lane, Surroundings
from headgate.levels.outlet import Outlet
from headgate.levels.queues import Queue
from headgate.levels.records import Heading, LabelledTuples, write_tuples
from headgate.levels.restricted import KnownNames, OfLevel, level_of, levels_in, may_read
from headgate.levels.shedding import SAMPLE_FROM
from headgate.levels.ways import Way, make_way
from headgate.logs import event
from headgate.model.limits import Limits
from headgate.model.rejected import RejectedRows
from headgate.model.snapshot import CatalogSnapshot, SnapshotSource
from headgate.model.times import BEGINNING
from headgate.model.tuples import TupleBatch
from headgate.plan.analysis import DeadlineCounts, LevelCounts, StepCounts, ViewCounts
from headgate.recovery.counts import RunCounts
from headgate.recovery.dead_letters import DeadLetters
from headgate.recovery.deadline_samples import DEADLINES, PeriodsFile
from headgate.recovery.messages import CONTINUES, note
from headgate.recovery.tables import ReadTable, no_tables
from headgate.recovery.unknown_roles import UnknownRoles
from headgate.visibility.dictionary import Dictionary

MOST_LABELS = 100_000
"""Labels that are remembered; with more, they are read anew."""
SinksOf = Callable[[Level | None], Sequence[Sink]]
"""The sinks for the results of a level; None: for what the shepherd tells the owners of streams."""


@dataclass(frozen=True)
class LevelsSetting:
    """architecture: `replicated` or `kernelized`
    start: starts a processor
    share: what a level may use; of each level alone, whatever others do
    stream_levels: the levels of streams, by their names as sources
    apart: whether each level gets an operating-system user; None: if this process may do that
    """

    architecture: str
    start: Start
    share: Callable[[Level, CatalogSnapshot], Resources]
    stream_levels: Callable[[], Mapping[str, Level]] = dict
    apart: bool | None = None


class OfShepherd:
    """The catalog as the shepherd needs it: it serves no subscriber, and has no rights but those of the system."""

    def __init__(self, gate: SnapshotSource) -> None:
        self._gate = gate

    def snapshot(self) -> CatalogSnapshot:
        return self._gate.snapshot()

    @contextmanager
    def open(self) -> Iterator[CatalogSnapshot]:
        with self._gate.open() as now:
            yield replace(now, subscribers=(), standings=(), unfit={})

    def verify(self) -> None:
        self._gate.verify()


class Shepherd:
    def __init__(
        self,
        home: Path,
        gate: SnapshotSource,
        sinks: SinksOf,
        clock: Clock,
        setting: LevelsSetting,
        limits: Limits | None = None,
        read_table: ReadTable = no_tables,
    ) -> None:
        self._gate, self._sinks, self._clock, self._setting = gate, sinks, clock, setting
        self._limits, self._read_table = limits or Limits(), read_table
        self._lock = threading.RLock()
        self._places = LevelFolders(home / "levels", apart=setting.apart)
        self._way: Way = make_way(setting.architecture, self._places)
        self._dictionary = Dictionary()
        self._ingress: dict[str, Ingress] = {}
        self._snapshot = CatalogSnapshot()
        self._lanes: dict[Level, Lane] = {}
        self._unknown_roles = UnknownRoles()
        self._waiting: dict[str, str] = {}
        self._periods = PeriodsFile(home / DEADLINES)
        self._own = RunCounts()
        self._letters = DeadLetters(self._own)
        self.began = clock.now()
        self.unreadable: dict[str, SourceError] = {}
        """The tables that cannot be read, and why."""
        self._outlet = Outlet(home / "shepherd", OfShepherd(gate), sinks(None))
        known = self._outlet.known
        self._done: dict[str, int] = dict(known.get("done", {}))
        self._next: int = known.get("next", 0)
        try:
            self._meet(gate.snapshot())
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        for lane in self._lanes.values():
            lane.stop()
        self._outlet.close()

    @property
    def lanes(self) -> Mapping[Level, Lane]:
        return dict(self._lanes)

    # Levels -----------------------------------------------------------------------------------------------------------

    def _meet(self, snapshot: CatalogSnapshot) -> None:
        """Follows the catalog: levels that are new get their processors."""
        if snapshot is self._snapshot:
            return
        if snapshot.rules != self._snapshot.rules or snapshot.descriptors != self._snapshot.descriptors:
            self._begin_ingress(snapshot)
        order, levels = snapshot.rules.order, levels_in(snapshot)
        self._way.order = order
        if not self._lanes:  # a level that nobody subscribes to any more still has to forget those who did
            levels |= set(map(parse_level, self._places.levels))
        lowest = sorted(levels | self._lanes.keys(), key=lambda x: (order.height(x), str(x)))
        for level in lowest:
            if level not in self._lanes:
                self._lanes[level] = self._lane(level, snapshot)
                self._lanes[level].start(self._way.logs_of)
            else:
                self._lanes[level].have(self._setting.share(level, snapshot))
        self._lanes = {level: self._lanes[level] for level in lowest}
        self._snapshot = snapshot

    def _begin_ingress(self, snapshot: CatalogSnapshot) -> None:
        self._dictionary, self._ingress = Dictionary(), {}
        for name, descriptor in snapshot.descriptors.items():
            with suppress(Exception):  # then nothing of it gets in
                self._ingress[name] = Ingress(descriptor, snapshot.rules, self._dictionary.number, self._limits)

    def _lane(self, level: Level, snapshot: CatalogSnapshot) -> Lane:
        folder = self._places.of(level)
        shared = lambda path: self._places.close_to_others(path, level=level)  # noqa: E731
        queue = Queue(folder / "queue", shared, self._way.elsewhere)
        for number in queue.numbers():
            if number >= self._next:
                queue.remove(number)
        lane = Lane(
            level,
            folder,
            queue,
            OfLevel(self._gate, level, KnownNames(folder / "names.json")),
            lambda: self._sinks(level),
            lambda: self._way.identity(level),
            self._setting.share(level, snapshot),
            Surroundings(
                self._setting.start,
                self._limits,
                self._table,
                self._setting.stream_levels,
                self._hear,
                self._periods.add,
            ),
        )
        event("levels", "level begins", processor=str(level), folder=folder.name)
        return lane

    def _readers(self, stream: str) -> list[Lane]:
        """The lanes of levels whose queries read a stream, lowest first."""
        return [lane for lane in self._lanes.values() if stream in lane.gate.snapshot().descriptors]

    # Batches ----------------------------------------------------------------------------------------------------------

    def done(self, stream: str) -> int:
        """The number of the last batch taken from a stream; -1 if none was."""
        return self._done.get(stream, -1)

    def take(
        self,
        stream: str,
        number: int,
        given: SourceBatch | pa.Table,
        came: int | None = None,
        settled: int | None = None,
    ) -> None:
        """Takes the next tuples of a stream, as `Pipeline.take`. When it returns, they will reach the processors."""
        now = int(self._clock.now() * 1000) if came is None else came
        batch = TableBatch(given) if isinstance(given, pa.Table) else given
        with self._lock:
            if number <= self.done(stream):
                return
            snapshot = self._gate.snapshot()
            self._meet(snapshot)
            handed: list[tuple[Lane, frozenset[int]]] = []
            shed: dict[Lane, tuple[int, int]] = {}
            if stream in self._ingress:
                arrivals, refused, count = self._read(stream, batch, now)
                self._own.batches += 1
                self._letters.reject(refused)
                self._letters.add(self._unknown_roles.notes(snapshot.roles, {stream: self._ingress[stream]}))
                self._resume(stream)
                handed, shed = self._hand_out(Heading(stream, now, settled), arrivals)
                self._own.tuples[stream] += count
            self._done[stream] = number
            self._commit(self._next + 1)
            self._give(stream, dict(handed), shed)
            if settled is not None:
                for lane in self._readers(stream):
                    if lane not in [x for x, _ in handed]:
                        lane.pass_time({stream: settled}, commit=True)

    def _read(self, stream: str, batch: SourceBatch, now: int) -> tuple[TupleBatch, list[RejectedRows], int]:
        """The valid tuples of a batch with their labels, the rejected rows, and how many there were."""
        ingress, descriptor = self._ingress[stream], self._snapshot.descriptors[stream]
        names = tuple(name for name, _ in descriptor.columns)

        def pushdown() -> Pushdown:
            longest, unreadable = self._limits.text, ingress.unreadable
            return Pushdown(self._snapshot, names, ingress.known, longest=longest, unreadable=unreadable)

        def register(texts: Sequence[tuple[str | None, ...]]) -> Pushdown:
            with suppress(Exception):  # then the batch is read whole, and fails for its stream alone
                ingress.register(texts)
            return pushdown()

        decoded = batch.decoded(pushdown(), now, register)
        if decoded is not None:
            return decoded.arrivals, ingress.explained(decoded.rejected), decoded.tuples
        whole = batch.all_rows()
        if not set(names).issubset(whole.table.column_names):
            raise ColumnsChanged(f"the columns of stream {stream} have changed")
        arrivals, refused = ingress.take(whole.table, now)
        return arrivals, [*whole.rejected, *refused, *(note(stream, x) for x in whole.notes)], len(whole)

    def _hand_out(
        self, heading: Heading, arrivals: TupleBatch
    ) -> tuple[list[tuple[Lane, frozenset[int]]], dict[Lane, tuple[int, int]]]:
        """Writes the records of a batch; returns which lanes get one, and the logs that they have to read, and how many
        tuples came for levels that go without some, and without how many. A level that dominates none of the tuples
        gets nothing, so it does not learn that there was a batch."""
        if not len(arrivals.times):
            return [], {}
        used, codes = np.unique(arrivals.labels, return_inverse=True)
        kinds = tuple(self._dictionary.labels[x] for x in used.tolist())
        tuples = LabelledTuples(arrivals.times, codes.astype(np.int64), kinds, arrivals.columns)
        whole, chosen, shed = self._with_room(heading.stream, tuples)
        handed = self._way.write(self._next, heading, tuples, whole)
        for lane, rows in chosen.items():  # a record of its own in every architecture: no other level sees it
            lane.queue.write(self._next, write_tuples(heading, tuples.where(rows)))
            lane.queue.sync()
            handed.append((lane, frozenset()))
        if len(self._dictionary.labels) > MOST_LABELS:
            self._begin_ingress(self._snapshot)
        return handed, shed

    def _with_room(
        self, stream: str, tuples: LabelledTuples
    ) -> tuple[list[Lane], dict[Lane, Ints], dict[Lane, tuple[int, int]]]:
        """The lanes that take all tuples of a stream that they may see; those that take only these; and how many tuples
        came for lanes that go without some, and without how many. Each level's own backlog decides."""
        whole, chosen, shed = list[Lane](), dict[Lane, Ints](), dict[Lane, tuple[int, int]]()
        order, overload = self._snapshot.rules.order, self._snapshot.descriptors[stream].overload
        for lane in self._readers(stream):
            if (used := lane.used) < SAMPLE_FROM:
                whole.append(lane)
                continue
            seen = np.flatnonzero(np.array([may_read(order, lane.level, kind) for kind in tuples.kinds])[tuples.codes])
            taken = lane.shedding.choose(overload, used, seen)
            if len(taken) == len(seen):
                whole.append(lane)
                continue
            shed[lane] = len(seen), len(seen) - len(taken)
            if len(taken):
                chosen[lane] = taken
        return whole, chosen, shed

    def _give(self, stream: str, handed: Mapping[Lane, frozenset[int]], shed: Mapping[Lane, tuple[int, int]]) -> None:
        """Hands the batch that was committed to its lanes, lowest first: what a lane does to make room for it does not
        delay those below."""
        for lane in self._lanes.values():
            if lane not in handed and lane not in shed:
                continue
            overload = self._snapshot.descriptors[stream].overload
            offered, left_out = shed.get(lane, (0, 0))
            if overload.shed is Shed.OLDEST:
                left_out += lane.shed_oldest(stream)
            lane.shedding.note(stream, overload, offered, left_out)
            if lane in handed:
                lane.hand(self._next - 1, handed[lane], stream)

    def _commit(self, following: int) -> None:
        self._outlet.commit({"done": self._done, "next": following}, (), self._letters.take())
        self._next = following

    def _hear(self, late: Sequence[RejectedRows]) -> None:
        """What owners are to be told; they are told with the next batch, or soon."""
        with self._lock:
            self._letters.add(late)

    # What else happens ------------------------------------------------------------------------------------------------

    def pass_time(self, settled: Mapping[str, int]) -> None:
        """Time passes although nothing comes, as `Pipeline.pass_time`."""
        with self._lock:
            for stream, clock in settled.items():
                for lane in self._readers(stream):
                    lane.pass_time({stream: clock})

    def settle(self) -> None:
        """Has all processors follow a change of rights, even if no batch comes, and deletes what none of them needs."""
        with self._lock:
            self._meet(self._gate.snapshot())
            for lane in self._lanes.values():
                lane.follow()
            self._way.clean(self._clock.now(), self._lanes.values())
            if self._letters:
                self._commit(self._next)

    def wait(self, unread: Mapping[str, str]) -> None:
        """Notifies owners and waiting subscribers that these streams cannot be read at the moment, and why."""
        with self._lock:
            self._meet(self._gate.snapshot())
            self._waiting |= unread
            self._letters.tell_all({x: why for x, why in unread.items() if x in self._snapshot.descriptors})
            for stream, why in unread.items():
                for lane in self._readers(stream):
                    lane.ask("wait", unread={stream: why})
            self._commit(self._next)

    def resume(self, streams: Collection[str]) -> None:
        """Notifies everybody who was told that these streams cannot be read: they can be read again."""
        with self._lock:
            for stream in streams:
                self._resume(stream)
            self._commit(self._next)

    def _resume(self, stream: str) -> None:
        if self._waiting.pop(stream, None) is not None:
            self._letters.tell(stream, CONTINUES)
            for lane in self._readers(stream):
                lane.ask("resume", streams=[stream])

    def tell(self, notes: Mapping[str, Sequence[str]]) -> None:
        """Sends messages about their files to the owners of streams."""
        with self._lock:
            known = self._gate.snapshot().descriptors
            self._letters.add([note(x, text) for x, texts in notes.items() if x in known for text in texts])
            self._commit(self._next)

    def end(self, unread: Mapping[str, str] | None = None) -> None:
        """Ends all streams, as `Pipeline.end`, and waits until all results are out."""
        with self._lock:
            self._meet(self._gate.snapshot())
            self._letters.tell_all(unread or {})
            self._commit(self._next)
            asked = [
                (lane, lane.ask("end", unread={x: y for x, y in (unread or {}).items() if lane in self._readers(x)}))
                for lane in self._lanes.values()
            ]
            self._ingress, self._snapshot = {}, CatalogSnapshot()
        for _, answer in asked:
            answer.result()

    def drain(self) -> None:
        """Waits until every processor has done what it was given, and has followed the rights of now."""
        for answer in [lane.ask("settle") for lane in self.lanes.values()]:
            answer.result()

    def wait_for_processors(self) -> None:
        """Waits until every processor has done what it was given."""
        for lane in self.lanes.values():
            lane.wait(None)

    @property
    def copied(self) -> int:
        """Bytes of tuples written for processors, and what went through their channels."""
        return self._way.copied + sum(lane.bytes_copied for lane in self.lanes.values())

    # Tables -----------------------------------------------------------------------------------------------------------

    def _table(self, level: Level, name: str) -> pa.Table:
        """The rows of a table that a level dominates, as they are now. Its owner is told of rejected rows when the
        processor of the table's own level reads it."""
        descriptor = self._gate.snapshot().descriptors.get(name)
        if descriptor is None:
            raise SourceError(f"cannot read table {name}: it is gone")
        try:
            whole = self._read_table(descriptor)
            labels, rules = Dictionary(), self._gate.snapshot().rules
            reader = Ingress(descriptor, rules, labels.number, self._limits)
            arrivals, refused = reader.take(whole.table, BEGINNING)
        except SourceError as error:
            self.unreadable[name] = error
            raise
        except Exception as error:
            raise SourceError(f"cannot read table {name}: {type(error).__name__}") from None
        if self._setting.stream_levels().get(name, LEAST) == level:
            with self._lock:
                self._letters.reject([*whole.rejected, *refused, *(note(name, x) for x in whole.notes)])
                self._letters.add(self._unknown_roles.notes(self._gate.snapshot().roles, {name: reader}))
                self._own.tuples[name] += len(whole)
        seen = np.array([may_read(rules.order, level, labels.labels[x]) for x in arrivals.labels.tolist()], bool)
        return pa.table(dict(arrivals.columns)).filter(pa.array(seen))

    # For operators ----------------------------------------------------------------------------------------------------

    @property
    def counts(self) -> RunCounts:
        """What was taken, and what all lanes delivered."""
        found = replace(self._own, results=Counter(), received=Counter(), lag={}, ended={}, left_out={}, due=self.due())
        for lane in self.lanes.values():
            found.results += lane.counts.results
            found.received += lane.counts.received
            found.ended |= lane.counts.ended
            found.withheld += lane.counts.withheld
            found.left_out |= {(str(lane.level), stream): n for stream, n in lane.shedding.left_out.copy().items()}
            found.lag |= {x: max(y, found.lag.get(x, 0.0)) for x, y in lane.lag.items()}
        return found

    def warnings(self) -> list[str]:
        """Warnings for the operator, since the last call."""
        return [*self._outlet.warnings(), *(x for lane in self.lanes.values() for x in lane.warnings())]

    def notices(self) -> list[str]:
        """Changes of subscriptions since the last call, for the operator."""
        return [lane.notices.popleft() for lane in self.lanes.values() for _ in range(len(lane.notices))]

    def due(self) -> tuple[Sequence[DeadlineCounts], Sequence[LevelCounts]]:
        """The queries with deadlines that run, and the levels in the last control period, as processors tell."""
        told = [lane.due for lane in self.lanes.values()]
        return [x for lane in told for x in lane.queries], [x for lane in told for x in lane.levels]

    def profile(self, query: str, subscriber: str | None = None) -> list[ViewCounts]:
        """What was done for the views of a query: all, or the one that serves this subscriber."""
        readers = (x for x in self._gate.snapshot().subscribers if x.query == query or x.query.startswith(f"{query}@"))
        levels = {level_of(x) for x in readers if subscriber in (None, x.name)}
        asked = [x.ask("profile", query=query, subscriber=subscriber) for y, x in self.lanes.items() if y in levels]
        return [_counts(*plain) for answer in asked for plain in answer.result() or ()]


def _counts(names: Any, steps: Any) -> ViewCounts:
    return ViewCounts(
        tuple(map(str, names)), {str(x): StepCounts(*(int(y) for y in found)) for x, found in steps.items()}
    )
