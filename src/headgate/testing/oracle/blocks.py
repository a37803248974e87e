"""One block of a query over tuples as they are read: which tuples enter its windows, its rows, its results (SPEC.md,
4.2).

Everything here is of one moment: windows and rights do not change. `meaning` and `arrival` say which moments there are.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from functools import reduce

from headgate.labels import Label, Level, Rules
from headgate.plan.expressions import AggregateCall, Column, Expr, Value
from headgate.plan.normal import conjuncts
from headgate.plan.queries import QueryBlock
from headgate.testing.oracle.aggregates import aggregate
from headgate.testing.oracle.tuples import Seen, TupleKey
from headgate.testing.oracle.values import value_of

Row = tuple[TupleKey, ...]
"""A combination of one tuple of each source, in the order of FROM."""

Yield = tuple[tuple[Value, ...], Label]
"""The values and the label of a result."""


class BlockOver:
    """A block of a query of this level over these tuples; the columns in `hidden`, by stream, are hidden at the moment.
    Computed values are cached, so the arguments must not change."""

    def __init__(
        self,
        block: QueryBlock,
        tuples: Mapping[TupleKey, Seen],
        rules: Rules,
        level: Level,
        hidden: Mapping[str, frozenset[str]] | None = None,
    ) -> None:
        self.block = block
        self.tuples = tuples
        self._rules = rules
        self._least_label = rules.normal(Label(levels=frozenset({level})))
        sources = range(len(block.readings))
        before = conjuncts(block.before)
        self._order = sorted(sources, key=lambda source: block.readings[source].stream.name)
        first = self._order[0]
        self._entering = [[c for c in before if (c.inputs or {first}) == {source}] for source in sources]
        joining = [*conjuncts(block.after), *(c for c in before if len(c.inputs) > 1)]
        self._joining = [[c for c in joining if max(c.inputs, default=0) == source] for source in sources]
        self._columns = [label for source in sources for label in _column_labels(block, source, hidden or {})]
        self._enters: dict[tuple[int, TupleKey], bool] = {}
        self._joins: dict[Row, bool] = {}

    # Windows ---------------------------------------------------------------------------------------------------------

    def enters(self, source: int, position: TupleKey) -> bool:
        """Whether the conditions before FROM let a tuple into this source's window."""
        if position.stream != self.block.readings[source].stream.name:
            return False
        key = source, position
        if key not in self._enters:
            row = (position,) * (source + 1)
            self._enters[key] = all(self._value(c, row) is True for c in self._entering[source])
        return self._enters[key]

    def enters_any(self, position: TupleKey) -> bool:
        return any(self.enters(source, position) for source in range(len(self.block.readings)))

    def partition(self, source: int) -> Callable[[TupleKey], Hashable]:
        """The key of a tuple's partition in a partitioned window."""
        window = self.block.readings[source].window
        columns = window.partition if window else ()
        return lambda position: tuple(self.tuples[position].values.get(column.name) for column in columns)

    # Rows ------------------------------------------------------------------------------------------------------------

    def rows(self, contents: Sequence[Iterable[TupleKey]]) -> list[Row]:
        """All combinations of one tuple of each window that meet the conditions, in the order of results."""
        found: list[Row] = [()]
        for content in contents:
            positions = list(content)
            found = [row for begun in found for position in positions if self._fits(row := (*begun, position))]
        return sorted(found, key=lambda row: [row[source] for source in self._order])

    def _fits(self, row: Row) -> bool:
        """Whether a row, or the beginning of one, meets the conditions on its last source and those before it."""
        if row not in self._joins:
            self._joins[row] = all(self._value(c, row) is True for c in self._joining[len(row) - 1])
        return self._joins[row]

    def _value(self, expr: Expr, row: Row, rows: Sequence[Row] = ()) -> Value:
        """The value of an expression for a row. Aggregates have a value for a group of rows, of which `row` is the
        first."""

        def read(part: Column | AggregateCall) -> Value:
            if isinstance(part, Column):
                return self.tuples[row[part.input]].values.get(part.name)
            argument = part.argument
            return aggregate(part, (self._value(argument, member) if argument else None for member in rows))

        return value_of(expr, read)

    # Results ---------------------------------------------------------------------------------------------------------

    def yields(self, now: Sequence[Row], before: Sequence[Row], *, sliding: bool) -> list[Yield]:
        """The results of an instant, given its rows and those of the previous instant."""
        return self._groups(now, before, sliding) if self.block.aggregated else self._stream(now, before)

    def _groups(self, now: Sequence[Row], before: Sequence[Row], sliding: bool) -> list[Yield]:
        known = set(before)
        found = []
        for rows in _told_apart(now, self._group).values():
            chosen = sliding or self.block.operator == "RSTREAM" or not known.issuperset(rows)
            if chosen and self._value(self.block.having, rows[0], rows) is True:
                found.append(self._yield(rows))
        return found

    def _group(self, row: Row) -> Hashable:
        return tuple(self._value(column, row) for column in self.block.groups)

    def _stream(self, now: Sequence[Row], before: Sequence[Row]) -> list[Yield]:
        are, were = _told_apart(now, self._identity), _told_apart(before, self._identity)
        match self.block.operator:
            case "ISTREAM":
                return [self._yield(rows) for key, rows in are.items() if key not in were]
            case "DSTREAM":
                return [self._yield(rows) for key, rows in were.items() if key not in are]
            case _:
                return [self._yield(rows) for rows in are.values()]

    def _identity(self, row: Row) -> Hashable:
        """Rows are the same if they combine the same tuples; with DISTINCT, if they have the same results."""
        return self._results(row) if self.block.distinct else row

    def _results(self, row: Row, rows: Sequence[Row] = ()) -> tuple[Value, ...]:
        return tuple(self._value(expr, row, rows) for _, expr in self.block.items)

    def _yield(self, rows: Sequence[Row]) -> Yield:
        return self._results(rows[0], rows), self._label(rows)

    def _label(self, rows: Sequence[Row]) -> Label:
        """The combined label of everything that was read for these rows."""
        read = {(source, position) for row in rows for source, position in enumerate(row)}
        labels = [*(self.tuples[position].label for _, position in sorted(read)), *self._columns]
        label = reduce(self._rules.combine, dict.fromkeys(labels), self._least_label)
        return label.as_aggregate() if self.block.aggregated else label


def _told_apart(rows: Iterable[Row], key: Callable[[Row], Hashable]) -> dict[Hashable, list[Row]]:
    found: dict[Hashable, list[Row]] = {}
    for row in rows:
        found.setdefault(key(row), []).append(row)
    return found


def _column_labels(block: QueryBlock, source: int, hidden: Mapping[str, frozenset[str]]) -> list[Label]:
    """The labels of the labelled columns that the block reads from one of its sources, except hidden ones."""
    reading = block.readings[source]
    partition = reading.window.partition if reading.window else ()
    exprs = [block.before, block.after, block.having, *(expr for _, expr in block.items), *block.groups, *partition]
    read = {column.name for expr in exprs for column in expr.columns if column.input == source}
    seen = read - hidden.get(reading.stream.name, frozenset())
    return [label for name, label in reading.stream.labels if name in seen]
