"""Who sees which tuples, for all queries of a processor: the ingress side of every decision about rights.

Each tuple gets a *sight*, one small number for its label under the rights of the moment it arrives: which views see
it, and with which columns hidden. Views are what subscribers look through: one for each query block and clearance,
shared by all who came together and whose rights have been the same since. Rights that change turn sights into others;
what was lost stays lost (SPEC.md, 4.3).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from headgate.engine.kernels.given import HIDDEN, Mask, Sight, Sights
from headgate.engine.kernels.rows import Bools, Ints
from headgate.engine.kernels.view import NO_TIME
from headgate.labels import Clearance, Label, Level, Rules, parse_level
from headgate.plan.queries import Block, Query
from headgate.plan.secure import Mode


@dataclass(frozen=True)
class Running:
    """A query that runs: its meaning, its level, how late tuples of its streams may come (in milliseconds), the
    stream that its results make for other queries, and how many queries stand at most between it and its sources."""

    name: str
    query: Query
    level: Level
    lateness: Mapping[str, int] = field(default_factory=dict)
    mode: Mode = Mode.EXACT
    output: str = ""
    stage: int = 0

    @property
    def streams(self) -> frozenset[str]:
        return frozenset(reading.stream.name for block in self.query.blocks for reading in block.readings)


@dataclass
class View:
    """People who look at one query since the same moment: with the same rights, or, if it is cumulative, all of them.
    `columns` are its places in sights, one for each block; `greatest` are the latest times it has seen, by stream."""

    running: Running
    clearances: dict[str, Clearance | None]
    columns: tuple[int, ...]
    greatest: dict[str, int] = field(default_factory=dict)
    passed: int = NO_TIME

    @property
    def windowed(self) -> list[int]:
        """The columns of blocks with windows: what merely passes cannot be late."""
        blocks = zip(self.columns, self.running.query.blocks, strict=True)
        return [column for column, block in blocks if not block.stateless]

    def watermark(self) -> int:
        return min(map(self.reached, self.running.streams))

    def reached(self, stream: str) -> int:
        """How far the time of one stream has come for this view."""
        if stream not in self.greatest:
            return NO_TIME
        return self.greatest[stream] - self.running.lateness.get(stream, 0)

    def clearance(self, subscriber: str, rules: Rules) -> Clearance | None:
        """All look from the level of the query; who cannot come there sees nothing."""
        found, level = self.clearances.get(subscriber), self.running.level
        if found is None or not rules.order.dominates(found.level, level):
            return None
        return replace(found, level=level)


class Sightings:
    """The views of a processor and the sights of its tuples. `labels` are all labels by number."""

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self.views: list[View] = []
        self.masks: list[Mask] = [frozenset()]
        self._labels: dict[int, Label] = {}
        self._columns = 0
        self._rows: list[np.ndarray[tuple[int], np.dtype[np.int32]]] = []
        self._label_of: list[int] = []
        self._numbers: dict[tuple[int, bytes], int] = {}

    # Views ------------------------------------------------------------------------------------------------------------

    def add_view(self, running: Running, clearances: Mapping[str, Clearance | None]) -> View:
        """A view that begins now, with nothing."""
        columns = tuple(range(self._columns, self._columns + len(running.query.blocks)))
        self._columns += len(columns)
        self._rows = [np.append(row, np.zeros(len(columns), np.int32)) for row in self._rows]
        view = View(running, dict(clearances), columns)
        self.views.append(view)
        self._number_rows()
        return view

    def change(self, view: View, clearances: Mapping[str, Clearance | None]) -> Ints:
        """New rights for those who look through a view; returns for each sight the one that takes its place."""
        view.clearances |= clearances
        after = np.arange(len(self._rows))
        for number, row in enumerate(list(self._rows)):
            now = self._sees(view, self._label_of[number])
            changed = row.copy()
            for column, seen in zip(view.columns, now, strict=True):
                changed[column] = self._both(row[column], seen)
            after[number] = self._sight(self._label_of[number], changed)
        return after

    def _both(self, before: np.int32, now: np.int32) -> int:
        """What was seen before and still is, with everything hidden that ever was."""
        if before == HIDDEN or now == HIDDEN:
            return HIDDEN
        return self._mask(self.masks[before - 1] | self.masks[now - 1])

    # Sights -----------------------------------------------------------------------------------------------------------

    def know(self, labels: Mapping[int, Label]) -> None:
        self._labels |= labels

    def remove(self, view: View) -> None:
        """Nobody looks through it any more."""
        self.views.remove(view)

    def arriving(self, stream: str, times: Ints, labels: Ints, only: tuple[View, ...] | None = None) -> Ints:
        """The sights of tuples of one stream, in the order of their arrival; time moves on for those who see them: all
        views, or `only` some."""
        kinds, kind = np.unique(labels, return_inverse=True)
        rows = np.zeros((len(kinds), self._columns), np.int32)
        for number, label in enumerate(kinds):
            rows[number] = self._row(int(label), stream)
        if only is not None:
            others = [column for view in self.views if view not in only for column in view.columns]
            rows[:, others] = HIDDEN
        late = np.zeros((len(labels), len(self.views)), np.bool_)
        for number, view in enumerate(self.views):
            if stream in view.running.streams:
                seen = (rows[:, list(view.columns)] != HIDDEN).any(axis=1)[kind]
                late[:, number] = self._late(view, stream, times, seen)
        if late.any():
            return self._with_late(kinds, kind, rows, late)
        numbers = np.array([self._sight(int(x), row) for x, row in zip(kinds, rows, strict=True)], np.int64)
        return numbers[kind] if len(kinds) else np.empty(0, np.int64)

    def seen(self, sights: Ints) -> Bools:
        """Which tuples anybody sees."""
        anybody = np.array([bool((row != HIDDEN).any()) for row in self._rows], np.bool_)
        return anybody[sights] if len(sights) else np.empty(0, np.bool_)

    def _late(self, view: View, stream: str, times: Ints, seen: Bools) -> Bools:
        """Which tuples come after the view's time has passed them; tuples it cannot see move nothing."""
        others = min((view.reached(s) for s in view.running.streams - {stream}), default=1 << 62)
        before = view.greatest.get(stream, NO_TIME)
        greatest = np.maximum.accumulate(np.concatenate([[before], np.where(seen, times, NO_TIME)]))
        if seen.any():
            view.greatest[stream] = int(greatest[-1])
        watermark = np.minimum(greatest[:-1] - view.running.lateness.get(stream, 0), others)
        return np.asarray(seen & (times < watermark), np.bool_)

    def _with_late(self, kinds: Ints, kind: Ints, rows: Sights, late: Bools) -> Ints:
        packed = np.packbits(late, axis=1)
        patterns, which = np.unique(np.column_stack([kind, packed]), axis=0, return_inverse=True)
        numbers = np.empty(len(patterns), np.int64)
        for number in range(len(patterns)):
            first = int(np.argmax(which == number))
            row = rows[kind[first]].copy()
            for view, missed in zip(self.views, late[first], strict=True):
                if missed:
                    row[view.windowed] = HIDDEN
            numbers[number] = self._sight(int(kinds[kind[first]]), row)
        return numbers[which.reshape(-1)]

    def _row(self, label: int, stream: str) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
        row = np.zeros(self._columns, np.int32)
        for view in self.views:
            if stream in view.running.streams:
                row[list(view.columns)] = self._sees(view, label, stream)
        return row

    def _sees(self, view: View, label: int, stream: str | None = None) -> list[np.int32]:
        """What each block of a view sees of tuples with this label; a cumulative one sees all that anybody may see."""
        found = []
        held = dict.fromkeys(view.clearance(name, self.rules) for name in view.clearances)
        for block in view.running.query.blocks:
            reads = stream is None or any(reading.stream.name == stream for reading in block.readings)
            allowed = [x for x in held if x is not None and reads and self._permits(label, x, block)]
            hidden = frozenset[tuple[str, str]]()
            if allowed and view.running.mode == Mode.EXACT:
                hidden = self._hidden(block, allowed[0])
            found.append(np.int32(self._mask(hidden) if allowed else HIDDEN))
        return found

    def _permits(self, label: int, clearance: Clearance, block: Block) -> bool:
        return self.rules.permits(self._labels[label], clearance, aggregated=block.aggregated)

    def _hidden(self, block: Block, clearance: Clearance) -> Mask:
        return frozenset(
            (reading.stream.name, name)
            for reading in block.readings
            for name, label in reading.stream.labels
            if not self.rules.permits(label, clearance, aggregated=block.aggregated)
        )

    def _mask(self, mask: Mask) -> int:
        if mask not in self.masks:
            self.masks.append(mask)
        return self.masks.index(mask) + 1

    def _sight(self, label: int, row: np.ndarray[tuple[int], np.dtype[np.int32]]) -> int:
        key = label, row.tobytes()
        if key not in self._numbers:
            self._numbers[key] = len(self._rows)
            self._rows.append(row)
            self._label_of.append(label)
        return self._numbers[key]

    def _number_rows(self) -> None:
        known = zip(self._label_of, self._rows, strict=True)
        self._numbers = {(label, row.tobytes()): number for number, (label, row) in enumerate(known)}

    # To go on later ---------------------------------------------------------------------------------------------------

    def plain(self) -> dict[str, Any]:
        """All of it as plain values, to be written down."""
        return {
            "columns": self._columns,
            "rows": [row.tolist() for row in self._rows],
            "label_of": self._label_of,
            "masks": [sorted(map(list, mask)) for mask in self.masks],
            "views": [
                {
                    "query": view.running.name,
                    "clearances": {name: _plain_clearance(x) for name, x in view.clearances.items()},
                    "columns": list(view.columns),
                    "greatest": view.greatest,
                    "passed": view.passed,
                }
                for view in self.views
            ],
        }

    def restore(self, plain: Mapping[str, Any], running: Mapping[str, Running]) -> None:
        """As it was; views of queries that no longer run are gone."""
        self._columns = plain["columns"]
        self._rows = [np.array(row, np.int32) for row in plain["rows"]]
        self._label_of = list(plain["label_of"])
        self.masks = [frozenset((stream, name) for stream, name in mask) for mask in plain["masks"]]
        self.views = [
            View(
                running[x["query"]],
                {name: _clearance(found) for name, found in x["clearances"].items()},
                tuple(x["columns"]),
                dict(x["greatest"]),
                x["passed"],
            )
            for x in plain["views"]
            if x["query"] in running
        ]
        self._number_rows()

    # For the kernels --------------------------------------------------------------------------------------------------

    def batch(self, *, last: bool = False) -> Sight:
        """What the cells need for the next batch: time passes up to each view's watermark (with the `last`, all)."""
        targets: list[tuple[str, int]] = [("", 0)] * self._columns
        since, until = np.full(self._columns, NO_TIME), np.full(self._columns, NO_TIME)
        for view in self.views:
            reached = max(view.passed, (1 << 61) if last else view.watermark())
            for number, column in enumerate(view.columns):
                targets[column] = (view.running.name, number)
                since[column], until[column] = view.passed, reached
            view.passed = reached
        table = np.stack(self._rows) if self._rows else np.zeros((0, self._columns), np.int32)
        levels = {number: _level_text(label) for number, label in self._labels.items()}
        return Sight(tuple(targets), table, tuple(self.masks), since, until, levels)


def _plain_clearance(clearance: Clearance | None) -> list[Any] | None:
    if clearance is None:
        return None
    return [
        sorted(clearance.roles),
        str(clearance.level),
        sorted(clearance.sources),
        sorted(clearance.aggregate_sources),
    ]


def _clearance(plain: list[Any] | None) -> Clearance | None:
    if plain is None:
        return None
    roles, level, sources, aggregates = plain
    return Clearance(frozenset(roles), parse_level(level), frozenset(sources), frozenset(aggregates))


def _level_text(label: Label) -> str:
    return ", ".join(map(str, sorted(label.levels, key=Level.sort_key))) or "U"
