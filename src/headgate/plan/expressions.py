"""Expressions, as meant: typed, bound to columns, comparable by value.

Columns know which input of the query they belong to, not what the query calls it, so differently written but equal
expressions are equal. The constructors bring each into one form (`120 < bp` is `bp > 120`).
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

from headgate.cql.expressions import RESERVED


class Type(StrEnum):
    BOOLEAN = "BOOLEAN"
    INT = "INT"
    BIGINT = "BIGINT"
    FLOAT = "FLOAT"
    DOUBLE = "DOUBLE"
    STRING = "STRING"
    TIMESTAMP = "TIMESTAMP"
    DATE = "DATE"
    NULL = "NULL"  # of the literal NULL: fits everywhere

    @property
    def numeric(self) -> bool:
        return self in _WIDTH


_WIDTH = {Type.INT: 0, Type.BIGINT: 1, Type.FLOAT: 2, Type.DOUBLE: 3}
INTEGERS = frozenset({Type.INT, Type.BIGINT})

# Timestamps are in UTC. Numbers are finite: what is no number, or too large for one, is NULL.
Value = bool | int | float | str | dt.date | dt.datetime | None

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)


def written(name: str) -> str:
    """A column's name as expressions write it."""
    plain = _PLAIN.fullmatch(name) and name.upper() not in RESERVED
    return name if plain else "`" + name.replace("`", "``") + "`"


def wider(a: Type, b: Type) -> Type | None:
    """The type both can be read as; None if there is none."""
    if a == b or b == Type.NULL:
        return a
    if a == Type.NULL:
        return b
    if a.numeric and b.numeric:
        both = {a, b}
        if Type.FLOAT in both and not both <= {Type.FLOAT, Type.INT}:
            return Type.DOUBLE
        return max(a, b, key=_WIDTH.__getitem__)
    return None


def castable(a: Type, b: Type) -> bool:
    """Whether a value of the first type can be meant as one of the second; then it may still turn out NULL."""
    if b == Type.STRING:
        return a not in (Type.FLOAT, Type.DOUBLE)  # every engine writes them differently
    if a == b or a in (Type.NULL, Type.STRING):
        return True
    moments = {Type.TIMESTAMP, Type.DATE}
    return {a, b} == moments or ({a, b} & moments == set())


@dataclass(frozen=True)
class Expr:
    """`type` is what it yields; `parts` are the expressions inside it."""

    @property
    def type(self) -> Type:
        raise NotImplementedError

    @property
    def parts(self) -> tuple[Expr, ...]:
        return ()

    def rebuilt(self, parts: tuple[Expr, ...]) -> Expr:  # noqa: ARG002
        """The same with other parts, in the order of `parts`."""
        return self

    @cached_property
    def columns(self) -> frozenset[Column]:
        """Every column it reads."""
        if isinstance(self, Column):
            return frozenset({self})
        return frozenset().union(*(part.columns for part in self.parts))

    @property
    def inputs(self) -> frozenset[int]:
        return frozenset(column.input for column in self.columns)

    @cached_property
    def text(self) -> str:
        """Differs wherever the meaning differs: normal forms and the keys of plans go by it."""
        raise NotImplementedError

    def __str__(self) -> str:
        return self.text

    def __hash__(self) -> int:
        return hash(self.text)

    def walk(self) -> Iterator[Expr]:
        yield self
        for part in self.parts:
            yield from part.walk()


@dataclass(frozen=True)
class Column(Expr):
    """A column of the operator's input; `LEVEL` is the tuple's level. Names are as the stream declares them."""

    input: int
    name: str
    column_type: Type

    @property
    def type(self) -> Type:
        return self.column_type

    @cached_property
    def text(self) -> str:
        return f"{written(self.name)}@{self.input}" if self.input else written(self.name)

    __hash__ = Expr.__hash__


