"""Run the plan of one view group over the tuples it may see: every operator once, for all instants of a batch at once.

INVARIANT: the tuples are in order and final; no later tuple comes between them. `held` says which of them each window
held before this batch; the others are entering now.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import reduce

import numpy as np
import pyarrow as pa

from headgate.columns.factorize import codes
from headgate.columns.sorting import Bools, Ints, distinct, in_rows_order
from headgate.expressions.limits import Evaluate, Values, bounded, few_tuples, taken
from headgate.model.budget import Remembered
from headgate.model.times import NO_TIME
from headgate.operators.aggregates import Aggregates
from headgate.operators.emit import Emitted, any_of_each, by_instant, emitted, first_of_each, where_kind_changes
from headgate.operators.groups import Points, points
from headgate.operators.instants import Instants, ValidityIntervals, slides, spread, validity_intervals
from headgate.operators.join_order import equality, joining_order
from headgate.operators.label_sets import LabelSets, side_by_side, together
from headgate.operators.previous_instant import name_of, previous_rows, there_at, with_gone
from headgate.operators.reading import Tuples, meets, stream_of, streams_of, values_of
from headgate.operators.rows import Rows, join_rows, lasting, window_rows
from headgate.plan import nodes as n
from headgate.plan.expressions import AggregateCall, Column, Expr, wider


class ViewRun:
    """One batch of one view group.

    tuples: the visible tuples
    held: the positions of the tuples that each window held before, by the window's key
    since, until: the bounds of the times that become final in this batch
    last: the times of the last instants of blocks, by the key of their rows
    before: what some windows held at the previous instant of the one block that this run evaluates, if that differs
    from what they hold
    """

    def __init__(
        self,
        tuples: Tuples,
        held: Mapping[str, Ints],
        evaluate: Evaluate,
        since: int,
        until: int,
        last: Mapping[str, int],
        before: Mapping[str, Ints] | None = None,
    ) -> None:
        self._tuples = tuples
        self._held = held
        self._given = evaluate
        self._evaluate = bounded(evaluate)
        self._since = since
        self._until = until
        self._last = last
        self._before = dict(before or {})
        self._old = int(np.searchsorted(tuples.times, since))
        self._remembered = Remembered()
        self._instants: dict[str, Instants] = {}
        self._windows: dict[str, frozenset[str]] = {}
        self._lives: dict[str, ValidityIntervals] = {}

    def alone(self, block: n.Node) -> ViewRun:
        """The run that evaluates a block: this one, or a separate one if the block needs rows of its previous
        instant."""
        windows = previous_rows(block)
        if not windows:
            return self
        before = {x.key: self._held.get(name_of(block, x), _NOTHING) for x in windows}
        return ViewRun(self._tuples, self._held, self._given, self._since, self._until, self._last, before)

    # Results ----------------------------------------------------------------------------------------------------------

    def results(self, block: n.Node) -> Emitted:
        """The results of a block (a ToStream node), in their order."""
        if not isinstance(block, n.ToStream):
            raise ValueError(f"{block} is not the top of a block with windows")
        top = block.input.input if isinstance(block.input, n.Distinct) else block.input
        if not isinstance(top, n.Project):
            raise ValueError(f"{top} is not a projection")
        having = top.input if isinstance(top.input, n.Select) and isinstance(top.input.input, n.Aggregate) else None
        below = having.input if having else top.input
        items = [expr for _, expr in top.items]
        if isinstance(below, n.Aggregate):
            return self._groups(below, having.conditions if having else frozenset(), items, block.operator == "RSTREAM")
        return self._stream(top.input, items, block.operator, once=isinstance(block.input, n.Distinct))

    def content(self, window: n.Window) -> Ints:
        """What a window holds at the end of the batch: a tuple stays until every evaluated block has seen it leave."""
        rows = self.rows(window)
        seen = [x.latest for key, x in self._instants.items() if window.key in self._windows[key]]
        alive = (rows.end >= len(self._tuples.times)) & (rows.until >= min(seen, default=NO_TIME))
        return rows.sides[0][np.flatnonzero(alive)]

    def evaluated(self, window: n.Window) -> bool:
        return any(window.key in windows for windows in self._windows.values())

    def remembers(self, block: n.Node) -> dict[str, Ints]:
        """What windows held at the last instant of a block that this run evaluated, by name."""
        passed = [int(x.passed[-1]) for x in self._instants.values() if len(x)]
        return {
            name_of(block, x): there_at(self.rows(x), passed[0]) if passed else self._before[x.key]
            for x in previous_rows(block)
        }

    def fits(self, block: n.Node, waiting: int) -> None:
        """Raise `LimitExceeded` if the windows of an evaluated block hold too many tuples, together with those that are
        waiting."""
        parts = {node.key: node for node in block.walk()}
        waiting += sum(len(self.rows(node)) for node in parts.values() if isinstance(node, n.Table))
        latest = max((x.latest for key, x in self._instants.items() if key in parts), default=NO_TIME)
        for window in (node for node in parts.values() if isinstance(node, n.Window)):
            rows = self.rows(window)
            waiting += int(np.count_nonzero((rows.end >= len(self._tuples.times)) & (rows.until >= latest)))
        few_tuples(waiting)

    def last_instants(self) -> dict[str, int]:
        return {key: instants.latest for key, instants in self._instants.items()}

    # Rows -------------------------------------------------------------------------------------------------------------

    def rows(self, node: n.Node) -> Rows:
        return self._remembered.once(("rows", node.key), lambda: self._computed(node))

    def _computed(self, node: n.Node) -> Rows:
        match node:
            case n.Window():
                return self._window(node)
            case n.Table():
                return lasting(np.flatnonzero(self._tuples.of_stream(node.stream)))
            case n.Select():
                return self._where(node.input, self.rows(node.input), node.conditions)
            case n.Join():
                return self._join(node)
        raise ValueError(f"{node} has no rows")

    def _window(self, node: n.Window) -> Rows:
        chosen = self.chosen(node.input)  # held tuples are checked again: a lost column may have been the reason
        held = self._held.get(node.key, _NOTHING)
        rows = self._moving(node, held[chosen[held]], self._entering(chosen))
        if node.key not in self._before:
            return rows
        before = self._before[node.key]
        self._before[node.key] = self._moving(node, before[chosen[before]], _NOTHING).sides[0]
        return with_gone(rows, self._before[node.key])

    def _moving(self, node: n.Window, held: Ints, entering: Ints) -> Rows:
        partition = _NOTHING
        if node.kind == "PARTITIONED":
            stream, places = stream_of(node), np.concatenate([held, entering])
            columns = [self._tuples.column(stream, column.name, places) for column in node.partition]
            partition = codes(columns, null_is_a_value=True)
        rows = window_rows(node, held, entering, self._tuples.times, partition)
        return rows.where(rows.end >= self._old)  # partitions that a lost column makes one hold no more than one

    def _entering(self, chosen: Bools) -> Ints:
        return np.flatnonzero(chosen[self._old :]) + self._old

    def chosen(self, node: n.Node) -> Bools:
        """Which tuples a selection below a window lets through."""
        return self._remembered.once(("chosen", node.key), lambda: self._selected(node))

    def _selected(self, node: n.Node) -> Bools:
        match node:
            case n.Source():
                return self._tuples.of_stream(node.stream)
            case n.Select():
                below = self.chosen(node.input).copy()
                places = np.flatnonzero(below)
                values = values_of(self._tuples, [stream_of(node)], (places,), node.conditions)
                below[places] = meets(self._evaluate, node.conditions, values, len(places))
                return below
        raise ValueError(f"{node} cannot stand below a window")

    def _join(self, node: n.Join) -> Rows:
        order, node = joining_order(node)
        rows = self._joined(node)
        return replace(rows, sides=tuple(rows.sides[order.index(number)] for number in range(len(order))))

    def _joined(self, node: n.Join) -> Rows:
        """Join side by side; a condition is checked as soon as all sides that it reads are joined."""
        rows = self.rows(node.sides[0])
        waiting = set(node.conditions)
        for number in range(1, len(node.sides)):
            right = self.rows(node.sides[number])
            pairs = [pair for condition in waiting if (pair := equality(condition, number))]
            waiting -= {condition for _, _, condition in pairs}
            left_keys, right_keys = self._keys(node, rows, right, [(a, b) for a, b, _ in pairs])
            rows = join_rows(rows, right, left_keys, right_keys, self._tuples.times)
            ready = frozenset(condition for condition in waiting if max(condition.inputs, default=0) <= number)
            waiting -= ready
            if ready:
                rows = self._where(node, rows, ready)
        return rows

    def _keys(self, node: n.Join, left: Rows, right: Rows, pairs: list[tuple[Column, Column]]) -> tuple[Ints, Ints]:
        if not pairs:
            return np.zeros(len(left), np.int64), np.zeros(len(right), np.int64)
        columns = []
        for a, b in pairs:
            first = self._tuples.column(stream_of(node.sides[a.input]), a.name, left.sides[a.input])
            second = self._tuples.column(stream_of(node.sides[b.input]), b.name, right.sides[0])
            if first.type != second.type and (common := wider(a.type, b.type)):
                first, second = first.cast(_ARROW[common.value]), second.cast(_ARROW[common.value])
            columns.append(pa.concat_arrays([first, second]))
        both = codes(columns, null_is_a_value=False)
        return both[: len(left)], both[len(left) :]

    # Values -----------------------------------------------------------------------------------------------------------

    def _values(self, below: n.Node, sides: tuple[Ints, ...], exprs: Iterable[Expr], *, many: bool = False) -> Values:
        return values_of(self._tuples, streams_of(below), sides, exprs, many=many or len(sides) > 1)

    def _where(self, below: n.Node, rows: Rows, conditions: frozenset[Expr]) -> Rows:
        values = self._values(below, rows.sides, conditions)
        return rows.where(meets(self._evaluate, conditions, values, len(rows)))

    # Instants and emitted results -------------------------------------------------------------------------------------

    def _looked(self, node: n.Node) -> tuple[Instants, ValidityIntervals]:
        """The instants of the block whose rows these are, and the validity interval of each row."""
        if node.key not in self._instants:
            windows = [x for x in node.walk() if isinstance(x, n.Window)]
            self._windows[node.key] = frozenset(x.key for x in windows)
            self._instants[node.key] = self._found_instants(windows, self._last.get(node.key, NO_TIME))
            self._lives[node.key] = validity_intervals(self.rows(node), self._instants[node.key], self._tuples.times)
        return self._instants[node.key], self._lives[node.key]

    def _found_instants(self, windows: list[n.Window], last: int) -> Instants:
        times = self._tuples.times
        sliding = [x for x in windows if x.slide]
        if not sliding:
            chosen = reduce(np.logical_or, (self.chosen(x.input) for x in windows))
            return Instants.of_tuples(self._entering(chosen), times, last)
        at = [slides(times[self.rows(x).sides[0]], x.range, x.slide, self._since, self._until) for x in sliding]
        return Instants.of_times(distinct(np.concatenate(at)), times, last)

    def _stream(self, node: n.Node, items: list[Expr], operator: str, *, once: bool) -> Emitted:
        rows = self.rows(node)
        instants, there = self._looked(node)
        if operator == "RSTREAM":
            row, at = spread(there.first, there.gone)
        elif operator == "DSTREAM":
            row = np.flatnonzero((there.seen | there.old) & (there.gone < len(instants)))
            at = there.gone[row]
        else:
            row = np.flatnonzero(there.seen & ~there.old)
            at = there.first[row]
        row, at = self._arranged(rows, row, at)
        if once:
            return self._distinct(node, items, row, at, operator)
        sides = tuple(side[row] for side in rows.sides)
        if operator == "RSTREAM":  # a row is emitted many times and computed once
            values = self._evaluate(items, self._values(node, rows.sides, items), len(rows))
            values = [taken(column, row) for column in values]
        else:
            values = self._evaluate(items, self._values(node, sides, items), len(row))
        return emitted(instants, at, sides, values, self._labels(sides))

    def _arranged(self, rows: Rows, row: Ints, at: Ints) -> tuple[Ints, Ints]:
        """Order rows by instant, then by the tuples that they combine."""
        merged = np.argsort(at, kind="stable")  # a stable sort merges runs that are in order
        row, at = row[merged], at[merged]
        order = in_rows_order(tuple(side[row] for side in rows.sides), at)
        return (row, at) if order is None else (row[order], at[order])

    def _distinct(self, node: n.Node, items: list[Expr], row: Ints, at: Ints, operator: str) -> Emitted:
        rows = self.rows(node)
        instants, there = self._looked(node)
        values = self._evaluate(items, self._values(node, rows.sides, items), len(rows))
        kinds = codes(values, null_is_a_value=True)
        chosen = where_kind_changes(kinds, row, at, there, operator)
        row, at = row[chosen], at[chosen]
        first, number = first_of_each(kinds[row], at)
        labels = together(
            self._labels(tuple(side[row] for side in rows.sides)),
            lambda bits: any_of_each(bits, number),
            lambda: _by_result(number),
        )
        row = row[first]
        values = [taken(column, row) for column in values]
        return emitted(instants, at[first], tuple(side[row] for side in rows.sides), values, labels)

    def _groups(self, node: n.Aggregate, having: frozenset[Expr], items: list[Expr], every: bool) -> Emitted:
        rows = self.rows(node.input)
        instants, _ = self._looked(node.input)
        looked, first = self._looked_points(node, every or instants.sliding)

        def evaluated(expr: Expr) -> pa.Array:
            return self._evaluate([expr], self._values(node.input, rows.sides, [expr]), len(rows))[0]

        def value_of(expr: Expr) -> pa.Array:
            return self._remembered.once(("argument", node.input.key, expr), lambda: evaluated(expr))

        aggregates = Aggregates(looked, value_of)
        sides = tuple(side[first] for side in rows.sides)
        grouped = self._values(node.input, sides, node.groups, many=True)
        values: dict[Column | AggregateCall, pa.Array] = dict(grouped)
        values |= {call: aggregates.of(call) for call in node.calls}
        results, at = self._evaluate(items, values, len(looked)), looked.instant
        labels = together(self._labels(rows.sides), lambda bits: looked.folded(bits, np.bitwise_or), looked.members)
        if having:
            chosen = np.flatnonzero(meets(self._evaluate, having, values, len(looked)))
            sides, at, labels = tuple(side[chosen] for side in sides), at[chosen], labels.at(chosen)
            results = [column.take(pa.array(chosen)) for column in results]
        return emitted(instants, at, sides, results, labels)

    def _labels(self, sides: tuple[Ints, ...]) -> LabelSets:
        return side_by_side([self._tuples.labels.at(side) for side in sides])

    def _looked_points(self, node: n.Aggregate, every: bool) -> tuple[Points, Ints]:
        """Groups at instants, ordered by instant and then by their first rows, and these rows. Aggregates over the same
        input and grouping share them."""
        key = "points", node.input.key, node.groups, every
        return self._remembered.once(key, lambda: self._found_points(node, every))

    def _found_points(self, node: n.Aggregate, every: bool) -> tuple[Points, Ints]:
        rows = self.rows(node.input)
        instants, there = self._looked(node.input)
        columns = list(self._values(node.input, rows.sides, node.groups).values())
        groups = codes(columns, null_is_a_value=True) if columns else np.zeros(len(rows), np.int64)
        looked = points(groups, there, instants, every=every)
        by_rows = in_rows_order(rows.sides)
        if by_rows is None:
            rank, first = np.arange(len(rows)), looked.rows[looked.low]
        else:
            rank = np.empty(len(rows), np.int64)
            rank[by_rows] = np.arange(len(rows))
            first = by_rows[looked.folded(rank, np.minimum)]
        order = by_instant(looked.instant, rank[first], len(instants))
        return looked.at(order), first[order]


_NOTHING = np.empty(0, np.int64)
_ARROW = {"BIGINT": pa.int64(), "INT": pa.int32(), "FLOAT": pa.float32(), "DOUBLE": pa.float64()}


def _by_result(number: Ints) -> tuple[Ints, Ints]:
    """Pairs of a result and one of its rows, ordered by result."""
    order = np.argsort(number, kind="stable")
    return number[order], order
