"""Write expressions as SQL. SQL is generated from the expression tree only: text that a user wrote reaches an engine as
a quoted literal or a quoted column name and in no other way.

A DOUBLE may be infinite or NaN while it is computed, which stands for NULL (`raw`); it becomes NULL where anything else
reads it (`write`). So sums and products need no guard of their own.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable
from typing import Any

from headgate.expressions.sql import forms
from headgate.expressions.sql.dialect import ESCAPE, Dialect, plain_pattern
from headgate.plan import expressions as e
from headgate.plan.expressions import INTEGERS, Expr, Type, wider

Name = Callable[[e.Column | e.AggregateCall], str]
"""Returns the reference to a column, or to the column that holds an aggregate, quoted as the engine needs it."""

LONGEST = (1 << 31) - 1
"""No text is longer than this in any engine."""

_COMPARISONS = frozenset(("=", "<>", "<", "<=", ">", ">="))
_OPERATORS = frozenset("+-*/%")
_PARTS_OF_TIME = frozenset(("YEAR", "MONTH", "DAY", "HOUR", "MINUTE", "SECOND"))
_PIECES = re.compile(r"\\.|.", re.DOTALL)


class SqlWriter:
    """Writes expressions in one dialect."""

    def __init__(self, dialect: Dialect, name: Name) -> None:
        self.say = dialect
        self.name = name

    def write(self, expr: Expr) -> str:
        return self.say.finite(self.raw(expr)) if _wild(expr) else self.raw(expr)

    def read_as(self, expr: Expr, type_: Type) -> str:
        """Write an expression as a value of a type that is at least as wide as its own."""
        if expr.type == Type.NULL:
            return self.say.null(type_)
        return self.write(expr) if expr.type == type_ else self.say.cast(self.write(expr), type_)

    def raw(self, expr: Expr) -> str:
        match expr:
            case e.Column() | e.AggregateCall():
                return self.name(expr)
            case e.Literal():
                return self._literal(expr)
            case e.Arithmetic() if expr.operator in _OPERATORS:
                return self._whole(expr) if expr.result == Type.BIGINT else self._double(expr)
            case e.Case():
                return self._case(expr)
            case e.Cast():
                return self._cast(expr)
            case e.Call():
                return self._call(expr)
            case _:
                return self._condition(expr)

    # Literals -------------------------------------------------------------------------------------------------------

    def _literal(self, literal: e.Literal) -> str:
        match literal.value:
            case None:
                return self.say.null(literal.type)
            case bool(value):
                return str(value).upper()
            case str(value):
                return self.say.text(value)
            case bytes(value):
                return self.say.binary(value.hex().upper())
            case float(value):
                found = self.say.cast(f"'{value!r}'", Type.DOUBLE)
                return self.say.cast(found, Type.FLOAT) if literal.type == Type.FLOAT else found
            case dt.datetime() as value:
                moment = value.astimezone(dt.UTC).replace(tzinfo=None)
                return self.say.cast(f"'{moment.isoformat(' ')}'", Type.TIMESTAMP)
            case value:
                return self.say.cast(f"'{value}'", literal.type)

    # Conditions -----------------------------------------------------------------------------------------------------

    def _condition(self, expr: Expr) -> str:
        match expr:
            case e.Compare() if expr.operator in _COMPARISONS:
                common = wider(expr.left.type, expr.right.type) or Type.NULL
                return f"({self.read_as(expr.left, common)} {expr.operator} {self.read_as(expr.right, common)})"
            case e.In():
                return self._in(expr)
            case e.And():
                return "(" + " AND ".join(self.read_as(part, Type.BOOLEAN) for part in expr.parts) + ")"
            case e.Or():
                return "(" + " OR ".join(self.read_as(part, Type.BOOLEAN) for part in expr.parts) + ")"
            case e.Not():
                return f"(NOT {self.read_as(expr.operand, Type.BOOLEAN)})"
            case e.IsNull():
                return f"({self.write(expr.operand)} IS NULL)"
            case e.Like():
                return self.say.like(self.read_as(expr.operand, Type.STRING), _pattern(expr.pattern))
        raise TypeError(f"no expression: {expr!r}")

    def _in(self, expr: e.In) -> str:
        """The type of each item decides the type of its comparison; items that are compared alike form one list."""
        lists: dict[Type, list[str]] = {}
        for item in sorted(expr.items, key=str):
            common = wider(expr.operand.type, item.type) or Type.NULL
            lists.setdefault(common, []).append(self.read_as(item, common))

        def any_of(operand: str) -> str:
            alternatives = (
                f"{operand if type_ == expr.operand.type else self.say.cast(operand, type_)} IN ({', '.join(items)})"
                for type_, items in lists.items()
            )
            return "(" + " OR ".join(alternatives) + ")"

        if expr.operand.type == Type.NULL:
            return self.say.null(Type.BOOLEAN)
        operand = self.write(expr.operand)
        return any_of(operand) if len(lists) == 1 else self.say.let(any_of, operand)

    # Arithmetic -----------------------------------------------------------------------------------------------------

    def _whole(self, expr: e.Arithmetic) -> str:
        return self.say.whole(expr.operator, *(self.read_as(operand, Type.BIGINT) for operand in expr.operands))

    def _double(self, expr: e.Arithmetic) -> str:
        """An infinite x makes x + y, x - y and x * y infinite or NaN, so only a divisor must be made NULL first."""
        first = self._as_double(expr.operands[0])
        if len(expr.operands) == 1:
            return f"(-{first})"
        if expr.operator in "/%":
            return self.say.divided(expr.operator, first, self.read_as(expr.operands[1], Type.DOUBLE))
        return f"({first} {expr.operator} {self._as_double(expr.operands[1])})"

    def _as_double(self, expr: Expr) -> str:
        return self.raw(expr) if expr.type == Type.DOUBLE else self.read_as(expr, Type.DOUBLE)

    def _case(self, expr: e.Case) -> str:
        if expr.result == Type.NULL:
            return self.say.null(Type.NULL)
        branches = " ".join(
            f"WHEN {self.read_as(condition, Type.BOOLEAN)} THEN {self.read_as(value, expr.result)}"
            for condition, value in expr.branches
        )
        return f"CASE {branches} ELSE {self.read_as(expr.otherwise, expr.result)} END"

    # Casts ----------------------------------------------------------------------------------------------------------

    def _cast(self, expr: e.Cast) -> str:
        source, pushdown = expr.operand.type, expr.result
        if source in (Type.NULL, pushdown):
            return self.read_as(expr.operand, pushdown)
        if source == Type.STRING:
            return self._from_text(self.say.trimmed(self.write(expr.operand)), pushdown)
        if pushdown == Type.BOOLEAN:
            return f"({self.write(expr.operand)} <> 0)"
        if source in (Type.FLOAT, Type.DOUBLE) and pushdown in INTEGERS:
            return self.say.truncated(self.raw(expr.operand), pushdown)
        if source == Type.DOUBLE and pushdown == Type.FLOAT:
            return self.say.rounded(self.raw(expr.operand))
        if source == Type.BIGINT and pushdown == Type.INT:
            return self.say.tried(self.write(expr.operand), pushdown)
        return self.say.cast(self.write(expr.operand), pushdown)

    def _from_text(self, text: str, pushdown: Type) -> str:
        match pushdown:
            case Type.INT | Type.BIGINT:
                return self.say.tried(self.say.formed(text, forms.WHOLE), pushdown)
            case Type.BOOLEAN:
                return self.say.tried(self.say.formed(text, forms.TRUTH), pushdown)
            case Type.DATE:
                return self.say.tried(self.say.formed(text, forms.DATE), pushdown)
            case Type.TIMESTAMP:
                return self.say.moment(self.say.formed(text, forms.TIME))
            case Type.FLOAT:
                return self.say.rounded(self._from_text(text, Type.DOUBLE))
            case _:
                return self.say.tried(self.say.formed(text, forms.NUMBER), Type.DOUBLE)

    # Calls ----------------------------------------------------------------------------------------------------------

    def _call(self, call: e.Call) -> str:
        match call.function:
            case _ if call.result == Type.NULL:
                return self.say.null(Type.NULL)
            case "COALESCE" | "GREATEST" | "LEAST":
                return f"{call.function}({', '.join(self.read_as(x, call.result) for x in call.arguments)})"
            case "NULLIF":
                return self._nullif(*call.arguments)
            case "ABS" | "SQRT" | "CEIL" | "FLOOR":
                return self._of_number(call, call.arguments[0])
            case function if function in _PARTS_OF_TIME:
                moment = call.arguments[0]
                found = self.say.null(Type.TIMESTAMP) if moment.type == Type.NULL else self.write(moment)
                return self.say.cast(f"{function}({found})", Type.INT)
            case _:
                return self._of_text(call, self.read_as(call.arguments[0], Type.STRING))

    def _of_number(self, call: e.Call, number: Expr) -> str:
        match call.function:
            case "SQRT":
                return f"sqrt({self._as_double(number)})"
            case "ABS" if call.result == Type.DOUBLE:
                return f"abs({self._as_double(number)})"
            case "ABS":
                return self.say.absolute(self.read_as(number, Type.BIGINT))
            case function if number.type in (Type.FLOAT, Type.DOUBLE):
                return self.say.stepped(function, self._as_double(number))
            case _:
                return self.read_as(number, Type.BIGINT)

    def _of_text(self, call: e.Call, text: str) -> str:
        match call.function:
            case "TRIM":
                return self.say.trimmed(text)
            case "LOWER" | "UPPER":
                return self.say.letters(call.function, text)
            case "LENGTH":
                return self.say.cast(f"length({text})", Type.INT)
            case "CONCAT":
                return self.say.joined([text, *(self.read_as(x, Type.STRING) for x in call.arguments[1:])])
            case "SUBSTRING":
                return self._substring(text, call.arguments[1:])
        raise TypeError(f"no expression: {call!r}")

    def _nullif(self, x: Expr, y: Expr) -> str:
        common = wider(x.type, y.type) or Type.NULL

        def unless_equal(left: str, right: str) -> str:
            compared = left if x.type == common else self.say.cast(left, common)
            return f"CASE WHEN {compared} = {right} THEN NULL ELSE {left} END"

        return self.say.let(unless_equal, self.write(x), self.read_as(y, common))

    def _substring(self, text: str, bounds: tuple[Expr, ...]) -> str:
        known = [bound.value for bound in bounds if isinstance(bound, e.Literal)]
        if len(known) == len(bounds):
            return self._known_part(text, *known)
        return self.say.let(self._part, text, *(self.read_as(bound, Type.BIGINT) for bound in bounds))

    def _known_part(self, text: str, start: Any, *length: Any) -> str:
        if None in (start, *length) or (length and length[0] < 0):
            return self.say.null(Type.STRING)
        first = max(start, 1)
        count = start + length[0] - first if length else LONGEST
        return f"substring({text}, {min(first, LONGEST)}, {min(max(count, 0), LONGEST)})"

    def _part(self, text: str, start: str, length: str | None = None) -> str:
        first = self.say.cast(f"least(greatest({start}, 1), {LONGEST})", Type.INT)
        if length is None:
            return f"CASE WHEN {start} IS NOT NULL THEN substring({text}, {first}, {LONGEST}) END"
        reach = f"greatest({self.say.sum_or_more(start, length)}, 1) - greatest({start}, 1)"
        count = self.say.cast(f"greatest(least({reach}, {LONGEST}), 0)", Type.INT)
        return f"CASE WHEN {start} IS NOT NULL AND {length} >= 0 THEN substring({text}, {first}, {count}) END"


def _wild(expr: Expr) -> bool:
    """Whether the raw value may be not finite."""
    match expr:
        case e.Arithmetic(_, (operand,), Type.DOUBLE) | e.Call("ABS", (operand,), Type.DOUBLE):
            return _wild(operand)
        case e.Arithmetic(_, _, Type.DOUBLE) | e.Call("SQRT"):
            return True
        case e.Cast(operand, Type.DOUBLE):
            return operand.type == Type.STRING
    return False


def is_plain(expr: e.Like) -> bool:
    """Whether the pattern searches for a text, at the beginning, at the end or anywhere."""
    return plain_pattern(_pattern(expr.pattern)) is not None


def _pattern(pattern: str) -> str:
    """Convert a CQL pattern, in which a backslash escapes, to one in which ESCAPE does."""

    def piece(found: re.Match[str]) -> str:
        if found[0] in ("%", "_"):
            return found[0]
        char = found[0][-1]
        return ESCAPE + char if char in ("%", "_", ESCAPE) else char

    return _PIECES.sub(piece, pattern)
