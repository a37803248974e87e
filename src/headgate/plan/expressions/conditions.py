"""Expressions that are true, false or NULL."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from headgate.plan.expressions.tree import Expr, Literal
from headgate.plan.expressions.types import Type


@dataclass(frozen=True)
class Condition(Expr):
    @property
    def type(self) -> Type:
        return Type.BOOLEAN

    __hash__ = Expr.__hash__


@dataclass(frozen=True)
class Compare(Condition):
    """`=`, `<>`, `<`, `<=`, `>`, `>=`."""

    operator: str
    left: Expr
    right: Expr

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
class And(Condition):
    operands: frozenset[Expr]

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
class Or(Condition):
    operands: frozenset[Expr]

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
class Not(Condition):
    operand: Expr

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
class IsNull(Condition):
    operand: Expr

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
class In(Condition):
    """Membership in a set of literals."""

    operand: Expr
    items: frozenset[Literal]

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
class Like(Condition):
    operand: Expr
    pattern: str

    @property
    def parts(self) -> tuple[Expr, ...]:
        return (self.operand,)

    def rebuilt(self, parts: tuple[Expr, ...]) -> Expr:
        return Like(parts[0], self.pattern)

    @cached_property
    def text(self) -> str:
        return f"{_operand(self.operand)} LIKE {Literal(self.pattern, Type.STRING)}"

    __hash__ = Expr.__hash__


def _operand(expr: Expr) -> str:
    """The text of an operand. Conditions inside conditions are parenthesised: otherwise different expressions could
    have the same text, and nodes would be mistaken for each other."""
    return f"({expr})" if isinstance(expr, Compare | Not | IsNull | In | Like) else str(expr)


def typed_text(expr: Expr) -> str:
    """The text of an expression with the types of all its parts: expressions that people read alike may differ in
    types, and then in values."""
    return f"{expr}:{_types(expr)}"


def _types(expr: Expr) -> str:
    if isinstance(expr, And | Or):  # parts with the same text have no order of their own
        return f"BOOLEAN({','.join(sorted(map(typed_text, expr.parts)))})"
    inside = [_types(part) for part in expr.parts]
    if isinstance(expr, In):
        inside += sorted(f"{item} {item.type}" for item in expr.items)
    return f"{expr.type}({','.join(inside)})" if inside else str(expr.type)
