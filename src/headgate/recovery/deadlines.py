"""Queries with deadlines (SPEC.md, 5.4): which of their work is admitted, in which QoS version, and what is next.

A transaction is the work of one query, for the subscribers of one level, on some tuples of one batch. Tuples wait in
files of the state until their transactions are done; what was decided about them is part of each version that is
committed, so it is not decided again after a crash.
"""

from __future__ import annotations

import secrets
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from headgate.labels import Label, Level
from headgate.labels.levels import LEAST
from headgate.model.limits import Limits
from headgate.model.query import columns_read
from headgate.model.snapshot import CatalogSnapshot, Subscriber
from headgate.model.tuples import TupleBatch
from headgate.plan.analysis import DeadlineCounts, LevelCounts, ViewCounts
from headgate.realtime.settings import STRICT, Approach
from headgate.recovery.live_query import Key, LiveQuery, WaitingTuples, WorkPiece, as_table, at_level, nothing
from headgate.recovery.query_graph import Make

if TYPE_CHECKING:
    from headgate.realtime.governor import Governor

MILLISECOND = 1_000_000


@dataclass(frozen=True)
class Governing:
    """How deadlines are governed. `seed` decides about samples; None: nobody knows it. `make` makes executors for
    pieces; None: as for other queries."""

    approach: Approach = STRICT
    seed: int | None = None
    make: Make | None = None


@dataclass(frozen=True)
class PieceDecision:
    """What became of a piece, for tests and the log: `admitted`, `rejected`, `done`, `missed` or `late`."""

    time: int
    key: Key
    word: str
    batch: int
    start: int
    stop: int
    version: int


@dataclass(frozen=True)
class DonePiece:
    """A piece that was computed; `spent` is how many nanoseconds that took."""

    number: int
    live: LiveQuery
    piece: WorkPiece
    spent: int