@dataclass(frozen=True)
class Literal(Expr):
    value: Value
    literal_type: Type

    @property
    def type(self) -> Type:
        return self.literal_type

    @cached_property
    def text(self) -> str:
        match self.value:
            case None:
                return "NULL"
            case str(text):
                return "'" + text.replace("'", "''") + "'"
            case dt.date():
                return f"{self.literal_type} '{self.value.isoformat()}'"
            case _:
                return str(self.value).upper()

    __hash__ = Expr.__hash__


@dataclass(frozen=True)
class Compare(Expr):
    """`=`, `<>`, `<`, `<=`, `>`, `>=`."""

    operator: str
    left: Expr
    right: Expr

    @property
    def type(self) -> Type:
        return Type.BOOLEAN

    @property
    def parts(self) -> tuple[Expr, ...]:
        return self.left, self.right

    def rebuilt(self, parts: tuple[Expr, ...]) -> Expr:
        return Compare(self.operator, *parts)

    @cached_property
    def text(self) -> str:
        return f"{_operand(self.left)} {self.operator} {_operand(self.right)}"

    __hash__ = Expr.__hash__


@dataclass(frozen=True)
class And(Expr):
    operands: frozenset[Expr]

    @property
    def type(self) -> Type:
        return Type.BOOLEAN

    @property
    def parts(self) -> tuple[Expr, ...]:
        return tuple(sorted(self.operands, key=str))

    def rebuilt(self, parts: tuple[Expr, ...]) -> Expr:
        return And(frozenset(parts))

    @cached_property
    def text(self) -> str:
        return "(" + " AND ".join(map(str, self.parts)) + ")"

    __hash__ = Expr.__hash__


@dataclass(frozen=True)
class Or(Expr):
    operands: frozenset[Expr]

    @property
    def type(self) -> Type:
        return Type.BOOLEAN

    @property
    def parts(self) -> tuple[Expr, ...]:
        return tuple(sorted(self.operands, key=str))

    def rebuilt(self, parts: tuple[Expr, ...]) -> Expr:
        return Or(frozenset(parts))

    @cached_property
    def text(self) -> str:
        return "(" + " OR ".join(map(str, self.parts)) + ")"

    __hash__ = Expr.__hash__


@dataclass(frozen=True)
class Not(Expr):
    operand: Expr

    @property
    def type(self) -> Type:
        return Type.BOOLEAN

    @property
    def parts(self) -> tuple[Expr, ...]:
        return (self.operand,)

    def rebuilt(self, parts: tuple[Expr, ...]) -> Expr:
        return Not(*parts)

    @cached_property
    def text(self) -> str:
        return f"NOT {_operand(self.operand)}"

    __hash__ = Expr.__hash__


@dataclass(frozen=True)
class IsNull(Expr):
    operand: Expr

    @property
    def type(self) -> Type:
        return Type.BOOLEAN

    @property
    def parts(self) -> tuple[Expr, ...]:
        return (self.operand,)

    def rebuilt(self, parts: tuple[Expr, ...]) -> Expr:
        return IsNull(*parts)

    @cached_property
    def text(self) -> str:
        return f"{_operand(self.operand)} IS NULL"

    __hash__ = Expr.__hash__


@dataclass(frozen=True)
class In(Expr):
    """Membership in a set of literals."""

    operand: Expr
    items: frozenset[Literal]

    @property
    def type(self) -> Type:
        return Type.BOOLEAN

    @property
    def parts(self) -> tuple[Expr, ...]:
        return (self.operand,)

    def rebuilt(self, parts: tuple[Expr, ...]) -> Expr:
        return In(parts[0], self.items)

    @cached_property
    def text(self) -> str:
        if len(self.items) == 1:
            return f"{_operand(self.operand)} = {next(iter(self.items))}"
        return f"{_operand(self.operand)} IN ({', '.join(sorted(map(str, self.items)))})"

    __hash__ = Expr.__hash__


