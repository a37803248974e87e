"""Bind a query: resolve sources and columns, check types, name results.

The bound query keeps the shape of the text: conditions before and after FROM stay apart. The oracle evaluates it in
this shape; `lowering` turns it into operators.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from headgate.cql.expressions import CallSyntax, NameSyntax, Syntax, parts
from headgate.cql.names import Target
from headgate.cql.queries import (
    MAX_ITEMS,
    BlockSyntax,
    ItemSyntax,
    QuerySyntax,
    StreamOperator,
    WindowKind,
    WindowSyntax,
)
from headgate.errors import Position
from headgate.labels import Label
from headgate.lexing import MAX_NAME
from headgate.plan import expressions as e
from headgate.plan import normal
from headgate.plan.binding import Binder, JoinSide, Room, Scope, wrong
from headgate.plan.equality import Equalities
from headgate.plan.expressions import AggregateCall, Column, Expr, Literal, Type
from headgate.plan.functions import AGGREGATES
from headgate.plan.reserved import LEVEL, is_level, is_reserved


@dataclass(frozen=True)
class Stream:
    """A stream as queries see it: its name as a source, its columns, and the labels of some of them. All tuples of a
    `table` are there before those of any stream, and none arrives later."""

    name: str
    columns: tuple[tuple[str, Type], ...]
    labels: tuple[tuple[str, Label], ...] = ()
    table: bool = False


@dataclass(frozen=True)
class WindowClause:
    """Durations are in milliseconds. The condition `LEVEL = ...` in a window's brackets becomes part of the block's
    `before`."""

    kind: WindowKind
    rows: int = 0
    range: int = 0
    slide: int = 0
    partition: tuple[Column, ...] = ()


UNBOUNDED = WindowClause("UNBOUNDED")
NOW = WindowClause("NOW")


@dataclass(frozen=True)
class Reading:
    """One source of a block. `window` is None if the block is stateless; the window of a table is unbounded."""

    stream: Stream
    window: WindowClause | None


@dataclass(frozen=True)
class QueryBlock:
    """`before` selects the tuples that enter the windows, `after` the rows of their content; `items` are the named
    results.

    Each column names its reading by number. With aggregates, items and `having` read only `groups` and the results of
    aggregate calls.
    """

    readings: tuple[Reading, ...]
    before: Expr
    after: Expr
    items: tuple[tuple[str, Expr], ...]
    groups: tuple[Column, ...]
    having: Expr
    aggregated: bool
    distinct: bool
    operator: StreamOperator

    @property
    def stateless(self) -> bool:
        return self.readings[0].window is None

    @property
    def streams(self) -> frozenset[str]:
        return frozenset(reading.stream.name for reading in self.readings)

    @property
    def columns(self) -> tuple[tuple[str, Type], ...]:
        return tuple((name, expr.type) for name, expr in self.items)


@dataclass(frozen=True)
class Query:
    blocks: tuple[QueryBlock, ...]

    @property
    def columns(self) -> tuple[tuple[str, Type], ...]:
        return self.blocks[0].columns


def bind_query(syntax: QuerySyntax, find: Callable[[Target], Stream]) -> Query:
    """Bind a query. `find` returns the stream that a name means, or raises; it is called once per source, in the order
    of the text."""
    room = Room()
    blocks = tuple(_bind_block(block, find, room) for block in syntax.blocks)
    for block, written in zip(blocks[1:], syntax.blocks[1:], strict=True):
        _check_union(blocks[0], block, written.position)
    return Query(blocks)


def _check_union(first: QueryBlock, other: QueryBlock, at: Position) -> None:
    if len(first.items) != len(other.items):
        found = f"{len(other.items)} and not {len(first.items)}"
        raise wrong(at, f"this block has another number of results than the first: {found}")
    for (name, type_), (_, found) in zip(first.columns, other.columns, strict=True):
        if type_ != found:
            raise wrong(at, f"column {e.written(name)} is {type_} in the first block and {found} here", hint="CAST it")


def _bind_block(syntax: BlockSyntax, find: Callable[[Target], Stream], room: Room) -> QueryBlock:
    streams = [find(source.target) for source in syntax.sources]
    names = [source.alias.text if source.alias else source.target.name for source in syntax.sources]
    for name, times in Counter(name.casefold() for name in names).items():
        if times > 1:
            second = [s for s, n in zip(syntax.sources, names, strict=True) if n.casefold() == name][1]
            at = second.alias.position if second.alias else second.target.position
            raise wrong(
                at,
                f"two sources are called `{second.target.name if not second.alias else second.alias.text}`",
                hint="give one another name: FROM stream AS name",
            )
    return _BlockBinder(syntax, streams, names, room).block()


class _BlockBinder:
    def __init__(self, syntax: BlockSyntax, streams: list[Stream], names: list[str], room: Room) -> None:
        self.syntax = syntax
        self.streams = streams
        self.scope = Scope(tuple(JoinSide(n, s.columns) for n, s in zip(names, streams, strict=True)))
        self.binder = Binder(self.scope, room)

    def block(self) -> QueryBlock:
        x = self.syntax
        self._check_tables()
        before = self.binder.condition(x.before) if x.before else normal.TRUE
        after = self.binder.condition(x.after) if x.after else normal.TRUE
        self._check_joins(before, x)
        equal = self.scope.equal = Equalities(normal.conjuncts(before) | normal.conjuncts(after), self._order)
        windows = tuple(self._window(number, source.window) for number, source in enumerate(x.sources))
        levels = self._window_levels()
        items = self._items()
        having = equal.read_once(self.binder.condition(x.having, aggregates=True)) if x.having else normal.TRUE
        aggregated = bool(
            x.groups or x.having or any(item.expression and _aggregates(item.expression) for item in x.items)
        )
        grouped = [self.scope.column(name) for name in x.groups]
        if aggregated:
            grouped = grouped or [column for window in windows if window for column in window.partition]
        groups = tuple(dict.fromkeys(map(equal.first, grouped)))
        if aggregated:
            self._check_grouped(items, having, groups)
        usual = self._usual_window(once=not aggregated and not x.distinct and x.operator in (None, "ISTREAM"))
        readings = tuple(
            Reading(s, UNBOUNDED if s.table else w or usual) for s, w in zip(self.streams, windows, strict=True)
        )
        self._check_operator(aggregated)
        self._check_slides(readings)
        return QueryBlock(
            readings,
            normal.conjunction((before, *levels)),
            after,
            tuple((name, expr) for name, expr, _ in items),
            groups,
            having,
            aggregated,
            x.distinct,
            x.operator or "ISTREAM",
        )

    def _order(self, column: Column) -> tuple[str | int, ...]:
        return self.streams[column.input].name, column.input, column.name

    def _check_joins(self, before: Expr, x: BlockSyntax) -> None:
        """It must be clear which tuples enter which window: conditions on several sources must be in conjunctive normal
        form."""
        for conjunct in normal.conjuncts(before):
            if len(conjunct.inputs) > 1 and not normal.is_conjunctive(conjunct):
                raise wrong(
                    x.before.position if x.before else x.position,
                    f"this condition on several sources has more than {normal.MOST_CONJUNCTS} alternatives",
                    hint="write it as conditions joined by AND",
                )

    # Windows --------------------------------------------------------------------------------------------------------

    def _check_tables(self) -> None:
        """A query must read a stream: results arise from tuples of streams, while all tuples of a table are there at
        every instant."""
        if all(stream.table for stream in self.streams):
            at = self.syntax.sources[0].target.position
            raise wrong(at, "this block reads tables only, so it has no results", hint="read a stream beside them")

    def _usual_window(self, *, once: bool) -> WindowClause | None:
        """The window of a stream that has none in the text. If each tuple has its results `once`, when it arrives, and
        the other sources are tables, no tuple has to be kept."""
        if not once or sum(not stream.table for stream in self.streams) > 1:
            return UNBOUNDED
        return NOW if len(self.streams) > 1 else None

    def _window(self, number: int, window: WindowSyntax | None) -> WindowClause | None:
        if window is None:
            return None
        if self.streams[number].table:
            hint = "all its tuples are there at every instant; choose some with WHERE"
            raise wrong(window.position, "a table has no window", hint=hint)
        columns = tuple(dict.fromkeys(self._own_column(number, name) for name in window.columns))
        return WindowClause(window.kind, window.rows, window.range, window.slide, tuple(sorted(columns, key=str)))

    def _own_column(self, number: int, name: NameSyntax) -> Column:
        """A column of the window's own source: only these can partition it."""
        own = Scope((self.scope.sides[number],)).column(name)
        return Column(number, own.name, own.type)

    def _window_levels(self) -> list[Expr]:
        return [
            normal.compare("=", Column(number, LEVEL, Type.STRING), Literal(source.window.level.value, Type.STRING))
            for number, source in enumerate(self.syntax.sources)
            if source.window and source.window.level
        ]

    def _check_slides(self, readings: tuple[Reading, ...]) -> None:
        slides = {reading.window.slide for reading in readings if reading.window and reading.window.slide}
        if len(slides) > 1:
            sliding = [source.window for source in self.syntax.sources if source.window and source.window.slide]
            other = next(window for window in sliding if window.slide != sliding[0].slide)
            raise wrong(other.position, "the windows of one block must slide by the same time")

    def _check_operator(self, aggregated: bool) -> None:
        x = self.syntax
        if aggregated and x.distinct:
            raise wrong(x.position, "DISTINCT is not allowed with aggregates", hint="groups are distinct already")
        if aggregated and x.operator == "DSTREAM":
            raise wrong(x.position, "DSTREAM is not allowed with aggregates", hint="RSTREAM emits all groups")

    # Results --------------------------------------------------------------------------------------------------------

    def _items(self) -> list[tuple[str, Expr, Position]]:
        """The results with their names: given, or those of columns, or generated (`avg_bp`); generated names give way
        to others."""
        found: list[tuple[str | None, str, Expr, Position]] = []
        for item in self.syntax.items:
            if len(found) > MAX_ITEMS:
                break
            if item.expression is None:
                found += self._star(item)
                continue
            expr = self.binder.bind(item.expression, aggregates=True)
            if expr.type == Type.NULL:
                raise wrong(item.position, "this result has no type", hint="write CAST(NULL AS type)")
            if item.name and is_level(item.name.text) and item.name.text != _called(expr):
                hint = "that is the level of every tuple"
                raise wrong(item.name.position, f"a result must not be called `{item.name.text}`", hint=hint)
            fixed = item.name.text if item.name else _called(expr)
            at = item.name.position if item.name else item.position
            found.append((fixed, _made_up(expr), self.scope.equal.read_once(expr), at))
        if len(found) > MAX_ITEMS:
            raise wrong(self.syntax.items[0].position, f"a query must not have more than {MAX_ITEMS} results")
        return self._named(found)

    def _named(self, found: list[tuple[str | None, str, Expr, Position]]) -> list[tuple[str, Expr, Position]]:
        taken: set[str] = set()
        for fixed, _, _, at in found:
            if fixed is not None and is_reserved(fixed):
                hint = "such names stand beside columns in files; give it another: ... AS name"
                raise wrong(at, f"a result must not be called `{fixed}`", hint=hint)
            if fixed is not None:
                if fixed.casefold() in taken:
                    raise wrong(at, f"two results are called `{fixed}`", hint="give one another name: ... AS name")
                taken.add(fixed.casefold())
        named = []
        for fixed, base, expr, at in found:
            name, number = fixed or base, 2
            while fixed is None and name.casefold() in taken:
                name, number = f"{base}_{number}", number + 1
            if len(name) > MAX_NAME:
                raise wrong(at, f"the name of this result is longer than {MAX_NAME} characters", hint="name it with AS")
            taken.add(name.casefold())
            named.append((name, expr, at))
        return named

    def _star(self, item: ItemSyntax) -> list[tuple[str | None, str, Expr, Position]]:
        """All columns; columns of several sources with the same name are prefixed with the source's name."""
        sides = list(enumerate(self.scope.sides))
        if item.qualifier is not None:
            wanted = item.qualifier.text.casefold()
            sides = [(n, side) for n, side in sides if side.name.casefold() == wanted]
            if not sides:
                known = ", ".join(e.written(side.name) for side in self.scope.sides)
                raise wrong(item.position, f"there is no source `{item.qualifier.text}`", hint=f"there is {known}")
        times = Counter(name.casefold() for _, side in sides for name, _ in side.columns)
        return [
            (
                name if times[name.casefold()] == 1 else f"{side.name}_{name}",
                "",
                self.scope.equal.first(Column(n, name, type_)),
                item.position,
            )
            for n, side in sides
            for name, type_ in side.columns
        ]

    # Grouping -------------------------------------------------------------------------------------------------------

    def _check_grouped(self, items: list[tuple[str, Expr, Position]], having: Expr, groups: tuple[Column, ...]) -> None:
        grouped = frozenset(groups)
        checked: list[tuple[Expr, Position]] = [(expr, at) for _, expr, at in items]
        if self.syntax.having:
            checked.append((having, self.syntax.having.position))
        for expr, at in checked:
            for column in _outside_aggregates(expr):
                if column not in grouped:
                    name = e.written(column.name)
                    raise wrong(
                        at,
                        f"{name} is neither grouped nor inside an aggregate",
                        hint=f"add GROUP BY {name}, or write an aggregate such as MAX({name})",
                    )


def _called(expr: Expr) -> str | None:
    """The name of a column. LEVEL becomes a column of another name, because every result has a level of its own."""
    if not isinstance(expr, Column):
        return None
    return LEVEL.lower() if expr.name == LEVEL else expr.name


def _made_up(expr: Expr) -> str:
    """Generate a name for a result that has none."""
    if isinstance(expr, AggregateCall):
        if isinstance(expr.argument, Column):
            return f"{expr.function.lower()}_{expr.argument.name}"
        return expr.function.lower()
    return expr.function.lower() if isinstance(expr, e.Call) else "result"


def _aggregates(syntax: Syntax) -> bool:
    """Whether the expression contains an aggregate, even in a part that does not matter. It uses no recursion, because
    chains of ANDs are deep trees."""
    waiting = [syntax]
    while waiting:
        top = waiting.pop()
        if isinstance(top, CallSyntax) and top.function in AGGREGATES:
            return True
        waiting += parts(top)
    return False


def _outside_aggregates(expr: Expr) -> Iterable[Column]:
    if isinstance(expr, AggregateCall):
        return
    if isinstance(expr, Column):
        yield expr
    for part in expr.parts:
        yield from _outside_aggregates(part)