class Deadlines:
    """All queries with deadlines, by query and level of subscribers."""

    def __init__(self, make: Make, limits: Limits | None, governing: Governing | None) -> None:
        self._governed = governing is not None
        governing = governing or Governing()
        self._make, self._limits, self._approach = make, limits, governing.approach
        self.seed = secrets.randbits(62) if governing.seed is None else governing.seed
        self.queries: dict[Key, LiveQuery] = {}
        self.governor: Governor | None = None
        self.decisions: deque[PieceDecision] = deque(maxlen=10_000)
        self.counts: Counter[tuple[str, str, str]] = Counter()
        """By query, level and what became of tuples: pieces."""
        self.offered: Counter[Key] = Counter()
        """The estimated work that came, if all of it were done in the full version, in nanoseconds."""
        self._levels: dict[str, Level] = {}
        self._running: dict[int, Key] = {}
        self._periods = 0

    # The catalog ------------------------------------------------------------------------------------------------------

    def _governs(self, snapshot: CatalogSnapshot, subscriber: Subscriber) -> bool:
        return snapshot.running[subscriber.query].deadline is not None and subscriber.level in self._plain(snapshot)

    def _plain(self, snapshot: CatalogSnapshot) -> Mapping[str, Level]:
        """The levels that have a share of time, as texts have them: those without compartments."""
        names = sorted({LEAST.name, *snapshot.rules.order.above})
        if len(names) != len(self._levels):
            self._levels = {str(Level(name)): Level(name) for name in names}
        return self._levels

    def others(self, snapshot: CatalogSnapshot) -> CatalogSnapshot:
        """The part of a snapshot that is computed batch by batch, as if there were no deadlines."""
        governed = {(x.name, x.query) for x in snapshot.subscribers if self._governs(snapshot, x)}
        return snapshot.only(snapshot.clearances.keys() - governed) if governed else snapshot

    def meet(self, snapshot: CatalogSnapshot, now: int) -> Iterator[tuple[LiveQuery, CatalogSnapshot]]:
        """Follows a catalog snapshot; the queries that run, each with the part of the snapshot that it is to meet."""
        together: dict[Key, set[tuple[str, str]]] = {}
        for x in snapshot.subscribers:
            if self._governs(snapshot, x):
                together.setdefault((x.query, x.level), set()).add((x.name, x.query))
        for key in self.queries.keys() - together.keys():
            self.drop(key)
        if together and self._governed:
            self._govern(snapshot, now)
        for key, names in sorted(together.items()):
            if key not in self.queries:
                level, query = self._plain(snapshot)[key[1]], snapshot.running[key[0]]
                self.queries[key] = LiveQuery(key, level, query, self._make, self._limits, self.seed)
            yield self.queries[key], snapshot.only(names)
        self._declare()

    def _govern(self, snapshot: CatalogSnapshot, now: int) -> None:
        order = snapshot.rules.order
        if self.governor is None or self.governor.lattice.order != order:
            # Loaded here: compiled code takes a while to load, and most engines have no deadlines.
            from headgate.realtime.governor import Governor

            self.recall()
            self.governor = Governor(order, now, self._approach)
            self._periods = 0

    def _declare(self) -> None:
        """Tells the governor what versions of queries take; a coarser slide or fewer columns are taken for half."""
        if self.governor is None:
            return
        for level in {live.level for live in self.queries.values()}:
            mine = [live.deadline for live in self.queries.values() if live.level == level]
            shares = [
                [x.sample * (0.5 if x.slide is not None or x.columns is not None else 1.0) for x in deadline.versions]
                for deadline in mine
            ]
            self.governor.declare(level, shares)

    def drop(self, key: Key) -> None:
        """A query is no longer to be run; its transactions run out unseen."""
        self.queries.pop(key, None)
        self._running = {number: x for number, x in self._running.items() if x != key}

    # Tuples -----------------------------------------------------------------------------------------------------------

    def reads(self, stream: str) -> bool:
        return any(stream in live.query.streams for live in self.queries.values())

    def arrive(
        self,
        arrivals: TupleBatch,
        labels: Mapping[int, Label],
        snapshot: CatalogSnapshot,
        came: int,
        floors: Mapping[str, int],
        write: Callable[[pa.Table], str],
    ) -> None:
        """Tuples came: they wait for the next quantum. A level's work depends on the tuples that it may see."""
        order = snapshot.rules.order
        for live in self.queries.values():
            if arrivals.stream not in live.query.streams:
                continue
            level = live.query.level
            seen = at_level(arrivals, lambda x, level=level: all(order.dominates(level, y) for y in x.levels), labels)  # type: ignore[misc]
            read = {
                column.name
                for block in live.query.query.blocks
                for column in columns_read(block)
                if block.readings[column.input].stream.name == arrivals.stream
            }
            seen = replace(seen, columns={name: x for name, x in seen.columns.items() if name in read})
            if len(seen.times):
                tuples = live.own_numbers(seen, labels)
                live.batches += 1
                live.changed = True
                live.inbox.append(WaitingTuples(live.batches, write(as_table(tuples)), tuples, came, floors))
            elif floors:
                self._pass_time(live, came, floors)

    def pass_time(self, came: int, floors: Mapping[str, int]) -> None:
        for live in self.queries.values():
            self._pass_time(live, came, floors)

    def _pass_time(self, live: LiveQuery, came: int, floors: Mapping[str, int]) -> None:
        """While tuples wait, time passes with them."""
        own = {stream: floor for stream, floor in floors.items() if stream in live.query.streams}
        if not own or live.waits:
            return
        if live.graph.is_due(own):
            live.batches += 1
            live.inbox.append(WaitingTuples(live.batches, "", nothing(next(iter(own))), came, own))
        else:
            live.graph.pass_time(own)
        live.changed = True

    # Quanta -----------------------------------------------------------------------------------------------------------

    def begin(self, now: int) -> int | None:
        """If a quantum begins: ends what is too late, and decides about the tuples that came before."""
        governor = self.governor
        if governor is None or (start := governor.begins(now)) is None:
            return None
        for number in governor.expired(start):
            if (found := self._taken(number)) is not None:
                live, piece = found
                self._note(start, live, "missed", piece)
                live.leave_out()
        if governor.periods != self._periods:
            self._periods = governor.periods
            for live in self.queries.values():
                live.end_period()
        waiting = [(x.came, key, x.number, x) for key, live in self.queries.items() for x in live.inbox]
        for came, key, _, x in sorted(waiting, key=lambda y: y[:3]):
            if came * MILLISECOND <= start:
                self.queries[key].inbox.remove(x)
                self._decide(self.queries[key], x, start)
        return start

    def _decide(self, live: LiveQuery, waiting: WaitingTuples, start: int) -> None:
        """Cuts a batch into pieces that each fit into a quantum, and asks for each whether it is admitted."""
        from headgate.realtime.governor import LONGEST, PIECE

        governor = self.governor
        assert governor is not None  # noqa: S101
        version = governor.version(live.level, len(live.deadline.versions))
        share = live.deadline.versions[version].sample
        deadline = (waiting.came + live.deadline.milliseconds) * MILLISECOND
        count, step = len(waiting.tuples.times), round(live.costs.tuples_in(PIECE, LONGEST // 2) / share)
        live.changed = True
        for first in range(0, max(1, count), step):
            piece = WorkPiece(waiting, first, min(count, first + step), version, deadline)
            kept = piece.stop - first
            if share < 1:  # a sample may be larger than its share
                kept = int((live.draws(waiting.number, first, piece.stop) < share).sum())
            estimate, bound = live.costs.estimate(kept), live.costs.bound(kept)
            self.offered[live.key] += live.costs.estimate(piece.stop - first)
            number = governor.release(start, live.level, deadline, estimate, version, bound)
            self._note(start, live, "rejected" if number is None else "admitted", piece)
            if number is None:
                live.leave_out()
            else:
                live.decided[number] = piece
                self._running[number] = live.key

    def next(self, now: int, level: Level | None = None) -> tuple[int, LiveQuery, WorkPiece] | None:
        """The work that may be done at this moment, of this `level` if one is given."""
        governor = self.governor
        while governor is not None and (number := governor.next(now, level)) is not None:
            if (found := self._taken(number)) is not None:
                return number, *found
            governor.done(now, number, 0)
        return None

    def put_back(self, number: int, live: LiveQuery, piece: WorkPiece) -> None:
        """Work that `next` has returned is not done now."""
        assert self.governor is not None  # noqa: S101
        self.governor.put_back(number)
        self._running[number] = live.key
        live.decided = {number: piece, **live.decided}

    def _taken(self, number: int) -> tuple[LiveQuery, WorkPiece] | None:
        """A piece that waits no longer; None: its query is gone, or is another one."""
        live = self.queries.get(self._running.pop(number, ("", "")))
        piece = None if live is None else live.decided.pop(number, None)
        return None if live is None or piece is None else (live, piece)

    def done(self, now: int, run: Sequence[DonePiece], commit: int) -> None:
        """Pieces are done that were committed together, which took so many nanoseconds beside their work."""
        assert self.governor is not None  # noqa: S101
        for x in run:
            x.live.costs.measured(int(x.live.kept(x.piece).sum()), x.spent, commit, len(run))
            timely = self.governor.done(now, x.number, x.spent + commit // len(run))
            self._note(now, x.live, "done" if timely else "late", x.piece)

    def recall(self) -> None:
        """What was admitted is to be done before anything else, whenever that is."""
        for live in self.queries.values():
            live.decided = {-1 - place: piece for place, piece in enumerate(live.decided.values())}
        self._running.clear()

    def undone(self) -> Iterator[tuple[LiveQuery, WorkPiece]]:
        """What was admitted and recalled, in order, to be done now; each leaves the state with its results."""
        for live in list(self.queries.values()):
            for number in [x for x in live.decided if x < 0]:
                yield live, live.decided.pop(number)

    def redone(self, now: int, live: LiveQuery, piece: WorkPiece) -> None:
        """A piece that was recalled is done; its deadline counts no more."""
        self._note(now, live, "late", piece)

    @property
    def waits(self) -> bool:
        return any(live.inbox for live in self.queries.values())

    def unasked(self, *, full: bool = False) -> Iterator[tuple[LiveQuery, WorkPiece]]:
        """All that waits, whole, in the version that is in force, or in the `full` one."""
        for live in list(self.queries.values()):
            while live.inbox and live.key in self.queries:
                x, best = live.inbox.pop(0), len(live.deadline.versions) - 1
                yield live, WorkPiece(x, 0, len(x.tuples.times), best if full else live.version, 0)

    def _note(self, now: int, live: LiveQuery, word: str, piece: WorkPiece) -> None:
        self.counts[(*live.key, word)] += 1
        self.decisions.append(
            PieceDecision(now, live.key, word, piece.waiting.number, piece.start, piece.stop, piece.version)
        )

    # What is told -----------------------------------------------------------------------------------------------------

    def status(self) -> tuple[list[DeadlineCounts], list[LevelCounts]]:
        """What SHOW DEADLINES and the metrics tell."""
        queries = [
            DeadlineCounts(
                *key,
                str(live.current),
                self.counts[(*key, "admitted")],
                self.counts[(*key, "rejected")],
                self.counts[(*key, "done")],
                self.counts[(*key, "missed")] + self.counts[(*key, "late")],
            )
            for key, live in sorted(self.queries.items())
        ]
        governor = self.governor
        if governor is None or not governor.samples:
            return queries, []
        sample = governor.samples[-1]
        return queries, [
            LevelCounts(
                str(level), sample.miss_ratio(k), sample.utilisation[k], 100 * sample.quality[k], sample.limit[k]
            )
            for k, level in enumerate(governor.lattice.levels)
        ]

    def profile(self, query: str, subscriber: str | None) -> list[ViewCounts]:
        """As `QueryGraph.profile`."""
        return [x for (name, _), live in self.queries.items() if name == query for x in live.profile(subscriber)]

    @property
    def held(self) -> int:
        return sum(live.graph.held for live in self.queries.values())
