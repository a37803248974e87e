"""Expressions that compute: arithmetic, CASE, casts, functions and aggregates.

The binder decides the type of each result.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from headgate.plan.expressions.tree import Expr
from headgate.plan.expressions.types import Type


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
