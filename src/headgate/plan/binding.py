"""Bind expressions: resolve names, check types, and bring expressions into normal form.

Every error has the position of the word that it is about, and a hint that says what would fit.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cached_property

from headgate.cql import expressions as x
from headgate.errors import HeadgateError, Position, TextError
from headgate.plan import expressions as e
from headgate.plan import normal
from headgate.plan.equality import Equalities
from headgate.plan.expressions import Expr, Type, castable
from headgate.plan.functions import AGGREGATES, FUNCTIONS, Function
from headgate.plan.reserved import LEVEL

MOST_NAMED = 30
MOST_COMPARED = 200
_WRITTEN = {Type.TIMESTAMP: "TIMESTAMP '2024-01-31 08:00:00'", Type.DATE: "DATE '2024-01-31'"}
"""How literals of these types are written."""
MOST_COPIED = 100_000
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_TIMESTAMP = re.compile(_DATE.pattern + r"[ T][0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,6})?)?(Z|[+-][0-9]{2}:[0-9]{2})?")
_HEXADECIMAL = re.compile(r"([0-9A-Fa-f]{2})*")
_LIKE_ESCAPES = re.compile(r"(?<!\\)(?:\\\\)*\\(?![\\%_])")


@dataclass(frozen=True)
class JoinSide:
    """One source of a query: its name in the query, and its columns."""

    name: str
    columns: tuple[tuple[str, Type], ...]

    @cached_property
    def by_name(self) -> dict[str, tuple[str, Type]]:
        """Columns by case-folded name. `LEVEL` is always the tuple's level, even if a column has that name."""
        return {column[0].casefold(): column for column in (*self.columns, (LEVEL, Type.STRING))}


@dataclass
class Scope:
    """The sources of a query, in the order of FROM."""

    sides: tuple[JoinSide, ...]
    equal: Equalities = field(default_factory=lambda: Equalities((), lambda column: (column.input,)))

    def column(self, name: x.NameSyntax) -> e.Column:
        found = self._found(name)
        if not found:
            raise self._unknown(name)
        if not self.equal.hold(found):
            places = " or ".join(f"{e.written(self.sides[c.input].name)}.{e.written(c.name)}" for c in found)
            raise TextError(f"`{name.name}` is ambiguous", position=name.position, hint=f"write {places}")
        return found[0]

    def _found(self, name: x.NameSyntax) -> list[e.Column]:
        wanted = name.name.casefold()
        found = []
        for number, side in enumerate(self.sides):
            if name.qualifier is None or name.qualifier.casefold() == side.name.casefold():
                column = side.by_name.get(wanted)
                if column is not None:
                    found.append(e.Column(number, *column))
        return found

    def _unknown(self, name: x.NameSyntax) -> HeadgateError:
        if not self._meant(name):
            hint = _suggestion(name.qualifier or "", [side.name for side in self.sides])
            return TextError(f"there is no source `{name.qualifier}`", position=name.position, hint=hint)
        known = [column for side in self._meant(name) for column, _ in side.columns]
        place = f" in {e.written(name.qualifier)}" if name.qualifier is not None else ""
        hint = _suggestion(name.name, known)
        return TextError(f"there is no column `{name.name}`{place}", position=name.position, hint=hint)

    def _meant(self, name: x.NameSyntax) -> list[JoinSide]:
        wanted = name.qualifier.casefold() if name.qualifier is not None else None
        return [side for side in self.sides if wanted in (None, side.name.casefold())]


def _suggestion(name: str, known: Sequence[str], likeness: float = 0.6) -> str:
    """A hint: the closest known name, or a list of the known names."""
    folded = {other.casefold(): e.written(other) for other in known}
    near = get_close_matches(name.casefold(), list(folded)[:MOST_COMPARED], 1, likeness)
    if near:
        return f"did you mean {folded[near[0]]}?"
    more = ", ..." if len(folded) > MOST_NAMED else ""
    return f"there is {', '.join(list(folded.values())[:MOST_NAMED])}{more}"


def wrong(position: Position, message: str, hint: str = "") -> TextError:
    return TextError(message, position=position, hint=hint)


@dataclass
class Room:
    """How many characters a query may still grow by. `x BETWEEN a AND b` writes x twice, and so do lists of columns and
    negated lists; nested, they would fill any memory."""

    left: int = MOST_COPIED

    def take(self, position: Position, wanted: int) -> None:
        self.left -= wanted
        if self.left < 0:
            hint = "BETWEEN, IN and NOT IN need simple expressions on their left"
            raise wrong(position, "this condition becomes too long", hint)


