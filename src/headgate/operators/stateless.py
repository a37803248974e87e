"""Stateless blocks: each arriving tuple has its result at once, or none (SPEC.md, 4.2)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from headgate.columns.sorting import Bools, Ints
from headgate.expressions.limits import Evaluate, Values, bounded, limited
from headgate.model.budget import LimitExceeded, charge
from headgate.model.visibility import HIDDEN, Visibility
from headgate.operators.emit import NOTHING, Emitted
from headgate.operators.evaluation import BlockEmitted, judged
from headgate.operators.label_sets import LabelSets
from headgate.operators.program import TIME, VISIBILITY, Block, Program
from headgate.operators.reading import meets
from headgate.operators.threads import in_threads
from headgate.operators.tuples import Tuples, VisibleTuples
from headgate.plan import expressions as e
from headgate.plan.expressions import Expr

_MANY = 4
_FEW = 8
_WHOLE = (e.Type.INT, e.Type.BIGINT)
_LARGE = 1 << 62


def stateless_results(
    program: Program, arriving: pa.Table, visibility: Visibility, evaluate: Evaluate
) -> list[tuple[BlockEmitted, VisibleTuples]]:
    """The results of all stateless blocks, for tuples in the order of their arrival. Views that see the same of these
    tuples form one view group: expressions that their blocks have in common are computed once."""
    looking: dict[tuple[str, int], list[int]] = {}
    for view, target in enumerate(visibility.targets):
        looking.setdefault(target, []).append(view)
    blocks = [block for block in program.passing if block.target in looking]
    if not blocks or not arriving.num_rows:
        return []
    tuples = Tuples(program, arriving)
    policies = np.ascontiguousarray(visibility.table[tuples.present].T)
    classes: dict[bytes, dict[Block, list[int]]] = {}
    for block in blocks:
        for view in looking[block.target]:
            classes.setdefault(policies[view].tobytes(), {}).setdefault(block, []).append(view)
    by_sight = _BySight(tuples.numbers(VISIBILITY), tuples.present)

    def results_of(class_: dict[Block, list[int]]) -> list[tuple[BlockEmitted, VisibleTuples]]:
        view = next(iter(class_.values()))[0]
        places = by_sight.of(policies[view] != HIDDEN)
        if places is not None and not len(places):
            return []
        seen = VisibleTuples(tuples, places, visibility, view)
        return [(x, seen) for x in _results(class_, seen, bounded(evaluate), visibility)]

    each = len(tuples) * len(classes) // len(blocks)  # many small steps are not worth threads
    return [x for some in in_threads(results_of, list(classes.values()), [each] * len(classes)) for x in some]


class _BySight:
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


def _results(
    class_: Mapping[Block, list[int]], seen: VisibleTuples, evaluate: Evaluate, visibility: Visibility
) -> Iterator[BlockEmitted]:
    """The results of each block, if any, or the limit that it exceeds.

    Blocks that bound one column from the same side are evaluated from the weakest bound to the strongest. A tuple that
    meets a bound meets all weaker ones, so each step reads only the tuples that the step before it left. Where the
    bounds are whole numbers, one search after the first step tells how many bounds each tuple meets.
    """
    whole: dict[str, _Rows] = {}
    for (stream, *_), ladder in _ladders(list(class_)).items():
        if stream not in whole:
            whole[stream] = _Rows(seen, stream, np.flatnonzero(seen.of_stream(stream)), evaluate)
        rows = whole[stream]
        climbed: Ints | None = None
        for number, (bound, block) in enumerate(ladder):
            items, conditions, _ = block.passes
            yielded, exceeded, meter = NOTHING, "", visibility.meter(class_[block])
            try:
                with limited(visibility.limits, meter):
                    if bound is not None:
                        conditions -= {bound}
                        if climbed is None:
                            rows = rows.meeting(frozenset({bound}))
                            climbed = rows.climbed([x for x, _ in ladder if x])
                        else:
                            met = climbed > number
                            rows, climbed = rows.where(met), climbed[met]
                    chosen = rows.meeting(conditions)
                    if len(chosen.places):
                        yielded = chosen.yielded(items)
            except LimitExceeded as error:
                exceeded = str(error)
            yield from judged(block, class_[block], yielded, meter, exceeded)


def _ladders(blocks: Sequence[Block]) -> dict[tuple[str, ...], list[tuple[e.Compare | None, Block]]]:
    """Blocks by their stream, bounded column and side, the weakest bound first."""
    found: dict[tuple[str, ...], list[tuple[e.Compare | None, Block]]] = {}
    for block in blocks:
        bound, (_, _, stream) = block.bound, block.passes
        key = () if bound is None else (bound.left.text, bound.operator[0])
        found.setdefault((stream, *key), []).append((bound, block))
    for (_, *side), ladder in found.items():
        ladder.sort(key=lambda step: _place(step[0]), reverse=side[1:] == ["<"])
    return found


def _place(bound: e.Compare | None) -> tuple[Any, ...]:
    """The sort key of a bound: `>= 5` before `> 5`, and (from the other end) `<= 5` before `< 5`."""
    return () if bound is None else (bound.right.value, bound.operator in (">", "<="))  # type: ignore[attr-defined]


class _Rows:
    """Some tuples of one stream as a view group sees them; each column is read once. A selection of few tuples is read
    from `within` (the rows it was chosen from, and its positions there), which lie close together, and not from all
    tuples."""

    def __init__(
        self,
        seen: VisibleTuples,
        stream: str,
        places: Ints,
        evaluate: Evaluate,
        within: tuple[_Rows, Ints] | None = None,
    ) -> None:
        self._seen = seen
        self._stream = stream
        self._evaluate = evaluate
        self._within = within
        self._columns: dict[e.Column, pa.Array] = {}
        self.places = places

    def meeting(self, conditions: frozenset[Expr]) -> _Rows:
        """The rows that meet all conditions."""
        if not conditions:
            return self
        return self.where(meets(self._evaluate, conditions, self._values(conditions), len(self.places)))

    def climbed(self, ladder: Sequence[e.Compare]) -> Ints | None:
        """How many bounds, in order, each row meets; every row meets the first. None if that cannot be computed at
        once."""
        bounds = [x.right.value for x in ladder if isinstance(x.right, e.Literal) and x.right.type in _WHOLE]
        column = ladder[0].left
        if len(ladder) < _MANY or len(bounds) < len(ladder) or not isinstance(column, e.Column):
            return None
        if column.type not in _WHOLE or max(map(abs, bounds)) >= _LARGE:  # type: ignore[arg-type]
            return None
        values = self._column(column).to_numpy(zero_copy_only=False).astype(np.int64)
        sign = 1 if ladder[0].operator[0] == ">" else -1
        least = [sign * bound + (x.operator in (">", "<")) for x, bound in zip(ladder, bounds, strict=True)]  # type: ignore[operator]
        steps: Ints = np.searchsorted(np.array(least, np.int64), sign * np.clip(values, -_LARGE, _LARGE), side="right")
        return steps

    def where(self, met: Bools) -> _Rows:
        if met.all():
            return self
        within = None
        if self._within is not None:
            within = self._within[0], self._within[1][met]
        elif len(self.places) * _FEW <= len(self._seen):
            within = self, np.flatnonzero(met)
        return _Rows(self._seen, self._stream, self.places[met], self._evaluate, within)

    def yielded(self, items: Sequence[Expr]) -> Emitted:
        computed = [item for item in items if not isinstance(item, e.Column)]
        again = [item for number, item in enumerate(items) if isinstance(item, e.Column) and item in items[:number]]
        charge(sum(self._seen.size(self._stream, item.name, self.places) for item in again))
        answers = iter(self._evaluate(computed, self._values(computed), len(self.places)) if computed else ())
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
        if column not in self._columns:
            if self._within is not None:
                rows, at = self._within
                self._columns[column] = rows._column(column).take(pa.array(at))
            else:
                self._columns[column] = self._seen.column(self._stream, column.name, self.places)
        return self._columns[column]
