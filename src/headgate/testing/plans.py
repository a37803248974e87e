"""A slow executor of merged plans: every operator once per instant, from the inputs that the plan gives it.

It complements the oracle, which knows nothing of operators and sharing: where both agree for many queries and streams,
merged plans mean what their queries mean. An engine differs from it in speed, not in what it takes from the plan.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import reduce
from itertools import product

from headgate.labels import LEAST, Label, Level, Rules
from headgate.plan import nodes as n
from headgate.plan.expressions import INTEGERS, AggregateCall, Column, Expr, Value
from headgate.plan.merged import MergedPlan
from headgate.plan.queries import Window
from headgate.testing.oracle.aggregates import aggregate
from headgate.testing.oracle.casts import fitted
from headgate.testing.oracle.tuples import Position, Result, Seen, Tuple
from headgate.testing.oracle.values import value_of
from headgate.testing.oracle.windows import Instant, held, slides_over

Row = tuple[Position, ...]
_END = Instant(1 << 62, True, None)


@dataclass(frozen=True)
class _Group:
    """Rows with the same values in the grouped columns, and what is kept for them."""

    rows: tuple[Row, ...]
    kept: Mapping[AggregateCall, Value | Fraction]


@dataclass(frozen=True)
class _Shape:
    """A query's block from the top: how it becomes a stream, its results, its groups if it has any, its rows."""

    operator: str | None
    distinct: bool
    items: tuple[Expr, ...]
    having: tuple[Expr, ...]
    aggregate: n.Aggregate | None
    rows: n.Node

    @classmethod
    def of(cls, node: n.Node) -> _Shape:
        operator = node.operator if isinstance(node, n.ToStream) else None
        node = node.input if isinstance(node, n.ToStream) else node
        distinct = isinstance(node, n.Distinct)
        node = node.input if isinstance(node, n.Distinct) else node
        if not isinstance(node, n.Project):
            raise ValueError(f"{node} is not the top of a block")
        items, node = tuple(expr for _, expr in node.items), node.input
        having: tuple[Expr, ...] = ()
        if isinstance(node, n.Select) and isinstance(node.input, n.Aggregate):
            having, node = tuple(node.conditions), node.input
        if isinstance(node, n.Aggregate):
            return cls(operator, distinct, items, having, node, node.input)
        return cls(operator, distinct, items, having, None, node)