class Binder:
    """Binds the expressions of one query. Aggregates are allowed where `aggregates` is true, and not inside each
    other."""

    def __init__(self, scope: Scope, room: Room | None = None) -> None:
        self.scope = scope
        self.room = room or Room()

    def condition(self, syntax: x.Syntax, *, aggregates: bool = False) -> Expr:
        return self._boolean(syntax, aggregates)

    def bind(self, syntax: x.Syntax, *, aggregates: bool = False) -> Expr:
        return self._bind(syntax, aggregates)

    def _bind(self, syntax: x.Syntax, aggregates: bool) -> Expr:
        match syntax:
            case x.NameSyntax():
                return self.scope.column(syntax)
            case x.LiteralSyntax():
                return _literal(syntax)
            case x.UnarySyntax():
                return self._unary(syntax, aggregates)
            case x.BinarySyntax():
                return self._binary(syntax, aggregates)
            case x.IsNullSyntax():
                found: Expr = e.IsNull(self._bind(syntax.operand, aggregates))
                return self._negated(syntax, found) if syntax.negated else found
            case x.InSyntax():
                return self._in(syntax, aggregates)
            case x.BetweenSyntax():
                return self._between(syntax, aggregates)
            case x.LikeSyntax():
                return self._like(syntax, aggregates)
            case x.CaseSyntax():
                return self._case(syntax, aggregates)
            case x.CastSyntax():
                return self._cast(syntax, aggregates)
            case x.CallSyntax():
                return self._call(syntax, aggregates)
        raise wrong(syntax.position, "this is not an expression")

    # Operators ------------------------------------------------------------------------------------------------------

    def _boolean(self, syntax: x.Syntax, aggregates: bool) -> Expr:
        found = self._bind(syntax, aggregates)
        if found.type not in (Type.BOOLEAN, Type.NULL):
            hint = "write a comparison, such as x = 1 OR x = 2" if isinstance(syntax, x.LiteralSyntax) else ""
            raise wrong(syntax.position, f"expected a condition, found {_a(found.type)}", hint)
        return found

    def _unary(self, syntax: x.UnarySyntax, aggregates: bool) -> Expr:
        if syntax.operator == "NOT":
            return self._negated(syntax, self._boolean(syntax.operand, aggregates))
        found = self._bind(syntax.operand, aggregates)
        if not found.type.numeric and found.type != Type.NULL:
            raise wrong(syntax.position, f"{syntax.operator} needs a number, this is {_a(found.type)}")
        if syntax.operator == "+":
            return found
        if isinstance(found, e.Literal) and isinstance(found.value, int | float):
            return e.Literal(0 - found.value, found.type)  # there is one zero: -0.0 is 0.0
        return e.Arithmetic("-", (found,), Type.BIGINT if found.type in e.INTEGERS else Type.DOUBLE)

    def _negated(self, syntax: x.Syntax, found: Expr) -> Expr:
        self.room.take(syntax.position, normal.growth(found))
        return normal.negate(found)

    def _binary(self, syntax: x.BinarySyntax, aggregates: bool) -> Expr:
        if syntax.operator in ("AND", "OR"):
            return self._logical(syntax, aggregates)
        left, right = self._bind(syntax.left, aggregates), self._bind(syntax.right, aggregates)
        if syntax.operator in normal.FLIPPED:
            self._comparable(syntax.position, left, right)
            return normal.compare(syntax.operator, left, right)
        for side in (left, right):
            if not side.type.numeric and side.type != Type.NULL:
                raise wrong(syntax.position, f"{syntax.operator} needs numbers, this is {_a(side.type)}")
        common = e.wider(left.type, right.type) or Type.DOUBLE
        result = Type.DOUBLE if syntax.operator == "/" else Type.BIGINT if common in e.INTEGERS else Type.DOUBLE
        return e.Arithmetic(syntax.operator, (left, right), result)

    def _logical(self, syntax: x.BinarySyntax, aggregates: bool) -> Expr:
        """A chain of ANDs or ORs, however deep the parser nested it; `LEVEL = "S" OR "TS"` is a list of levels."""
        chain: list[x.Syntax] = []
        waiting: list[x.Syntax] = [syntax]
        while waiting:
            top = waiting.pop()
            if isinstance(top, x.BinarySyntax) and top.operator == syntax.operator:
                waiting += [top.right, top.left]
            else:
                chain.append(top)
        bound: list[Expr] = []
        for member in chain:
            match syntax.operator, bound[-1:], member:
                case "OR", [e.In(e.Column() as level)], x.LiteralSyntax(value=str()) if level.name == LEVEL:
                    bound.append(e.In(level, frozenset({_literal(member)})))
                case _:
                    bound.append(self._boolean(member, aggregates))
        return normal.conjunction(tuple(bound)) if syntax.operator == "AND" else normal.disjunction(tuple(bound))

    def _comparable(self, position: Position, left: Expr, right: Expr) -> None:
        if e.wider(left.type, right.type) is None:
            hint = "CAST one of them"
            text, other = (left, right) if isinstance(left, e.Literal) else (right, left)
            if isinstance(text, e.Literal) and text.type == Type.STRING and other.type in _WRITTEN:
                hint = f"write {_WRITTEN[other.type]}"
            raise wrong(position, f"{_a(left.type)} cannot be compared with {_a(right.type)}", hint=hint)

    def _in(self, syntax: x.InSyntax, aggregates: bool) -> Expr:
        operand = self._bind(syntax.operand, aggregates)
        items = [self._bind(item, aggregates) for item in syntax.items]
        for item, written in zip(items, syntax.items, strict=True):
            self._comparable(written.position, operand, item)
        literals = [item for item in items if isinstance(item, e.Literal)]
        if len(literals) == len(items) and not isinstance(operand, e.Literal):
            found = normal.membership(operand, literals)
        else:
            self.room.take(syntax.position, (len(items) - 1) * len(operand.text))
            found = normal.disjunction(tuple(normal.compare("=", operand, item) for item in items))
        return self._negated(syntax, found) if syntax.negated else found

    def _between(self, syntax: x.BetweenSyntax, aggregates: bool) -> Expr:
        operand = self._bind(syntax.operand, aggregates)
        low, high = self._bind(syntax.low, aggregates), self._bind(syntax.high, aggregates)
        self._comparable(syntax.low.position, operand, low)
        self._comparable(syntax.high.position, operand, high)
        self.room.take(syntax.position, len(operand.text))
        found = normal.conjunction((normal.compare(">=", operand, low), normal.compare("<=", operand, high)))
        return self._negated(syntax, found) if syntax.negated else found

    def _like(self, syntax: x.LikeSyntax, aggregates: bool) -> Expr:
        operand = self._bind(syntax.operand, aggregates)
        if operand.type not in (Type.STRING, Type.NULL):
            raise wrong(syntax.position, f"LIKE needs a string, this is {_a(operand.type)}")
        if _LIKE_ESCAPES.search(syntax.pattern):
            message = "in a pattern, \\ stands before %, _ or \\ only"
            raise wrong(syntax.position, message, hint="write \\\\ for \\ itself")
        found: Expr = e.Like(operand, syntax.pattern)
        return self._negated(syntax, found) if syntax.negated else found

    def _case(self, syntax: x.CaseSyntax, aggregates: bool) -> Expr:
        branches = [(self._boolean(c, aggregates), self._bind(v, aggregates)) for c, v in syntax.branches]
        otherwise = self._bind(syntax.otherwise, aggregates) if syntax.otherwise else e.Literal(None, Type.NULL)
        result = otherwise.type
        for (_, value), (_, written) in zip(branches, syntax.branches, strict=True):
            both = e.wider(result, value.type)
            if both is None:
                message = f"this branch of CASE is {_a(value.type)}, another is {_a(result)}"
                raise wrong(written.position, message, hint="CAST one of them")
            result = both
        return e.Case(tuple(branches), otherwise, result)

    def _cast(self, syntax: x.CastSyntax, aggregates: bool) -> Expr:
        if syntax.literal:
            return _bytes(syntax) if syntax.type == Type.BINARY else _moment(syntax)
        operand, wanted = self._bind(syntax.operand, aggregates), Type(syntax.type)
        if operand.type == wanted:
            return operand
        if not castable(operand.type, wanted):
            hint = "CAST it to BIGINT first" if wanted == Type.STRING else ""
            raise wrong(syntax.position, f"{_a(operand.type)} cannot be cast to {_a(wanted)}", hint)
        return e.Cast(operand, wanted)

    # Calls ----------------------------------------------------------------------------------------------------------

    def _call(self, syntax: x.CallSyntax, aggregates: bool) -> Expr:
        if syntax.function in AGGREGATES:
            return self._aggregate(syntax, aggregates)
        function = FUNCTIONS.get(syntax.function)
        if function is None:
            known = [*FUNCTIONS, *AGGREGATES]
            longer = [x for x in known if x.startswith(syntax.function) or syntax.function.startswith(x)]
            hint = f"did you mean {longer[0]}?" if longer else _suggestion(syntax.function, known, 0.8)
            raise wrong(syntax.position, f"there is no function `{syntax.function}`", hint)
        if syntax.star or syntax.distinct:
            raise wrong(syntax.position, f"{syntax.function} does not take {'*' if syntax.star else 'DISTINCT'}")
        arguments = tuple(self._bind(a, aggregates) for a in syntax.arguments)
        return e.Call(syntax.function, arguments, _typed(syntax, function, [a.type for a in arguments]))

    def _aggregate(self, syntax: x.CallSyntax, aggregates: bool) -> Expr:
        if not aggregates:
            raise wrong(
                syntax.position,
                f"{syntax.function} is an aggregate and cannot stand here",
                hint="aggregates stand in SELECT and HAVING, not inside each other",
            )
        if syntax.star:
            if syntax.function != "COUNT":
                raise wrong(syntax.position, f"{syntax.function} does not take *")
            return e.AggregateCall("COUNT", None, False, Type.BIGINT)
        arguments = [self._bind(a, aggregates=False) for a in syntax.arguments]
        result = _typed(syntax, AGGREGATES[syntax.function], [a.type for a in arguments])
        return e.AggregateCall(syntax.function, arguments[0], syntax.distinct, result)


