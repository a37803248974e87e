"""The visibility index: decides on arrival which views of a processor see a tuple (SPEC.md, 4.3).

Each tuple gets the number of a *visibility row*, which depends on its label and on the rights at the time of arrival.
The row has a column for each block of each view: HIDDEN, or the mask of the columns that are hidden. A view is shared
by the subscribers that began together and have had the same rights since. A change of rights replaces rows by others;
what a view has lost stays lost. Tuples of tables have rows of their own, which are changed in place: a view always sees
of a table what the current rights permit.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from headgate.columns.sorting import Bools, Constant, Ints, dense, distinct, repeated, same
from headgate.labels import Clearance, Label, Level, Rules
from headgate.model.budget import Budget
from headgate.model.limits import Limits
from headgate.model.query import ContinuousQuery
from headgate.model.times import BEGINNING, NO_TIME
from headgate.model.view import View, clearance_of, plain_clearance
from headgate.model.visibility import HIDDEN, Visibility, VisibilityRows
from headgate.visibility.lateness import ArrivalTimes
from headgate.visibility.policy import VisibilityPolicy
from headgate.visibility.role_limits import enter as enter

_Missed = tuple[tuple[int, ...], Bools]
"""Columns of the visibility rows, and the tuples of a batch that are hidden from them."""


@dataclass(frozen=True)
class Fate:
    """The fate of the tuples of a batch: which of them any view sees, late or not, and which of them are late."""

    seen: Bools
    late: Bools

    def with_(self, other: Fate) -> Fate:
        """Combines the fates of the same tuples in two processors."""
        return Fate(self.seen | other.seen, self.late | other.late)


class VisibilityIndex:
    """The views of a processor and the visibility rows of its tuples."""

    def __init__(self, rules: Rules, limits: Limits | None = None) -> None:
        self.policies = VisibilityPolicy(rules)
        self._limits = limits or Limits()
        self.views: list[View] = []
        self._labels: dict[int, Label] = {}
        self._columns = 0
        self._rows: list[np.ndarray[tuple[int], np.dtype[np.int32]]] = []
        self._label_of: list[int] = []
        self._numbers: dict[tuple[int, bytes], int] = {}
        self._levels: dict[int, str] = {}
        self._first: dict[tuple[str, int], int] = {}
        self._of_tables: dict[tuple[str, int], int] = {}
        self._table: VisibilityRows | None = None
        self._copied: list[tuple[int, int]] = []
        self._same: dict[str, Constant] = {}
        self._latest: dict[str, int] = {}
        self.fate = Fate(np.empty(0, np.bool_), np.empty(0, np.bool_))
        """The fate of the tuples that arrived last."""
        self._alive = set[int]()
        """The rows that tuples of streams may have. A change of rights replaced the others, which no longer change."""

    def __len__(self) -> int:
        """The number of visibility rows."""
        return len(self._rows)

    # Views ------------------------------------------------------------------------------------------------------------

    def add_view(self, running: ContinuousQuery, clearances: Mapping[str, Clearance | None]) -> View:
        """Adds a view that begins now, with empty state."""
        columns = tuple(range(self._columns, self._columns + len(running.query.blocks)))
        self._columns += len(columns)
        self._rows = [np.append(row, np.zeros(len(columns), np.int32)) for row in self._rows]
        view = View(running, dict(clearances), columns)
        self.views.append(view)
        self._number_rows()
        self._see_first(view)
        return view

    def part(self, view: View, subscribers: Collection[str]) -> View:
        """Moves some subscribers of a view to a view of their own, which has seen the same tuples."""
        clearances = {name: view.clearances.pop(name) for name in subscribers}
        new = self.add_view(view.running, clearances)
        new.greatest, new.passed, new.ended = dict(view.greatest), view.passed, view.ended
        new.second, new.yielded = view.second, view.yielded
        self._copied += zip(new.columns, view.columns, strict=True)
        for row in self._rows:
            row[list(new.columns)] = row[list(view.columns)]
        self._number_rows()
        return new

    def remove(self, view: View) -> None:
        """Removes a view that has no subscribers left."""
        self.views = [x for x in self.views if x is not view]
        self.policies.forget(view)
        self._first.clear()

    def change(self, view: View, clearances: Mapping[str, Clearance | None]) -> Ints:
        """Applies new rights to the subscribers of a view; returns for each visibility row the row that replaces it."""
        view.clearances |= clearances
        self.policies.forget(view)
        after = np.arange(len(self._rows))
        alive, self._alive = sorted(self._alive), set()
        labels = dict.fromkeys(self._label_of[number] for number in alive)
        now = {label: self.policies.sees(view, self._labels[label]) for label in labels}
        for number in alive:
            label, changed = self._label_of[number], self._rows[number].copy()
            for column, mask in zip(view.columns, now[label], strict=True):
                changed[column] = self.policies.both(int(changed[column]), mask)
            after[number] = self._visibility(label, changed)
        self._see_first(view)
        return after

    def _see_first(self, view: View) -> None:
        """Recomputes visibility after a rights change: of tables, and of tuples that arrive from now on."""
        for (stream, label), number in self._of_tables.items():
            self._rows[number][list(view.columns)] = self.policies.sees(view, self._labels[label], stream)
            self._table = None
        for (stream, label), number in self._first.items():
            row = self._rows[number].copy()
            row[list(view.columns)] = self.policies.sees(view, self._labels[label], stream)
            self._first[stream, label] = self._visibility(label, row)

    def keep(self, used: Ints) -> Ints:
        """Removes all visibility rows but the used ones and those of tables; returns the new number of each."""
        kept = distinct(np.concatenate([used, np.array([*self._of_tables.values()], np.int64)]))
        there = set(kept.tolist())
        after = np.zeros(len(self._rows), np.int64)
        after[kept] = np.arange(len(kept))
        self._rows = [self._rows[number] for number in kept.tolist()]
        self._label_of = [self._label_of[number] for number in kept.tolist()]
        self._first = {key: int(after[number]) for key, number in self._first.items() if number in there}
        self._of_tables = {key: int(after[number]) for key, number in self._of_tables.items()}
        self._alive = set(range(len(kept))) - set(self._of_tables.values())
        self._number_rows()
        return after

    @property
    def labels_held(self) -> set[int]:
        return set(self._label_of)

    def forget_labels(self, kept: Mapping[int, Label]) -> None:
        """Removes all labels but these. The caller removes unused visibility rows first (`keep`)."""
        self._labels = dict(kept)
        self._levels = {number: level for number, level in self._levels.items() if number in kept}

    # Visibility of tuples ---------------------------------------------------------------------------------------------

    def know(self, labels: Mapping[int, Label]) -> None:
        new = {number: label for number, label in labels.items() if self._labels.get(number) != label}
        self._levels |= {number: _level_text(label) for number, label in new.items()}
        self._labels |= labels

    def arriving(
        self,
        stream: str,
        times: Ints,
        labels: Ints,
        only: tuple[View, ...] | None = None,
        arrived: int = 0,
        clock: int | None = None,
    ) -> Ints:
        """Returns the visibility rows of arriving tuples of one stream, in order of arrival; the first has the arrival
        number `arrived`. Advances the watermarks of the views that see them (all views, or `only` some), but never
        ahead of the `clock`."""
        if not len(labels):
            self.fate = Fate(np.empty(0, np.bool_), np.empty(0, np.bool_))
            return np.empty(0, np.int64)
        kinds, kind = (labels[:1], repeated(0, len(labels))) if same(labels) else dense(labels)
        numbers = np.array([self._first_visibility(stream, label) for label in kinds.tolist()], np.int64)
        if only is not None:
            numbers = np.array([self._for_some(number, only) for number in numbers.tolist()], np.int64)
        coming = ArrivalTimes(times, kind, len(numbers), clock)
        seen = (self.table[numbers] != HIDDEN).any(axis=1)
        self.fate = Fate(coming.those(seen), self._late(stream, coming, seen))
        missed = self._missed(stream, times, coming, numbers, arrived)
        if missed:
            return self._without(numbers, kind, missed)
        if len(numbers) == 1:
            return self._same.setdefault(stream, Constant()).of(int(numbers[0]), len(kind))
        return numbers[kind]

    def of_table(self, table: str, labels: Ints) -> Ints:
        """The visibility rows of the tuples of a table; tables advance no watermark."""
        kinds, kind = dense(labels)
        for label in kinds.tolist():
            if (table, label) not in self._of_tables:
                self._of_tables[table, label] = len(self._rows)
                self._rows.append(self._seen_now(table, label))
                self._label_of.append(label)
        numbers = np.array([self._of_tables[table, label] for label in kinds.tolist()], np.int64)
        return numbers[kind] if len(kinds) else np.empty(0, np.int64)

    def seen(self, visibilities: Ints) -> Bools | None:
        """Which tuples any view sees; None: all of them."""
        visible = (self.table != HIDDEN).any(axis=1)
        return None if visible.all() else np.asarray(visible[visibilities], np.bool_)

    @property
    def table(self) -> VisibilityRows:
        """All visibility rows as one table."""
        if self._table is None:
            self._table = np.zeros((0, self._columns), np.int32)
        if len(self._table) < len(self._rows):
            self._table = np.concatenate([self._table, self._rows[len(self._table) :]])
        return self._table

    def seen_by(self, target: tuple[str, int], stream: str, labels: Sequence[int]) -> list[int]:
        """The labels whose tuples any view of this block sees."""
        columns = [view.columns[target[1]] for view in self.views if view.running.name == target[0]]
        if not columns or not labels:
            return []
        visibilities = np.array([self._first_visibility(stream, label) for label in labels], np.int64)
        seen = (self.table[visibilities][:, columns] != HIDDEN).any(axis=1)
        return [label for label, anybody in zip(labels, seen.tolist(), strict=True) if anybody]

    def _late(self, stream: str, arrived: ArrivalTimes, seen: Bools) -> Bools:
        """The tuples that would be late for a view that sees every tuple that any view sees. The owner of the stream
        gets this count; it reveals nothing about single subscribers."""
        before, lateness = self._latest.get(stream, NO_TIME), self._lateness(stream)
        late = arrived.late(seen, before, lateness, 1 << 62) if seen.any() else None
        if seen.any():
            self._latest[stream] = max(before, arrived.latest(seen))
        return np.zeros(len(arrived.those(seen)), np.bool_) if late is None else late

    def _lateness(self, stream: str) -> int:
        return max((view.running.lateness.get(stream, 0) for view in self.views), default=0)

    def _missed(self, stream: str, times: Ints, arrived: ArrivalTimes, numbers: Ints, number: int) -> list[_Missed]:
        """The columns that miss tuples, and which tuples: late ones, and those after a view has ended early. Advances
        the watermarks of the views. Tuples that a view cannot see do not move its watermark; tuples cannot be late for
        stateless blocks."""
        visible, found = self.table[numbers] != HIDDEN, list[_Missed]()
        for view in self.views:
            if view.windowed and stream in view.running.streams:
                seen = visible[:, view.columns[0] : view.columns[-1] + 1].any(axis=1)
                if seen.any() and view.scratch.ended_early:
                    found.append((view.columns, np.ones(len(times), np.bool_)))
                elif seen.any():
                    timed = view.running.streams - view.running.tables
                    others = min((view.reached(s) for s in timed - {stream}), default=1 << 62)
                    before, lateness = view.greatest.get(stream, NO_TIME), view.running.lateness.get(stream, 0)
                    late = arrived.late(seen, before, lateness, others)
                    latest = arrived.latest(seen)
                    if view.watched:
                        entering = arrived.those(visible[:, view.windowed].any(axis=1))
                        marks = arrived.marks(seen, before, lateness, others)[1:]
                        end = enter(view, times, entering if late is None else entering & ~late, marks, number)
                        if end is not None:  # with this tuple too many wait: the view ends here
                            found.append((view.columns, np.arange(len(times)) >= end))
                            latest = arrived.latest_of(end, seen)
                    if max(before, latest) > NO_TIME:
                        view.greatest[stream] = max(before, latest)
                    if late is not None:
                        found.append((tuple(view.windowed), late))
        return found

    def _without(self, numbers: Ints, kind: Ints, found: list[_Missed]) -> Ints:
        which = kind
        for _, missed in found:
            which = dense(which * 2 + missed)[1]
        example = np.zeros(int(which.max()) + 1, np.int64)
        example[which] = np.arange(len(which))
        visibilities = np.empty(len(example), np.int64)
        for pattern, at in enumerate(example.tolist()):
            number = int(numbers[kind[at]])
            row = self._rows[number].copy()
            for columns, missed in found:
                if missed[at]:
                    row[list(columns)] = HIDDEN
            visibilities[pattern] = self._visibility(self._label_of[number], row)
        return visibilities[which]

    def _first_visibility(self, stream: str, label: int) -> int:
        """The visibility row of a tuple that arrives in time; the same until rights change."""
        key = stream, label
        if key not in self._first:
            self._first[key] = self._visibility(label, self._seen_now(stream, label))
        return self._first[key]

    def _seen_now(self, stream: str, label: int) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
        row = [HIDDEN] * self._columns
        for view in self.views:
            if stream in view.running.streams:
                row[view.columns[0] : view.columns[-1] + 1] = self.policies.sees(view, self._labels[label], stream)
        return np.array(row, np.int32)

    def _for_some(self, number: int, views: tuple[View, ...]) -> int:
        """The same row, with all views but these HIDDEN. Views that belong to another stage are ignored: their column
        numbers mean other columns in this index."""
        mine = {id(view) for view in self.views}
        row = np.zeros_like(self._rows[number])
        shown = [column for view in views if id(view) in mine for column in view.columns]
        row[shown] = self._rows[number][shown]
        return self._visibility(self._label_of[number], row)

    def _visibility(self, label: int, row: np.ndarray[tuple[int], np.dtype[np.int32]]) -> int:
        key = label, row.tobytes()
        if key not in self._numbers:
            self._numbers[key] = len(self._rows)
            self._rows.append(row)
            self._label_of.append(label)
        self._alive.add(self._numbers[key])
        return self._numbers[key]

    def _number_rows(self) -> None:
        self._table = None
        known, apart = zip(self._label_of, self._rows, strict=True), set(self._of_tables.values())
        self._numbers = {(x, row.tobytes()): number for number, (x, row) in enumerate(known) if number not in apart}

    # Checkpoint and restore -------------------------------------------------------------------------------------------

    def plain(self) -> dict[str, Any]:
        """The state as plain values, for a checkpoint. Equal rows are written once: most differ in their label only."""
        kinds: dict[bytes, int] = {}
        row_of = [kinds.setdefault(row.tobytes(), len(kinds)) for row in self._rows]
        return {
            "columns": self._columns,
            "rows": [np.frombuffer(row, np.int32).tolist() for row in kinds],
            "row_of": row_of,
            "label_of": list(self._label_of),
            "copied": list(self._copied),
            "latest": dict(self._latest),
            "masks": [sorted(map(list, mask)) for mask in self.policies.masks],
            "views": [
                {
                    "query": view.running.name,
                    "clearances": {name: plain_clearance(x) for name, x in view.clearances.items()},
                    "columns": list(view.columns),
                    "greatest": dict(view.greatest),
                    "passed": view.passed,
                    "ended": view.ended,
                    "second": view.second,
                    "yielded": view.yielded,
                }
                for view in self.views
            ],
        }

    def restore(self, plain: Mapping[str, Any], running: Mapping[str, ContinuousQuery]) -> None:
        """Restores a checkpoint, without the views of queries that no longer run."""
        self._first.clear()
        self._of_tables.clear()
        self._alive = set(range(len(plain["row_of"])))
        self._columns = plain["columns"]
        self._rows = [np.array(plain["rows"][place], np.int32) for place in plain["row_of"]]
        self._label_of = list(plain["label_of"])
        self._copied = [(new, old) for new, old in plain["copied"]]
        self._latest = dict(plain.get("latest", {}))
        self.policies.restore([frozenset((stream, name) for stream, name in mask) for mask in plain["masks"]])
        self.views = [
            View(
                running[x["query"]],
                {name: clearance_of(found) for name, found in x["clearances"].items()},
                tuple(x["columns"]),
                dict(x["greatest"]),
                x["passed"],
                x["ended"],
                x["second"],
                x["yielded"],
            )
            for x in plain["views"]
            if x["query"] in running
        ]
        self._number_rows()

    # For the operators ------------------------------------------------------------------------------------------------

    def batch(self, *, last: bool = False) -> Visibility:
        """The visibility of the next batch. Instants become final up to each view's watermark; with the `last`, all."""
        targets: list[tuple[str, int]] = [("", 0)] * self._columns
        since, until = np.full(self._columns, NO_TIME), np.full(self._columns, NO_TIME)
        for view in self.views:
            reached = max(view.passed, (1 << 61) if last and not view.scratch.ended_early else view.watermark())
            for number, column in enumerate(view.columns):
                targets[column] = (view.running.name, number)
                since[column], until[column] = max(view.passed, BEGINNING + 1), max(reached, BEGINNING + 1)
            view.passed = reached
        copied, self._copied = tuple(self._copied), []
        masks = tuple(self.policies.masks)
        visibility = Visibility(tuple(targets), self.table, masks, since, until, self._levels, copied, self._limits)
        return replace(visibility, budgets=self._budgets())

    def _budgets(self) -> dict[int, Budget]:
        """The memory budget of each column; the blocks of a view share one budget."""
        own = [(view, Budget(self._limits.bytes, view.scratch.spent)) for view in self.views]
        return {column: budget for view, budget in own for column in view.columns}


def _level_text(label: Label) -> str:
    return ", ".join(map(str, sorted(label.levels, key=Level.sort_key))) or "U"