class PlanOver:
    """A merged plan over given tuples, in the order of their arrival. Queries reuse what others computed."""

    def __init__(
        self, plan: MergedPlan, tuples: Iterable[Tuple], rules: Rules | None = None, level: Level = LEAST
    ) -> None:
        self._plan = plan
        self._tuples = {Position(x.time, x.stream, i): Seen.whole(x) for i, x in enumerate(tuples)}
        self._order = sorted(self._tuples)
        self._rules = rules or Rules()
        self._least = self._rules.normal(Label(levels=frozenset({level})))
        self._rows: dict[tuple[str, Instant], list[Row]] = {}
        self._groups: dict[tuple[str, tuple[str, ...], Instant], list[_Group]] = {}
        self.reused = 0

    def results(self, name: str) -> list[Result]:
        root = self._plan.queries[name]
        blocks = root.blocks if isinstance(root, n.Union) else (root,)
        found = [
            (instant, number, result)
            for number, block in enumerate(blocks)
            for instant, result in self._of_block(_Shape.of(block), number)
        ]
        found.sort(key=lambda x: x[:2])
        return [result for _, _, result in found]

    # Instants and their results ---------------------------------------------------------------------------------------

    def _of_block(self, shape: _Shape, number: int) -> Iterable[tuple[Instant, Result]]:
        before: list[Row] = []
        for instant in self._instants(shape):
            now = self._at(shape.rows, instant)
            if shape.operator is None:
                now, before = [row for row in now if row[0] == instant.position], []
            for values, rows in self._yielded(shape, instant, now, before):
                yield instant, Result(instant.time, values, self._label(rows), number)
            before = now

    def _instants(self, shape: _Shape) -> list[Instant]:
        windows = [node for node in shape.rows.walk() if isinstance(node, n.Window)]
        if not windows:
            return [Instant.of(row[0]) for row in self._at(shape.rows, _END)]
        sliding = [window for window in windows if window.slide]
        if not sliding:
            return sorted({Instant.of(row[0]) for window in windows for row in self._at(window.input, _END)})
        return sorted(
            {
                instant
                for window in sliding
                for row in self._at(window.input, _END)
                for instant in slides_over(_as_window(window), row[0])
            }
        )

    def _yielded(
        self, shape: _Shape, instant: Instant, now: list[Row], before: list[Row]
    ) -> Iterable[tuple[tuple[Value, ...], tuple[Row, ...]]]:
        if shape.aggregate is not None:
            yield from self._groups_yielded(shape, shape.aggregate, instant, set(before))
            return

        def results(row: Row) -> tuple[Value, ...]:
            return tuple(self._value(item, row) for item in shape.items)

        def identity(row: Row) -> object:
            return results(row) if shape.distinct else row

        are, were = _told_apart(now, identity), _told_apart(before, identity)
        match shape.operator:
            case "DSTREAM":
                chosen = [rows for key, rows in were.items() if key not in are]
            case "RSTREAM":
                chosen = list(are.values())
            case _:
                chosen = [rows for key, rows in are.items() if key not in were]
        for rows in chosen:
            yield results(rows[0]), tuple(rows)

    def _groups_yielded(
        self, shape: _Shape, node: n.Aggregate, instant: Instant, before: set[Row]
    ) -> Iterable[tuple[tuple[Value, ...], tuple[Row, ...]]]:
        for group in self._grouped(node, instant):
            gained = instant.slides or shape.operator == "RSTREAM" or not before.issuperset(group.rows)
            if gained and all(self._of_group(condition, group) is True for condition in shape.having):
                yield tuple(self._of_group(item, group) for item in shape.items), group.rows

    # Operators --------------------------------------------------------------------------------------------------------

    def _at(self, node: n.Node, instant: Instant) -> list[Row]:
        """The rows of an operator at an instant, in their order; computed once, whichever queries need them."""
        key = node.key, instant
        if key in self._rows:
            self.reused += 1
        else:
            self._rows[key] = self._computed(node, instant)
        return self._rows[key]

    def _computed(self, node: n.Node, instant: Instant) -> list[Row]:
        match node:
            case n.Source():
                return [(p,) for p in self._order if p.stream == node.stream and Instant.of(p) <= instant]
            case n.Select():
                below = self._at(self._plan.base(node) or node.input, instant)
                return [row for row in below if self._meets(self._plan.residue(node), row)]
            case n.Window():
                return self._window(node, instant)
            case n.Join():
                sides = [self._at(side, instant) for side in node.sides]
                rows = (tuple(side[0] for side in combined) for combined in product(*sides))
                return sorted(row for row in rows if self._meets(node.conditions, row))
        raise ValueError(f"{node} has no rows")

    def _window(self, node: n.Window, instant: Instant) -> list[Row]:
        below = self._at(self._plan.base(node) or node.input, instant)

        def partition(position: Position) -> tuple[Value, ...]:
            return tuple(self._value(column, (position,)) for column in node.partition)

        kept = held(_as_window(node), [row[0] for row in below], instant.time, partition)
        return [(position,) for position in kept]

    def _grouped(self, node: n.Aggregate, instant: Instant) -> list[_Group]:
        """Everything that any aggregate over this input and these groups needs, kept once for all of them."""
        columns = sorted(node.groups, key=str)
        key = node.input.key, tuple(map(str, columns)), instant
        if key not in self._groups:
            groups = _told_apart(
                self._at(node.input, instant), lambda row: tuple(self._value(column, row) for column in columns)
            )
            calls = self._plan.accumulators(node)
            self._groups[key] = [
                _Group(tuple(rows), {call: self._kept(call, rows) for call in calls}) for rows in groups.values()
            ]
        else:
            self.reused += 1
        return self._groups[key]

    def _kept(self, call: AggregateCall, rows: Sequence[Row]) -> Value | Fraction:
        """Sums are kept exactly, so that averages are right even where the sum itself does not fit."""
        argument = call.argument
        values = [self._value(argument, row) if argument else None for row in rows]
        if call.distinct or call.function not in ("SUM", "SQUARES"):
            return aggregate(call, values)
        numbers = [Fraction(value) for value in values if isinstance(value, int | float)]
        return sum(numbers if call.function == "SUM" else (x * x for x in numbers)) if numbers else None

    # Values -----------------------------------------------------------------------------------------------------------

    def _meets(self, conditions: Iterable[Expr], row: Row) -> bool:
        return all(self._value(condition, row) is True for condition in conditions)

    def _value(self, expr: Expr, row: Row) -> Value:
        def read(part: Column | AggregateCall) -> Value:
            return self._tuples[row[part.input]].values.get(part.name) if isinstance(part, Column) else None

        return value_of(expr, read)

    def _of_group(self, expr: Expr, group: _Group) -> Value:
        def read(part: Column | AggregateCall) -> Value:
            if isinstance(part, Column):
                return self._value(part, group.rows[0])
            return _finished(part, group.kept)

        return value_of(expr, read)

    def _label(self, rows: Iterable[Row]) -> Label:
        labels = dict.fromkeys(self._tuples[position].label for row in rows for position in row)
        return reduce(self._rules.combine, labels, self._least)


def _finished(call: AggregateCall, kept: Mapping[AggregateCall, Value | Fraction]) -> Value:
    """The value of an aggregate from what was kept for it."""
    by_function = {(x.function, x.argument, x.distinct): value for x, value in kept.items()}

    def of(function: str) -> Value | Fraction:
        return by_function[function, call.argument, call.distinct]

    if not call.distinct and call.function in ("SUM", "AVG", "STDDEV"):
        total = of("SUM")
        if not isinstance(total, Fraction):
            return None
        count = of("COUNT") if call.function != "SUM" else 1
        squares = of("SQUARES") if call.function == "STDDEV" else 0
        return _number(call, total, Fraction(count), Fraction(squares))  # type: ignore[arg-type]
    found = of(call.function)
    return None if isinstance(found, Fraction) else found


def _number(call: AggregateCall, total: Fraction, count: Fraction, squares: Fraction) -> Value:
    try:
        match call.function:
            case "AVG":
                return float(total / count)
            case "STDDEV":
                return math.sqrt((squares - total * total / count) / (count - 1)) if count > 1 else None
            case _ if call.result in INTEGERS:
                return fitted(int(total), call.result)
            case _:
                return float(total)
    except OverflowError:
        return None


def _as_window(node: n.Window) -> Window:
    return Window(node.kind, node.rows, node.range, node.slide, node.partition)


def _told_apart(rows: Iterable[Row], key: Callable[[Row], object]) -> dict[object, list[Row]]:
    found: dict[object, list[Row]] = {}
    for row in rows:
        found.setdefault(key(row), []).append(row)
    return found