def _typed(syntax: x.CallSyntax, function: Function, types: Sequence[Type]) -> Type:
    if len(types) < function.least or (function.most is not None and len(types) > function.most):
        found = f"{len(types) or 'no'} argument{'' if len(types) == 1 else 's'}"
        raise wrong(syntax.position, f"{syntax.function} takes {function.wants}, found {found}")
    result = function.yields(types)
    if result is None:
        raise wrong(syntax.position, f"{syntax.function} takes {function.wants}, found {', '.join(map(_a, types))}")
    return result


def _literal(syntax: x.LiteralSyntax) -> e.Literal:
    value = syntax.value
    if value is None:
        return e.Literal(None, Type.NULL)
    if isinstance(value, bool):
        return e.Literal(value, Type.BOOLEAN)
    if isinstance(value, int):
        return e.Literal(value, Type.INT if value < 1 << 31 else Type.BIGINT)
    return e.Literal(value, Type.DOUBLE if isinstance(value, float) else Type.STRING)


def _moment(syntax: x.CastSyntax) -> e.Literal:
    """`DATE '2026-01-31'` or `TIMESTAMP '2026-01-31 12:00:00'`; a time without a zone is in UTC."""
    text = syntax.operand.value if isinstance(syntax.operand, x.LiteralSyntax) else None
    type_ = Type(syntax.type)
    example = "2026-01-31" if type_ == Type.DATE else "2026-01-31 12:00:00"
    refusal = wrong(syntax.position, f"this is not {_a(type_)}", hint=f"write {type_} '{example}'")
    if not (_DATE if type_ == Type.DATE else _TIMESTAMP).fullmatch(str(text)):
        raise refusal
    try:
        if type_ == Type.DATE:
            return e.Literal(dt.date.fromisoformat(str(text)), type_)
        found = dt.datetime.fromisoformat(str(text))
        return e.Literal(found.replace(tzinfo=found.tzinfo or dt.UTC).astimezone(dt.UTC), type_)
    except (ValueError, OverflowError):
        raise refusal from None


def _bytes(syntax: x.CastSyntax) -> e.Literal:
    """`X'00FF'`: two hexadecimal digits a byte."""
    text = syntax.operand.value if isinstance(syntax.operand, x.LiteralSyntax) else None
    if not _HEXADECIMAL.fullmatch(str(text)):
        raise wrong(syntax.position, "this is not a BINARY", hint="write two hexadecimal digits for each byte: X'00FF'")
    return e.Literal(bytes.fromhex(str(text)), Type.BINARY)


def _a(type_: Type) -> str:
    article = "an" if type_ == Type.INT else "a"
    return "NULL" if type_ == Type.NULL else f"{article} {type_}"
