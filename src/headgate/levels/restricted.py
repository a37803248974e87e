"""What the processor of a level may know of the catalog: its subscriptions, their queries, and what these read.

A subscription has a level, and its results are computed in the processor of that level, also if the query was created
below it: so no processor learns that anybody above it has subscribed to anything.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from headgate.labels import Clearance, Label, Level, LevelOrder, parse_level
from headgate.model.snapshot import CatalogSnapshot, SnapshotSource, Subscriber


def level_of(subscriber: Subscriber) -> Level | None:
    """The level at which a subscription is computed; None: it has no rights and no level is known."""
    if subscriber.level:
        return parse_level(subscriber.level)
    return subscriber.clearance.level if subscriber.clearance is not None else None


def levels_in(snapshot: CatalogSnapshot) -> set[Level]:
    """The levels that need a processor. Whoever only has a status is told about it by the processor of its level."""
    found = {level_of(x) for x in snapshot.subscribers} | {parse_level(x.outgoing.level) for x in snapshot.standings}
    return {x for x in found if x is not None}


def may_read(order: LevelOrder, level: Level, label: Label) -> bool:
    """The simple security property: a level reads what it dominates."""
    return all(order.dominates(level, x) for x in label.levels)


class KnownNames:
    """The names of streams that labels of a level's tuples may have: those that its queries have ever read. Windows
    hold tuples of queries that are gone, also after a restart, so nothing is forgotten."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self.names: frozenset[str] = frozenset(json.loads(file.read_text()) if file.exists() else ())

    def add(self, names: Iterable[str]) -> None:
        """They are on the disk when this returns."""
        if not (all_ := self.names.union(names)) <= self.names:
            new = self._file.with_name(f"{self._file.name}~")
            with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
                json.dump(sorted(all_), file)
                file.flush()
                os.fsync(file.fileno())
            new.rename(self._file)
            self.names = all_


class OfLevel:
    """The catalog as one level may know it. It is the same object as long as nothing changed that concerns the
    level."""

    def __init__(self, gate: SnapshotSource, level: Level, known: KnownNames) -> None:
        self._gate, self._level, self._known = gate, level, known
        self._lock = threading.Lock()
        self._whole, self._part = CatalogSnapshot(), CatalogSnapshot()
        self._mentioned: frozenset[int] = frozenset()
        """The numbers of the streams that subscriptions of the level are or were for."""

    def snapshot(self) -> CatalogSnapshot:
        return self._of(self._gate.snapshot())

    @contextmanager
    def open(self) -> Iterator[CatalogSnapshot]:
        with self._gate.open() as now:
            yield self._of(now)

    def verify(self) -> None:
        self._gate.verify()

    def _of(self, whole: CatalogSnapshot) -> CatalogSnapshot:
        with self._lock:
            if whole is not self._whole:
                part = self._restricted(whole)
                if part != self._part:
                    self._part = part
                self._whole = whole
            return self._part

    def _restricted(self, whole: CatalogSnapshot) -> CatalogSnapshot:
        own = whole.only({(x.name, x.query) for x in whole.subscribers if level_of(x) == self._level})
        read = {name for query in own.queries for name in query.streams}
        descriptors = {name: x for name, x in whole.descriptors.items() if name in read}
        standings = tuple(x for x in whole.standings if parse_level(x.outgoing.level) == self._level)
        self._mentioned |= {x.stream for x in standings}
        named = {*read, *descriptors, *(x.output for x in own.queries)}
        named |= {source for x in descriptors.values() for source in x.policy.sources}
        named |= {
            source for x in own.queries for labels in x.column_labels for label in labels for source in label.sources
        }
        self._known.add(named)
        known = self._known.names
        semantics = {name: x for name, x in whole.rules.semantics.items() if name in known}
        keys = {(x.name, x.query) for x in own.subscribers}
        return CatalogSnapshot(
            replace(whole.rules, semantics=semantics),
            descriptors,
            own.queries,
            tuple(replace(x, clearance=_narrowed(x.clearance, known)) for x in own.subscribers),
            {key: why for key, why in whole.unfit.items() if key in keys},
            standings,
            whole.streams & self._mentioned,
        )


def _narrowed(clearance: Clearance | None, known: frozenset[str]) -> Clearance | None:
    """Without the names of streams that no label of the level can have."""
    if clearance is None:
        return None
    return replace(
        clearance,
        sources=frozenset(clearance.sources) & known,
        aggregate_sources=frozenset(clearance.aggregate_sources) & known,
    )
