"""Stateless blocks: each arriving tuple has its result at once, or none (SPEC.md, 4.2)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headgate.columns.sorting import Bools, Ints
from headgate.expressions.limits import Evaluate, Limited, Values, bounded, cost_of
from headgate.model.budget import LimitExceeded, Remembered, charge
from headgate.model.visibility import HIDDEN, Visibility
from headgate.operators.emit import NOTHING, Emitted
from headgate.operators.evaluation import BlockEmitted, judged
from headgate.operators.label_sets import LabelSets
from headgate.operators.profile import Counted, Profile, Step
from headgate.operators.program import TIME, VISIBILITY, Block, Program
from headgate.operators.reading import meets
from headgate.operators.threads import in_threads
from headgate.operators.tuples import Tuples, VisibleArrivals, as_numbers, of_numbers
from headgate.plan import expressions as e
from headgate.plan import nodes as n
from headgate.plan import steps
from headgate.plan.expressions import Expr
from headgate.plan.implication import orderly
from headgate.plan.merged import is_derivable, residue

_MANY = 4
_FEW = 8
_WHOLE = (e.Type.INT, e.Type.BIGINT)
_LARGE = 1 << 62
SEARCHED = 3_000
"""A ladder is searched if there are at most so many tuples for each of its bounds; else each bound is compared. With
250,000 tuples and 10 bounds, searching took 28.5 ms and comparing 20.9 ms; with 100 bounds, 196 and 268 ms; with 10,000
tuples and 500 bounds, 64 and 85 ms (`bench/derived.py`, best of 11)."""
MOST_KEPT = 256
"""View groups, and orders of selections, that are remembered from batch to batch."""

Group = dict[Block, list[int]]
"""The blocks of a view group, with their views."""


class Stateless:
    """The stateless blocks of a program. Views of one sharing class that see the same of the tuples of a batch form one
    view group: each selection, and each result that blocks have in common, is computed once for all of them."""

    def __init__(self, program: Program, evaluate: Evaluate) -> None:
        self._program = program
        self._evaluate = evaluate
        self._orders: dict[tuple[str, ...], _Order] = {}
        self._profiles: dict[tuple[int, ...], Profile] = {}
        self._before: dict[int, dict[str, Step]] = {}

    def results(self, arriving: pa.Table, visibility: Visibility) -> list[tuple[BlockEmitted, VisibleArrivals]]:
        """The results of all blocks, for tuples in the order of their arrival."""
        if visibility.copied:
            found = self.counted()
            self._before = {**self._before, **{new: found.of(old) for new, old in visibility.copied}}
        looking: dict[tuple[str, int], list[int]] = {}
        for view, target in enumerate(visibility.targets):
            looking.setdefault(target, []).append(view)
        blocks = [block for block in self._program.stateless if block.target in looking]
        if not blocks or not arriving.num_rows:
            return []
        tuples = Tuples(self._program, arriving)
        policies = np.ascontiguousarray(visibility.table[tuples.present].T)
        groups: dict[tuple[int, bytes], Group] = {}
        for block in blocks:
            sharing = self._program.class_numbers[block.query]
            for view in looking[block.target]:
                groups.setdefault((sharing, policies[view].tobytes()), {}).setdefault(block, []).append(view)
        by_visibility = _ByVisibility(tuples.numbers(VISIBILITY), tuples.present)
        profiles = {id(group): self._profile(group) for group in groups.values()}

        def results_of(group: Group) -> list[tuple[BlockEmitted, VisibleArrivals]]:
            view = next(iter(group.values()))[0]
            places = by_visibility.of(policies[view] != HIDDEN)
            if places is not None and not len(places):
                return []
            seen = VisibleArrivals(tuples, places, visibility, view)
            profile = profiles[id(group)]
            profile.begin_batch(len(group))
            selections = _Selections(self._order(group), seen, self._evaluate, profile)
            return [(x, seen) for x in _results(group, selections, visibility)]

        each = len(tuples) * len(groups) // len(blocks)  # many small steps are not worth threads
        return [x for some in in_threads(results_of, list(groups.values()), [each] * len(groups)) for x in some]

    def _order(self, group: Group) -> _Order:
        selections = {select.key: select for block in group if (select := block.passes[1]) is not None}
        query = next(iter(group)).query
        key = str(self._program.class_numbers[query]), *selections
        if key not in self._orders:
            if len(self._orders) >= MOST_KEPT:
                self._orders.clear()
            self._orders[key] = _Order.of(self._program.bases(query, selections.values()))
        return self._orders[key]

    # Counts -----------------------------------------------------------------------------------------------------------

    def _profile(self, group: Group) -> Profile:
        """What this view group did so far. Which views form a group depends on the tuples of a batch."""
        views = tuple(sorted(view for views in group.values() for view in views))
        if views not in self._profiles:
            if len(self._profiles) >= MOST_KEPT:
                found = self.counted()
                self._before = {**self._before, **{view: found.of(view) for some in self._profiles for view in some}}
                self._profiles.clear()
            self._profiles[views] = Profile()
        return self._profiles[views]

    def counted(self) -> Counted:
        """What was done for views, and for those that they were grouped with."""
        return Counted(self._before, [(views, profile.copy()) for views, profile in self._profiles.items()])


class _ByVisibility:
    """The positions of tuples by their visibility rows: a view that sees few of many tuples does not scan all of
    them."""

    def __init__(self, visibilities: Ints, present: Ints) -> None:
        self._number = visibilities if len(present) == present[-1] + 1 else _places_in(present)[visibilities]
        self._present = len(present)

    def of(self, seen: Bools) -> Ints | None:
        """The positions of tuples with these visibility rows, in order; None for all."""
        which = np.flatnonzero(seen).tolist()
        if len(which) == len(seen):
            return None
        if int(self._sizes[which].sum()) > len(self._number) // _MANY:
            return np.flatnonzero(seen[self._number])
        parts = [self._order[self._ends[at] - self._sizes[at] : self._ends[at]] for at in which]
        if not parts:
            return np.empty(0, np.int64)
        return parts[0] if len(parts) == 1 else np.sort(np.concatenate(parts))

    @cached_property
    def _sizes(self) -> Ints:
        return np.bincount(self._number, minlength=self._present)

    @cached_property
    def _ends(self) -> Ints:
        return np.cumsum(self._sizes)

    @cached_property
    def _order(self) -> Ints:
        """Positions ordered by visibility row."""
        return np.argsort(self._number.astype(np.uint16) if self._present <= 1 << 16 else self._number, kind="stable")


def _places_in(present: Ints) -> Ints:
    return np.searchsorted(present, np.arange(present[-1] + 1))


@dataclass(frozen=True)
class _Planned:
    """How a selection is evaluated.

    place: its place among the selections of the view group, each of which comes after its base
    step: the name of its step
    base: the selection that it is computed from
    residue: the conditions that the tuples of its base need not meet
    width: the bytes that each tuple of the stream is charged; None: that depends on its values
    ladder: the bounds of a ladder and the place of this selection among them. A ladder has bounds of one column from
        one side, whole numbers, each computed from the one before it. One search can tell for each tuple how many of
        them it meets.
    """

    place: int
    step: str
    base: n.Select | None
    residue: frozenset[Expr]
    width: int | None
    ladder: tuple[tuple[e.Compare, ...], int] = ((), 0)

    @classmethod
    def of(cls, place: int, select: n.Select, base: n.Select | None) -> _Planned:
        width = cost_of(select.conditions, {}, 1) if is_derivable(select) else None
        return cls(place, steps.reading(select), base, residue(select, base), width)


@dataclass(frozen=True)
class _Order:
    """The selections of a view group by key, each after the one that it is computed from."""

    selections: Mapping[str, _Planned]

    @classmethod
    def of(cls, bases: Sequence[tuple[n.Select, n.Select | None]]) -> _Order:
        found = {select.key: _Planned.of(place, select, base) for place, (select, base) in enumerate(bases)}
        chains: dict[str, list[n.Select]] = {}
        for select, base in bases:
            if _whole_bound(select) is None:
                continue
            chain = chains.get(base.key) if base is not None else None
            if chain is None or chain[-1] != base or _side(select) != _side(base):
                chain = []
            chain.append(select)
            chains[select.key] = chain
        for chain in {id(chain): chain for chain in chains.values() if len(chain) >= _MANY}.values():
            bounds = tuple(bound for select in chain if (bound := _whole_bound(select)) is not None)
            found |= {x.key: replace(found[x.key], ladder=(bounds, place)) for place, x in enumerate(chain)}
        return cls(found)


def _whole_bound(select: n.Select) -> e.Compare | None:
    """The condition of a selection that has just one, which bounds a column of whole numbers from one side."""
    if len(select.conditions) == 1:
        (condition,) = select.conditions
        match condition:
            case e.Compare("<" | "<=" | ">" | ">=", e.Column() as column, e.Literal(int(value)) as limit):
                if {column.type, limit.type} <= {*_WHOLE} and orderly(column.type, limit) and abs(value) < _LARGE:
                    return condition
    return None


def _side(select: n.Select) -> tuple[str, str]:
    bound = _whole_bound(select)
    return ("", "") if bound is None else (bound.left.text, bound.operator[0])


class _Selections:
    """The rows of the selections of a view group. Each selection is evaluated once, over the rows of the one that it is
    computed from, and charged to all who read it as if it were evaluated over all tuples."""

    def __init__(self, order: _Order, seen: VisibleArrivals, evaluate: Evaluate, profile: Profile) -> None:
        self.known = Remembered()
        self.profile = profile
        self._order = order
        self._seen = seen
        self._evaluate = evaluate
        self._whole: dict[str, _Rows] = {}
        self._rows: dict[str, _Rows] = {}

    def place(self, block: Block) -> int:
        """Bases come first."""
        select = block.passes[1]
        return -1 if select is None else self._order.selections[select.key].place

    def rows(self, block: Block) -> _Rows:
        _, select, source = block.passes
        whole = self._all(source)
        if select is None:
            return whole
        return self.known.once(select.key, lambda: self._selected(select, whole))

    def _all(self, source: n.Source) -> _Rows:
        if source.stream not in self._whole:
            with self.profile.running(steps.reading(source)) as step:
                places = np.flatnonzero(self._seen.of_stream(source.stream))
                step.count(len(places), len(places))
            self._whole[source.stream] = _Rows(self._seen, source.stream, places, self._evaluate)
        return self._whole[source.stream]

    def _selected(self, select: n.Select, whole: _Rows) -> _Rows:
        planned = self._order.selections[select.key]
        base, rest = planned.base, planned.residue
        while base is not None and base.key not in self._rows:  # those who read it have exceeded their limits
            base = self._order.selections[base.key].base
            rest = residue(select, base)
        start = whole if base is None else self._rows[base.key]
        with self.profile.running(planned.step) as step:
            if planned.width is not None:
                charge(planned.width * len(whole.places))
                found = self._derived(planned, start, rest)
            else:
                found = start.meeting(select.conditions, charged=True)
            step.base = "" if base is None else self._order.selections[base.key].step
            step.count(len(whole.places), len(found.places), len(start.places))
        self._rows[select.key] = found
        return found

    def _derived(self, planned: _Planned, start: _Rows, conditions: frozenset[Expr]) -> _Rows:
        bounds, place = planned.ladder
        if place and start.climbed is not None and start.climbed[0] is bounds:
            return start.where(start.climbed[1] > place)
        found = start.meeting(conditions)
        if bounds and not place and len(found.places) <= SEARCHED * len(bounds):
            found = found.climbing(bounds)
        return found


def _results(group: Group, selections: _Selections, visibility: Visibility) -> Iterator[BlockEmitted]:
    """The results of each block, if any, or the limit that it exceeds. Equal blocks have their results in common."""
    for block in sorted(group, key=selections.place):
        yielded, exceeded, meter = NOTHING, "", visibility.meter(group[block])
        try:
            with Limited(visibility.limits, meter):
                rows = selections.rows(block)
                yielded = selections.known.once(block.top.key, _made(block, rows, selections.profile))
        except LimitExceeded as error:
            exceeded = str(error)
        yield from judged(block, group[block], yielded, meter, exceeded)


def _made(block: Block, rows: _Rows, profile: Profile) -> Callable[[], Emitted]:
    def make() -> Emitted:
        with profile.running(steps.results(block.top)) as step:
            step.count(len(rows.places), len(rows.places))
            return rows.yielded(block.passes[0]) if len(rows.places) else NOTHING

    return make


class _Rows:
    """Some tuples of one stream as a view group sees them; each column is read once. A selection of few tuples is read
    from `within` (the rows it was chosen from, and its positions there), which lie close together, and not from all
    tuples."""

    def __init__(
        self,
        seen: VisibleArrivals,
        stream: str,
        places: Ints,
        evaluate: Evaluate,
        within: tuple[_Rows, Ints] | None = None,
        climbed: tuple[tuple[e.Compare, ...], Ints] | None = None,
    ) -> None:
        self._seen = seen
        self._stream = stream
        self._evaluate = evaluate
        self._within = within
        self._columns: dict[str, pa.Array] = {}
        self._numbers: dict[str, npt.NDArray[Any] | None] = {}
        """Columns as they lie in memory; None: they hold NULLs, or values that are no numbers."""
        self.places = places
        self.climbed = climbed
        """A ladder, and how many of its bounds each row meets."""

    def meeting(self, conditions: frozenset[Expr], *, charged: bool = False) -> _Rows:
        """The rows that meet all conditions."""
        evaluate = bounded(self._evaluate) if charged else self._evaluate
        return self.where(meets(evaluate, conditions, self._values(conditions), len(self.places)))

    def climbing(self, ladder: tuple[e.Compare, ...]) -> _Rows:
        """The same rows with the number of bounds, in order, that each meets; every row meets the first."""
        column, sign = ladder[0].left, 1 if ladder[0].operator[0] == ">" else -1
        assert isinstance(column, e.Column)  # noqa: S101  a ladder bounds a column
        values = self._column(column).to_numpy(zero_copy_only=False).astype(np.int64)
        least = [sign * x.right.value + (x.operator in (">", "<")) for x in ladder]  # type: ignore[attr-defined]
        met = np.searchsorted(np.array(least, np.int64), sign * np.clip(values, -_LARGE, _LARGE), side="right")
        return _Rows(self._seen, self._stream, self.places, self._evaluate, self._within, (ladder, met))

    def where(self, met: Bools) -> _Rows:
        if met.all():
            return self
        within = None
        if self._within is not None:
            within = self._within[0], self._within[1][met]
        elif len(self.places) * _FEW <= len(self._seen):
            within = self, np.flatnonzero(met)
        climbed = None if self.climbed is None else (self.climbed[0], self.climbed[1][met])
        return _Rows(self._seen, self._stream, self.places[met], self._evaluate, within, climbed)

    def yielded(self, items: Sequence[Expr]) -> Emitted:
        computed = [item for item in items if not isinstance(item, e.Column)]
        names = [item.name for item in items if isinstance(item, e.Column)]
        again = [name for number, name in enumerate(names) if name in names[:number]]
        charge(sum(self._seen.size(self._stream, name, self.places) for name in again))
        answers = iter(bounded(self._evaluate)(computed, self._values(computed), len(self.places)) if computed else ())
        values = tuple(self._column(item) if isinstance(item, e.Column) else next(answers) for item in items)
        return Emitted(self._times, np.empty(0, np.int64), (self.places,), values, self._labels)

    @cached_property
    def _times(self) -> Ints:
        if self._within is not None:
            rows, at = self._within
            return rows._times[at]
        return self._seen.numbers(TIME, self.places)

    @cached_property
    def _labels(self) -> LabelSets:
        if self._within is not None:
            rows, at = self._within
            return rows._labels.at(at)
        return self._seen.labels_at(self.places)

    def _values(self, exprs: Iterable[Expr]) -> Values:
        return {column: self._column(column) for expr in exprs for column in expr.columns}

    def _column(self, column: e.Column) -> pa.Array:
        found = self._columns.get(column.name)
        if found is None:
            if self._within is not None:
                rows, at = self._within
                found = rows._taken(column, at)
            else:
                found = self._seen.column(self._stream, column.name, self.places)
            self._columns[column.name] = found
        return found

    def _taken(self, column: e.Column, at: Ints) -> pa.Array:
        """A column of some of the rows. Arrow takes longer than numpy if these are few."""
        array = self._column(column)
        if column.name not in self._numbers:
            self._numbers[column.name] = as_numbers(array)
        numbers = self._numbers[column.name]
        return array.take(pa.array(at)) if numbers is None else of_numbers(numbers[at], array.type)