@dataclass(frozen=True)
class Like(Expr):
    operand: Expr
    pattern: str

    @property
    def type(self) -> Type:
        return Type.BOOLEAN

    @property
    def parts(self) -> tuple[Expr, ...]:
        return (self.operand,)

    def rebuilt(self, parts: tuple[Expr, ...]) -> Expr:
        return Like(parts[0], self.pattern)

    @cached_property
    def text(self) -> str:
        return f"{_operand(self.operand)} LIKE {Literal(self.pattern, Type.STRING)}"

    __hash__ = Expr.__hash__


@dataclass(frozen=True)
class Arithmetic(Expr):
    """`+ - * / %` and, with one operand, unary minus."""

    operator: str
    operands: tuple[Expr, ...]
    result: Type

    @property
    def type(self) -> Type:
        return self.result

    @property
    def parts(self) -> tuple[Expr, ...]:
        return self.operands

    def rebuilt(self, parts: tuple[Expr, ...]) -> Expr:
        return Arithmetic(self.operator, parts, self.result)

    @cached_property
    def text(self) -> str:
        if len(self.operands) == 1:
            return f"(-{self.operands[0]})"
        return f"({self.operands[0]} {self.operator} {self.operands[1]})"

    __hash__ = Expr.__hash__


@dataclass(frozen=True)
class Case(Expr):
    branches: tuple[tuple[Expr, Expr], ...]
    otherwise: Expr
    result: Type

    @property
    def type(self) -> Type:
        return self.result

    @property
    def parts(self) -> tuple[Expr, ...]:
        return (*(part for branch in self.branches for part in branch), self.otherwise)

    def rebuilt(self, parts: tuple[Expr, ...]) -> Expr:
        return Case(tuple(zip(parts[:-1:2], parts[1:-1:2], strict=True)), parts[-1], self.result)

    @cached_property
    def text(self) -> str:
        whens = " ".join(f"WHEN {condition} THEN {value}" for condition, value in self.branches)
        return f"CASE {whens} ELSE {self.otherwise} END"

    __hash__ = Expr.__hash__


@dataclass(frozen=True)
class Cast(Expr):
    operand: Expr
    result: Type

    @property
    def type(self) -> Type:
        return self.result

    @property
    def parts(self) -> tuple[Expr, ...]:
        return (self.operand,)

    def rebuilt(self, parts: tuple[Expr, ...]) -> Expr:
        return Cast(parts[0], self.result)

    @cached_property
    def text(self) -> str:
        return f"CAST({self.operand} AS {self.result})"

    __hash__ = Expr.__hash__


@dataclass(frozen=True)
class Call(Expr):
    function: str
    arguments: tuple[Expr, ...]
    result: Type

    @property
    def type(self) -> Type:
        return self.result

    @property
    def parts(self) -> tuple[Expr, ...]:
        return self.arguments

    def rebuilt(self, parts: tuple[Expr, ...]) -> Expr:
        return Call(self.function, parts, self.result)

    @cached_property
    def text(self) -> str:
        return f"{self.function}({', '.join(map(str, self.arguments))})"

    __hash__ = Expr.__hash__


@dataclass(frozen=True)
class AggregateCall(Expr):
    """`argument` is None for COUNT(*)."""

    function: str
    argument: Expr | None
    distinct: bool
    result: Type

    @property
    def type(self) -> Type:
        return self.result

    @property
    def parts(self) -> tuple[Expr, ...]:
        return () if self.argument is None else (self.argument,)

    def rebuilt(self, parts: tuple[Expr, ...]) -> Expr:
        return AggregateCall(self.function, parts[0] if parts else None, self.distinct, self.result)

    @cached_property
    def text(self) -> str:
        inside = "*" if self.argument is None else str(self.argument)
        return f"{self.function}({'DISTINCT ' if self.distinct else ''}{inside})"

    __hash__ = Expr.__hash__


def _operand(expr: Expr) -> str:
    """Conditions inside conditions stand in parentheses: no two expressions have the same text, or nodes would be
    mistaken for each other."""
    return f"({expr})" if isinstance(expr, Compare | Not | IsNull | In | Like) else str(expr)
