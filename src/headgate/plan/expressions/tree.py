"""The base class of all expressions, and the leaves of their trees: columns and literals."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterator
from dataclasses import dataclass, fields
from functools import cached_property

from headgate.cql.expressions import RESERVED
from headgate.plan.expressions.types import Type, Value

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)


def written(name: str) -> str:
    """A column's name as expressions write it."""
    plain = _PLAIN.fullmatch(name) and name.upper() not in RESERVED
    return name if plain else "`" + name.replace("`", "``") + "`"


@dataclass(frozen=True)
class Expr:
    """`type` is the type of its value; `parts` are the expressions inside it."""

    @property
    def type(self) -> Type:
        raise NotImplementedError

    @property
    def parts(self) -> tuple[Expr, ...]:
        return ()

    def rebuilt(self, parts: tuple[Expr, ...]) -> Expr:  # noqa: ARG002
        """The same expression with other parts, in the order of `parts`."""
        return self

    @cached_property
    def columns(self) -> frozenset[Column]:
        """Every column that it reads."""
        if isinstance(self, Column):
            return frozenset({self})
        return frozenset().union(*(part.columns for part in self.parts))

    @property
    def inputs(self) -> frozenset[int]:
        return frozenset(column.input for column in self.columns)

    @cached_property
    def text(self) -> str:
        """The text of the expression.

        INVARIANT: over the same inputs, expressions of different meaning have different texts: normal forms and the
        keys of plan nodes rely on it.
        """
        raise NotImplementedError

    def __str__(self) -> str:
        return self.text

    def __hash__(self) -> int:
        return hash(self.text)

    def __getstate__(self) -> dict[str, object]:
        """Only the fields: a column is among its own cached `columns`, and could not be hashed while it is read."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

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
            case bytes(data):
                return f"X'{data.hex().upper()}'"
            case dt.date():
                return f"{self.literal_type} '{self.value.isoformat()}'"
            case _:
                return str(self.value).upper()

    __hash__ = Expr.__hash__
