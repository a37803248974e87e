"""The visibility index: decides on arrival which views of a processor see a tuple (SPEC.md, 4.3).

Each tuple gets the number of a *visibility row*, which depends on its label and on the rights at the time of arrival.
The row has a column for each block of each view: HIDDEN, or the mask of the columns that are hidden. A view is shared
by the subscribers that began together and have had the same rights since. A change of rights replaces rows by others;
what a view has lost stays lost. Tuples of tables have rows of their own, which are changed in place: a view always sees
of a table what the current rights permit.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from headgate.columns.sorting import Bools, Constant, Ints, dense, repeated, same
from headgate.labels import Clearance, Label, Level, Rules
from headgate.model.budget import Budget
from headgate.model.limits import Limits
from headgate.model.moments import END
from headgate.model.query import ContinuousQuery
from headgate.model.times import BEGINNING, NO_TIME
from headgate.model.tuples import TupleBatch
from headgate.model.view import ReaderTime, View, clearance_of, plain_clearance, reads
from headgate.model.visibility import HIDDEN, Visibility, VisibilityRows
from headgate.plan.secure import Mode
from headgate.visibility.lateness import ArrivalTimes
from headgate.visibility.numbering import Numbering
from headgate.visibility.policy import VisibilityPolicy
from headgate.visibility.row_table import Row, VisibilityTable
from headgate.visibility.splits import SplitTimes
from headgate.visibility.watermarks import Coming, Missed, Moments, move

_NONE = np.empty(0, np.int64)


@dataclass(frozen=True)
class ArrivalMasks:
    """Masks of the tuples of a batch: which of them any view sees, late or not, and which of them are late."""

    seen: Bools
    late: Bools

    def after(self, other: ArrivalMasks | None) -> ArrivalMasks:
        """The masks of tuples of which others, of the same stream, came before."""
        if other is None:
            return self
        return ArrivalMasks(np.concatenate([other.seen, self.seen]), np.concatenate([other.late, self.late]))

    def with_(self, other: ArrivalMasks) -> ArrivalMasks:
        """Combines the masks of the same tuples in two processors."""
        return ArrivalMasks(self.seen | other.seen, self.late | other.late)


class VisibilityIndex:
    """The views of a processor and the visibility rows of its tuples."""

    def __init__(self, rules: Rules, limits: Limits | None = None) -> None:
        self.policies = VisibilityPolicy(rules)
        self._limits = limits or Limits()
        self.views: list[View] = []
        self._labels: dict[int, Label] = {}
        self._rows = VisibilityTable()
        self._levels: dict[int, str] = {}
        self._first: dict[tuple[str, int], int] = {}
        self._of_tables: dict[tuple[str, int], int] = {}
        self._copied: list[tuple[int, int]] = []
        self._same: dict[str, Constant] = {}
        self._declared: Mapping[str, Label] = {}
        self._latest: dict[str, int] = {}
        self._floors: dict[str, int] = {}
        self.arrival_masks: dict[str, ArrivalMasks] = {}
        """The fate of the tuples that arrived last, by source stream."""

    def __len__(self) -> int:
        """The number of visibility rows."""
        return len(self._rows)

    # Views ------------------------------------------------------------------------------------------------------------

    def add_view(self, running: ContinuousQuery, clearances: Mapping[str, Clearance | None]) -> View:
        """Adds a view that begins now, with empty state."""
        view = View(running, dict(clearances), self._rows.add_columns(len(running.query.blocks)))
        self.views.append(view)
        self._see_first(view)
        self.open(view)
        return view

    def split_view(self, view: View, subscribers: Collection[str]) -> View:
        """Moves some subscribers of a view to a view of their own, which has seen the same tuples."""
        clearances = {name: view.clearances.pop(name) for name in subscribers}
        new = self.add_view(view.running, clearances)
        new.greatest, new.passed, new.ended = dict(view.greatest), view.passed, view.ended
        new.second, new.yielded, new.floors = view.second, view.yielded, dict(view.floors)
        new.open, new.warned = view.open, view.warned
        self._copied += zip(new.columns, view.columns, strict=True)
        self._rows.copy_columns(view.columns, new.columns)
        return new

    @property
    def copied(self) -> dict[int, int]:
        """The columns of views that parted since the last batch, with those that they were copied from."""
        return dict(self._copied)

    def remove(self, view: View) -> None:
        """Removes a view that has no subscribers left."""
        self.views = [x for x in self.views if x is not view]
        self.policies.forget(view)
        self._first.clear()

    def change(self, view: View, clearances: Mapping[str, Clearance | None]) -> Ints:
        """Applies new rights to the subscribers of a view; returns for each visibility row the row that replaces it."""
        view.clearances |= clearances
        self.policies.forget(view)
        now = {label: self.policies.sees(view, self._labels[label]) for label in self._rows.labels_alive}

        def change(label: int, row: Row) -> None:
            for column, mask in zip(view.columns, now[label], strict=True):
                row[column] = self.policies.both(int(row[column]), mask)

        after = self._rows.replace(change)
        self._see_first(view)
        self.open(view)
        return after

    def declare(self, labels: Mapping[str, Label]) -> None:
        """Takes the label that all tuples of a stream have at least, by stream. Afterwards `open` decides anew."""
        self._declared = labels

    def open(self, view: View, closed: Mapping[str, Collection[str]] | None = None) -> None:
        """Decides which streams hold the watermark of a view back: those that its subscribers may read tuples of.
        `closed` are outputs of which nothing can come, by subscriber."""
        exact = view.running.mode == Mode.EXACT
        names = [*view.clearances][: 1 if exact else None]  # all subscribers of an exact view have the same rights
        found = self.policies.open(view, names, self._declared)
        each = {name: streams.difference((closed or {}).get(name, ())) for name, streams in found.items()}
        view.open = frozenset[str]().union(*each.values())
        if not exact:
            readers = dict.fromkeys((*view.own, *view.readers))
            before = {name: view.own.get(name, ReaderTime()) for name in readers if name in each}
            view.own = {name: replace(time, open=each[name]) for name, time in before.items()}

    def _see_first(self, view: View) -> None:
        """Recomputes visibility after a rights change: of tables, and of tuples that arrive from now on."""
        for (stream, label), number in self._of_tables.items():
            self._rows.set_of_table(number, view.columns, self.policies.sees(view, self._labels[label], stream))
        for (stream, label), number in self._first.items():
            row = self._rows.row(number)
            row[list(view.columns)] = self.policies.sees(view, self._labels[label], stream)
            self._first[stream, label] = self._rows.number_of(label, row)

    def retain_rows(self, used: Ints) -> Ints:
        """Removes all visibility rows but the used ones and those of tables; returns the new number of each."""
        after = np.zeros(len(self._rows), np.int64)
        places = self._rows.retain(used)
        self._first = {key: places[number] for key, number in self._first.items() if number in places}
        self._of_tables = {key: places[number] for key, number in self._of_tables.items()}
        after[[*places]] = [*places.values()]
        return after

    @property
    def labels_held(self) -> set[int]:
        return self._rows.labels

    def forget_labels(self, kept: Mapping[int, Label]) -> None:
        """Removes all labels but these. The caller removes unused visibility rows first (`retain_rows`)."""
        self._labels = dict(kept)
        self._levels = {number: level for number, level in self._levels.items() if number in kept}

    # Visibility of tuples ---------------------------------------------------------------------------------------------

    def add_labels(self, labels: Mapping[int, Label]) -> None:
        new = {number: label for number, label in labels.items() if self._labels.get(number) != label}
        self._levels |= {number: _level_text(label) for number, label in new.items()}
        self._labels |= labels

    def arrive(self, arrivals: Sequence[TupleBatch], moments: Moments, clock: int | None = None) -> list[Ints]:
        """Returns the visibility rows of arriving tuples, stream by stream, each in order of arrival. Advances the
        watermarks of the views that see them, by tuples never ahead of the `clock`."""
        self.arrival_masks = {}
        batch = replace(moments, permits=self._permits)
        known = [self._coming(x, clock) for x in arrivals]
        coming = [x for x, _, _ in known]
        missed: list[list[Missed]] = [[] for _ in coming]
        for view in self.views:
            for found, more in zip(missed, move(view, coming, batch), strict=True):
                found += more
        self._raise_floors(moments.floors)
        return [
            self._rows_of(x.stream, numbers, kind, found)
            for (x, numbers, kind), found in zip(known, missed, strict=True)
        ]

    def rows_of_labels(self, stream: str, labels: Iterable[int]) -> dict[int, int]:
        """The visibility row of tuples of a stream by label, if they arrive in time."""
        return {label: self._first_visibility(stream, label) for label in labels}

    def rows_of_results(self, stream: str, labels: Iterable[int], views: tuple[View, ...]) -> dict[int, int]:
        """The visibility row of results that another query made for these views, by label; of labels that one of them
        sees. Such tuples are never late."""
        rows = {x: self._for_some(self._first_visibility(stream, x), views) for x in labels}
        return {label: row for label, row in rows.items() if (self.table[row] != HIDDEN).any()}

    def arrive_splits(self, stream: str, times: SplitTimes, floors: Mapping[str, int]) -> None:
        """As `arrive`, for the tuples of one source stream that tasks have read; each arrives in time. Raises MayBeLate
        if that is not certain; then the index must not be used any more."""
        moments = Moments(0, floors=floors, known=False)
        self.arrival_masks = {}
        numbers = np.array([self._first_visibility(stream, label) for label in times.labels.tolist()], np.int64)
        visible = np.asarray(self.table[numbers] != HIDDEN, np.bool_)
        self._late(stream, times, np.asarray(visible.any(axis=1), np.bool_))
        coming = [Coming(stream, times, _NONE, times.labels, visible, derived=False)]
        for view in self.views:
            move(view, coming, moments)
        self._raise_floors(moments.floors)

    def pass_time(self, floors: Mapping[str, int]) -> None:
        """Takes the watermarks that the clock gives streams, without a batch."""
        self._raise_floors(floors)
        for view in (view for view in self.views if not view.ended):
            for stream in view.timed & floors.keys():
                view.floors[stream] = max(view.floors.get(stream, NO_TIME), floors[stream])

    def _raise_floors(self, floors: Mapping[str, int]) -> None:
        for stream, floor in floors.items():
            self._floors[stream] = max(floor, self._floors.get(stream, NO_TIME))

    def _coming(self, arrivals: TupleBatch, clock: int | None) -> tuple[Coming, Ints, Ints]:
        """The tuples, the visibility rows of their kinds, and the kind of each."""
        stream, labels, only = arrivals.stream, arrivals.labels, arrivals.views
        kinds, kind = (labels[:1], repeated(0, len(labels))) if len(labels) and same(labels) else dense(labels)
        numbers = np.array([self._first_visibility(stream, label) for label in kinds.tolist()], np.int64)
        if only is not None:
            numbers = np.array([self._for_some(number, only) for number in numbers.tolist()], np.int64)
        times = ArrivalTimes(arrivals.times, kind, len(numbers), clock)
        visible = np.asarray(self.table[numbers] != HIDDEN, np.bool_)
        if only is None:
            seen = np.asarray(visible.any(axis=1), np.bool_)
            masks = ArrivalMasks(times.those(seen), self._late(stream, times, seen))
            self.arrival_masks[stream] = masks.after(self.arrival_masks.get(stream))
        moments = np.arange(len(labels)) if arrivals.moments is None else arrivals.moments
        return Coming(stream, times, moments, kinds, visible, only is not None), numbers, kind

    def _rows_of(self, stream: str, numbers: Ints, kind: Ints, missed: list[Missed]) -> Ints:
        if not len(kind):
            return np.empty(0, np.int64)
        if missed:
            return self._without(numbers, kind, missed)
        if len(numbers) == 1:
            return self._same.setdefault(stream, Constant()).of(int(numbers[0]), len(kind))
        return numbers[kind]

    def _permits(self, view: View, name: str, coming: Coming) -> Bools:
        """The kinds of tuples that one subscriber of a view may see."""
        rules, labels = self.policies.rules, [self._labels[number] for number in coming.kinds.tolist()]
        clearance = view.clearance(name, rules)
        if clearance is None:
            return np.zeros(len(labels), np.bool_)
        blocks = [x for x in view.running.query.blocks if coming.stream in x.streams]
        return np.array([any(reads(rules, x, label, clearance) for x in blocks) for label in labels], np.bool_)

    def of_table(self, table: str, labels: Ints) -> Ints:
        """The visibility rows of the tuples of a table; tables advance no watermark."""
        kinds, kind = dense(labels)
        for label in kinds.tolist():
            if (table, label) not in self._of_tables:
                self._of_tables[table, label] = self._rows.add_of_table(label, self._seen_now(table, label))
        numbers = np.array([self._of_tables[table, label] for label in kinds.tolist()], np.int64)
        return numbers[kind] if len(kinds) else np.empty(0, np.int64)

    @property
    def levels(self) -> Mapping[int, str]:
        """The levels of each label, as text."""
        return self._levels

    def seen(self, visibilities: Ints) -> Bools | None:
        """Which tuples any view sees; None: all of them."""
        visible = (self.table != HIDDEN).any(axis=1)
        return None if visible.all() else np.asarray(visible[visibilities], np.bool_)

    @property
    def table(self) -> VisibilityRows:
        """All visibility rows as one table."""
        return self._rows.whole

    def seen_by(self, target: tuple[str, int], stream: str, labels: Sequence[int]) -> list[int]:
        """The labels whose tuples any view of this block sees."""
        columns = [view.columns[target[1]] for view in self.views if view.running.name == target[0]]
        if not columns or not labels:
            return []
        visibilities = np.array([self._first_visibility(stream, label) for label in labels], np.int64)
        seen = (self.table[visibilities][:, columns] != HIDDEN).any(axis=1)
        return [label for label, anybody in zip(labels, seen.tolist(), strict=True) if anybody]

    def _late(self, stream: str, arrived: ArrivalTimes | SplitTimes, seen: Bools) -> Bools:
        """The tuples that would be late for a view that sees every tuple that any view sees. The owner of the stream
        gets this count; it reveals nothing about single subscribers."""
        before, lateness = self._latest.get(stream, NO_TIME), self._lateness(stream)
        reached = max(before, self._floors.get(stream, NO_TIME) + lateness)
        late = arrived.late(seen, reached, lateness, 1 << 62) if seen.any() else None
        if seen.any():
            self._latest[stream] = max(before, arrived.latest(seen))
        return np.zeros(len(arrived.those(seen)), np.bool_) if late is None else late

    def _lateness(self, stream: str) -> int:
        return max((view.running.lateness.get(stream, 0) for view in self.views), default=0)

    def _without(self, numbers: Ints, kind: Ints, found: list[Missed]) -> Ints:
        which = kind
        for _, missed in found:
            which = dense(which * 2 + missed)[1]
        example = np.zeros(int(which.max()) + 1, np.int64)
        example[which] = np.arange(len(which))
        visibilities = np.empty(len(example), np.int64)
        for pattern, at in enumerate(example.tolist()):
            number = int(numbers[kind[at]])
            row = self._rows.row(number)
            for columns, missed in found:
                if missed[at]:
                    row[list(columns)] = HIDDEN
            visibilities[pattern] = self._rows.number_of(self._rows.label_of(number), row)
        return visibilities[which]

    def _first_visibility(self, stream: str, label: int) -> int:
        """The visibility row of a tuple that arrives in time; the same until rights change."""
        key = stream, label
        if key not in self._first:
            self._first[key] = self._rows.number_of(label, self._seen_now(stream, label))
        return self._first[key]

    def _seen_now(self, stream: str, label: int) -> Row:
        row = [HIDDEN] * self._rows.columns
        for view in self.views:
            if stream in view.running.streams:
                row[view.columns[0] : view.columns[-1] + 1] = self.policies.sees(view, self._labels[label], stream)
        return np.array(row, np.int32)

    def _for_some(self, number: int, views: tuple[View, ...]) -> int:
        """The same row, with all views but these HIDDEN. Views that belong to another stage are ignored: their column
        numbers mean other columns in this index."""
        mine = {id(view) for view in self.views}
        whole = self._rows.row(number)
        row = np.zeros_like(whole)
        shown = [column for view in views if id(view) in mine for column in view.columns]
        row[shown] = whole[shown]
        return self._rows.number_of(self._rows.label_of(number), row)

    # Checkpoint and restore -------------------------------------------------------------------------------------------

    def plain(self) -> dict[str, Any]:
        """The state as plain values, for a checkpoint."""
        return {
            **self._rows.plain(),
            "copied": list(self._copied),
            "latest": dict(self._latest),
            "floors": dict(self._floors),
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
                    "warned": sorted(view.warned),
                    "floors": dict(view.floors),
                    "own": {name: [dict(x.greatest), x.passed] for name, x in view.own.items()},
                }
                for view in self.views
            ],
        }

    def restore(self, plain: Mapping[str, Any], running: Mapping[str, ContinuousQuery]) -> None:
        """Restores a checkpoint, without the views of queries that no longer run."""
        self._first.clear()
        self._of_tables.clear()
        self._rows = VisibilityTable.of(plain)
        self._copied = [(new, old) for new, old in plain["copied"]]
        self._latest, self._floors = dict(plain["latest"]), dict(plain["floors"])
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
                floors=dict(x["floors"]),
                warned=frozenset(x.get("warned", ())),
                own={name: ReaderTime(dict(greatest), passed) for name, (greatest, passed) in x["own"].items()},
            )
            for x in plain["views"]
            if x["query"] in running
        ]
        for view in self.views:
            self.open(view)

    @property
    def identities(self) -> Ints:
        """The identity of each visibility row, by its number."""
        return self._rows.identities

    def numbers_of(self, identities: Ints) -> Ints:
        """The numbers of the rows that rows of these identities are now; -1 where none is known any more."""
        return self.numbering()(identities)

    def numbering(self) -> Numbering:
        """The same for later: as it is now."""
        return self._rows.numbering()

    # For the operators ------------------------------------------------------------------------------------------------

    def batch(self, *, last: bool = False) -> Visibility:
        """The visibility of the next batch. Instants become final up to each view's watermark; with the `last`, all."""
        before = {id(view): view.passed for view in self.views}
        for view in self.views:
            reached = END if last and not view.scratch.ended_early else view.watermark()
            view.passed = max(view.passed, reached)
        copied, self._copied = tuple(self._copied), []
        return replace(self._visibility_since(before), copied=copied, budgets=self._budgets())

    def after_batch(self) -> Visibility:
        """The visibility after the last batch: nothing becomes final."""
        return self._visibility_since({id(view): view.passed for view in self.views})

    def _visibility_since(self, before: Mapping[int, int]) -> Visibility:
        targets: list[tuple[str, int]] = [("", 0)] * self._rows.columns
        since, until = np.full(self._rows.columns, NO_TIME), np.full(self._rows.columns, NO_TIME)
        for view in self.views:
            for number, column in enumerate(view.columns):
                targets[column] = (view.running.name, number)
                since[column] = max(before[id(view)], BEGINNING + 1)
                until[column] = max(view.passed, BEGINNING + 1)
        masks = tuple(self.policies.masks)
        return Visibility(tuple(targets), self.table, masks, since, until, self._levels, limits=self._limits)

    def _budgets(self) -> dict[int, Budget]:
        """The budget of each column; the blocks of a view share one budget."""
        own = [(view, Budget(self._limits, view.scratch.spent)) for view in self.views]
        return {column: budget for view, budget in own for column in view.columns}


def _level_text(label: Label) -> str:
    return ", ".join(map(str, sorted(label.levels, key=Level.sort_key))) or "U"
