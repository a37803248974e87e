"""The operators of plans: small frozen nodes with value equality (paper 002, Definition 1).

A node is its operator, its parameters and its inputs. So two nodes are equivalent (Definition 2) exactly if they are
equal, and complete sharing means finding the same value. `key` is a short stable name for that value, the same in every
process; running state is kept by it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from headgate.cql.queries import StreamOperator, WindowKind
from headgate.plan.expressions import AggregateCall, Column, Expr, Type, written
from headgate.plan.functions import accumulators

Columns = tuple[tuple[str, Type], ...]


@dataclass(frozen=True, eq=False)
class Node:
    """`blocking` operators keep a synopsis; the paper shares them only if they are equal (Definition 3)."""

    blocking: ClassVar[bool] = False

    @property
    def inputs(self) -> tuple[Node, ...]:
        return ()

    @property
    def parameters(self) -> str:
        raise NotImplementedError

    @cached_property
    def key(self) -> str:
        text = f"{type(self).__name__}|{self.parameters}|{','.join(node.key for node in self.inputs)}"
        return hashlib.sha256(text.encode()).hexdigest()[:32]

    def walk(self) -> Iterator[Node]:
        """This node and all nodes below it, each once, inputs first."""
        found: dict[str, Node] = {}

        def visit(node: Node) -> None:
            if node.key not in found:
                for below in node.inputs:
                    visit(below)
                found[node.key] = node

        visit(self)
        yield from found.values()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Node) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)

    def __str__(self) -> str:
        return f"{type(self).__name__}({self.parameters})"


@dataclass(frozen=True, eq=False)
class Unary(Node):
    """An operator over one input."""

    input: Node

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.input,)


@dataclass(frozen=True, eq=False)
class Source(Node):
    """A stream, by its name as a source in labels (`joe.in1`). The name is given once and never reused for another
    stream."""

    stream: str

    @property
    def parameters(self) -> str:
        return self.stream


@dataclass(frozen=True, eq=False)
class Table(Source):
    """A source whose tuples are all there at every instant, and which therefore has no window."""


@dataclass(frozen=True, eq=False)
class Select(Unary):
    """The input's rows that meet all conditions."""

    conditions: frozenset[Expr]

    @property
    def parameters(self) -> str:
        return " AND ".join(sorted(map(str, self.conditions)))


@dataclass(frozen=True, eq=False)
class Window(Unary):
    """The content of a window at each instant; durations are in milliseconds."""

    blocking: ClassVar[bool] = True
    kind: WindowKind
    rows: int = 0
    range: int = 0
    slide: int = 0
    partition: tuple[Column, ...] = ()

    @property
    def parameters(self) -> str:
        match self.kind:
            case "ROWS":
                return f"ROWS {self.rows}"
            case "RANGE":
                return f"RANGE {self.range} ms" + (f" SLIDE {self.slide} ms" if self.slide else "")
            case "PARTITIONED":
                return f"PARTITIONED BY {', '.join(map(str, self.partition))} ROWS {self.rows}"
            case _:
                return self.kind


@dataclass(frozen=True, eq=False)
class Join(Node):
    """All combinations of the inputs' rows that meet the conditions; each column names its input by number."""

    blocking: ClassVar[bool] = True
    sides: tuple[Node, ...]
    conditions: frozenset[Expr]

    @property
    def inputs(self) -> tuple[Node, ...]:
        return self.sides

    @property
    def parameters(self) -> str:
        return " AND ".join(sorted(map(str, self.conditions))) or "all"


@dataclass(frozen=True, eq=False)
class Aggregate(Unary):
    """One row per group. The operators above it read the group's columns and the results of its calls."""

    blocking: ClassVar[bool] = True
    groups: frozenset[Column]
    calls: frozenset[AggregateCall]

    @property
    def parameters(self) -> str:
        by = f" BY {', '.join(sorted(map(str, self.groups)))}" if self.groups else ""
        return f"{', '.join(sorted(map(str, self.calls)))}{by}"

    @property
    def accumulators(self) -> frozenset[AggregateCall]:
        """The accumulators of its calls: aggregates over the same input and grouping share them."""
        return frozenset(kept for call in self.calls for kept in accumulators(call))


@dataclass(frozen=True, eq=False)
class Project(Unary):
    """The values of a result, with their names."""

    items: tuple[tuple[str, Expr], ...]

    @property
    def parameters(self) -> str:
        return ", ".join(f"{expr} AS {written(name)}" for name, expr in self.items)

    @property
    def columns(self) -> Columns:
        return tuple((name, expr.type) for name, expr in self.items)


@dataclass(frozen=True, eq=False)
class Distinct(Unary):
    blocking: ClassVar[bool] = True

    @property
    def parameters(self) -> str:
        return ""


@dataclass(frozen=True, eq=False)
class ToStream(Unary):
    """Relation to stream: ISTREAM emits the rows that are new at an instant, DSTREAM those that are gone, RSTREAM
    all."""

    operator: StreamOperator

    @property
    def parameters(self) -> str:
        return self.operator


@dataclass(frozen=True, eq=False)
class Union(Node):
    """The results of all inputs, in their order."""

    blocks: tuple[Node, ...]

    @property
    def inputs(self) -> tuple[Node, ...]:
        return self.blocks

    @property
    def parameters(self) -> str:
        return "ALL"
