"""A query with a deadline, for the subscribers of one level: a query graph of its own, and the tuples that wait for it.

Nothing of it is shared with other queries or levels, so that its work can be done, put off or left out by itself.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa

from headgate.columns.sorting import Bools, Ints, distinct
from headgate.cql.deadlines import Deadline, Version
from headgate.labels import Label, Level
from headgate.model.limits import Limits
from headgate.model.query import ContinuousQuery
from headgate.model.results import ResultBatch, notice
from headgate.model.snapshot import CatalogSnapshot
from headgate.model.tuples import TupleBatch
from headgate.plan.analysis import ViewCounts
from headgate.realtime.arrays import Floats
from headgate.recovery.costs import Costs
from headgate.recovery.messages import ALL_TAKEN, LEFT_OUT, NO_TABLE, UNREAD, of_version
from headgate.recovery.query_graph import Make, QueryGraph

Key = tuple[str, str]
"""A query, and the level of its subscribers."""
TIME, LABEL = "\x1ftime", "\x1flabel"


@dataclass(frozen=True, eq=False)
class WaitingTuples:
    """Tuples of one batch that a query has not taken yet; `number` counts its batches, `file` of the state holds them,
    `came` is when they came, in milliseconds of the clock, `floors` are the watermarks that the clock gives streams
    after them."""

    number: int
    file: str
    tuples: TupleBatch
    came: int
    floors: Mapping[str, int]

    def plain(self) -> list[Any]:
        return [self.number, self.file, self.tuples.stream, self.came, dict(self.floors)]


@dataclass(frozen=True)
class WorkPiece:
    """The tuples of one transaction: these rows of a batch that came, in this version. `last`: no more come of it."""

    waiting: WaitingTuples
    start: int
    stop: int
    version: int
    deadline: int

    @property
    def last(self) -> bool:
        return self.stop == len(self.waiting.tuples.times)


@dataclass
class LiveQuery:
    """The state of one query at one level. `decided` are the pieces that were admitted and have not run, by their
    numbers; `seed` decides which tuples a sample takes."""

    key: Key
    level: Level
    query: ContinuousQuery
    make: Make
    limits: Limits | None
    seed: int
    graph: QueryGraph = field(init=False)
    costs: Costs = field(default_factory=Costs)
    inbox: list[WaitingTuples] = field(default_factory=list)
    decided: dict[int, WorkPiece] = field(default_factory=dict)
    batches: int = 0
    """How many batches came so far."""
    version: int = field(init=False)
    """The version that is in force."""
    said: int = field(init=False)
    """The version that its readers were told of last."""
    changed: bool = True
    """Whether anything of it is to be saved again."""
    leaves_out: bool = False
    """Whether its readers were told that tuples are left out."""
    left_out: bool = False
    """Whether tuples were left out since the last piece."""
    clean: bool = True
    """Whether nothing was left out in this control period."""
    recovered: bool = False
    """Whether its readers are to be told that nothing is left out any more."""
    _snapshot: CatalogSnapshot = field(default_factory=CatalogSnapshot)
    tables: Mapping[str, TupleBatch] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.graph = QueryGraph(self.make, self.limits)
        self.version = self.said = len(self.deadline.versions) - 1

    @property
    def deadline(self) -> Deadline:
        assert self.query.deadline is not None  # noqa: S101 - only such queries are live
        return self.query.deadline

    @property
    def current(self) -> Version:
        return self.deadline.versions[self.version]

    @property
    def waits(self) -> bool:
        return bool(self.inbox or self.decided)

    @property
    def keys(self) -> list[tuple[str, str]]:
        """Its subscribers, with the query."""
        return [(x.name, x.query) for x in self._snapshot.subscribers]

    def profile(self, subscriber: str | None) -> list[ViewCounts]:
        return self.graph.profile(self.key[0], subscriber)

    # The catalog ------------------------------------------------------------------------------------------------------

    def meet(self, snapshot: CatalogSnapshot) -> None:
        """Takes a catalog snapshot of its own subscribers."""
        query = snapshot.running[self.key[0]]
        if query.meaning != self.query.meaning and self.waits:  # what waits has the columns of the query before
            self.inbox, self.decided = [], {}
            self.leave_out()
        self._snapshot, self.query, self.changed = snapshot, query, True
        self._bound_versions(self.version, self.said)
        self.graph.update(self._of_version(snapshot))

    def restore(self, version: int, said: int, partitions: Any, chain: Any) -> None:
        """Continues from its saved state; the dictionary knows its labels."""
        self._bound_versions(version, said)
        self.graph.restore(partitions, chain, self._of_version(self._snapshot))

    def _bound_versions(self, version: int, said: int) -> None:
        best = len(self.deadline.versions) - 1
        self.version, self.said = min(version, best), min(said, best)

    def _of_version(self, snapshot: CatalogSnapshot) -> CatalogSnapshot:
        return replace(snapshot, queries=(self.query.version(self.current),))

    def feed(self, tables: Mapping[str, TupleBatch], labels: Mapping[int, Label], unread: set[tuple[str, str]]) -> None:
        """The tuples of tables, with the labels that their numbers stand for. Subscribers (by name and query) for whom
        a table is `unread` are told that their query ends."""
        own = self.query.tables & tables.keys()
        self.tables = {name: self.own_numbers(tables[name], labels) for name in own}
        self.graph.feed(self.tables)
        self.graph.end(unread & set(self.keys), NO_TABLE)

    def own_numbers(self, tuples: TupleBatch, labels: Mapping[int, Label]) -> TupleBatch:
        """The same tuples, with labels by the numbers of its own dictionary; `labels` are those they have now."""
        found = distinct(tuples.labels)
        own = np.array([self.graph.dictionary.number(labels[x]) for x in found.tolist()], np.int64)
        return replace(tuples, labels=own[np.searchsorted(found, tuples.labels)] if len(found) else tuples.labels)

    # Work -------------------------------------------------------------------------------------------------------------

    def tells(self, version: int) -> bool:
        """Whether notices come before the results of a piece of this version."""
        return self.said != version or self.version != version or self._left_out_anew or self._takes_all_again

    def change(self, version: int) -> list[ResultBatch]:
        """Another version comes into force. If it is another query, the windows of the one before become final, and its
        own begin empty."""
        self.changed = True
        before, self.version = self.current, version
        if (before.slide, before.columns) == (self.current.slide, self.current.columns):
            return []
        found = self.graph.batch([], last=True)
        self.graph = QueryGraph(self.make, self.limits, self.graph.dictionary)
        self.graph.update(self._of_version(self._snapshot))
        self.graph.feed(self.tables)
        return found

    @contextmanager
    def still_undone(self, piece: WorkPiece) -> Iterator[None]:
        """In what is saved meanwhile, this piece is the next one to be done."""
        self.decided, self.changed = {-1: piece, **self.decided}, True
        yield
        del self.decided[-1]

    def run(self, piece: WorkPiece) -> list[ResultBatch]:
        """Does the work of a piece, whose version is in force: its results, after the notices that they need."""
        self.changed = True
        tuples = rows(piece.waiting.tuples, self.kept(piece))
        floors = piece.waiting.floors if piece.last else {}
        arrivals = [tuples] if len(tuples.times) else []
        return [*self._told(), *self.graph.batch(arrivals, clock=piece.waiting.came, floors=floors)]

    def end(self, unread: Collection[tuple[str, str]]) -> list[ResultBatch]:
        """The results of all open windows. Subscribers (by name and query) to whose streams something is `unread` are
        told so instead."""
        self.graph.end(set(self.keys) & set(unread), UNREAD)
        return self.graph.batch([], last=True)

    def kept(self, piece: WorkPiece) -> Bools:
        """Which tuples of the batch the piece takes."""
        chosen = np.zeros(len(piece.waiting.tuples.times), np.bool_)
        share = self.deadline.versions[piece.version].sample
        chosen[piece.start : piece.stop] = self.draws(piece.waiting.number, piece.start, piece.stop) < share
        return chosen

    def draws(self, batch: int, start: int, stop: int) -> Floats:
        """A number below 1 for each of these tuples: it is in a sample of every larger share. Draws are secret and
        depend on nothing but the place of a tuple, so a sample tells nothing of tuples that are hidden."""
        name = hashlib.sha256(repr(self.key).encode()).digest()
        return np.random.default_rng([self.seed, int.from_bytes(name[:8]), batch, start]).random(stop - start)

    @property
    def _left_out_anew(self) -> bool:
        return self.left_out and not self.leaves_out

    @property
    def _takes_all_again(self) -> bool:
        return self.recovered and not self.left_out

    def _told(self) -> list[ResultBatch]:
        """The notices that come before the results of a piece."""
        words = []
        if self.said != self.version:
            words.append(of_version(self.current))
            self.said = self.version
        if self._left_out_anew:
            words.append(LEFT_OUT)
            self.leaves_out = True
        elif self._takes_all_again:
            words.append(ALL_TAKEN)
            self.leaves_out = False
        self.left_out = self.recovered = False
        return [notice(self._readers, self.key[0], qos="; ".join(words))] if words and self._readers else []

    def leave_out(self) -> None:
        """Tuples are left out: its readers are told with the next results."""
        self.left_out, self.clean, self.recovered = True, False, False

    def end_period(self) -> None:
        """A control period has passed."""
        self.recovered = self.leaves_out and self.clean
        self.clean = True

    @property
    def _readers(self) -> tuple[str, ...]:
        return tuple(x.name for x in self._snapshot.subscribers if x.clearance is not None)


def rows(tuples: TupleBatch, chosen: Bools) -> TupleBatch:
    places = np.flatnonzero(chosen)
    taken = pa.array(places)
    columns = {name: column.take(taken) for name, column in tuples.columns.items()}
    return replace(tuples, times=tuples.times[places], labels=tuples.labels[places], columns=columns)


def at_level(tuples: TupleBatch, seen: Callable[[Label], bool], labels: Mapping[int, Label]) -> TupleBatch:
    """The tuples that a level may see: others must not change how much work it has."""
    found = distinct(tuples.labels)
    allowed = np.array([seen(labels[x]) for x in found.tolist()], np.bool_)
    if allowed.all():
        return tuples
    return rows(tuples, allowed[np.searchsorted(found, tuples.labels)])


def as_table(tuples: TupleBatch) -> pa.Table:
    return pa.table({TIME: pa.array(tuples.times), LABEL: pa.array(tuples.labels), **tuples.columns})


def of_table(stream: str, table: pa.Table) -> TupleBatch:
    found = {name: table.column(name).combine_chunks() for name in table.column_names}
    times: Ints = found.pop(TIME).to_numpy()
    return TupleBatch(stream, times, found.pop(LABEL).to_numpy(), found)


def nothing(stream: str) -> TupleBatch:
    none = np.empty(0, np.int64)
    return TupleBatch(stream, none, none, {})
