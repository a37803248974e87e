"""The operators of plans: small frozen nodes with value equality (paper 002, Definition 1).

A node is its operator, its parameters with the types of all they read, and its inputs. So two nodes are equivalent
(Definition 2) exactly if they are equal, and complete sharing means finding the same value. `key` is a short stable
name for that value, the same in every process; running state is kept by it. A node checks itself when it is made, so
that every tree that exists can be executed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from headgate.cql.queries import StreamOperator, WindowKind
from headgate.plan.expressions import AggregateCall, Column, Expr, Type, typed_text, written
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

    @property
    def expressions(self) -> Iterable[Expr]:
        """The expressions among its parameters."""
        return ()

    @property
    def width(self) -> int:
        """How many inputs the columns of operators above it may name: the sides of a join, else one."""
        return 1

    @property
    def computed(self) -> frozenset[AggregateCall]:
        """The aggregates whose results operators above it may read."""
        return frozenset()

    @cached_property
    def key(self) -> str:
        types = ",".join(sorted(map(typed_text, self.expressions)))
        text = f"{type(self).__name__}|{self.parameters}|{types}|{','.join(node.key for node in self.inputs)}"
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

    def _check(self, holds: bool, rule: str) -> None:
        if not holds:
            raise ValueError(f"cannot make {self}: {rule}")

    def _check_reads(self, exprs: Iterable[Expr], width: int, computed: frozenset[AggregateCall]) -> None:
        """Checks that expressions read inputs that there are, and aggregates that the input computes."""
        for expr in exprs:
            for column in expr.columns:
                self._check(column.input < width, f"`{column}` reads input {column.input} of {width}")
            for part in expr.walk():
                if isinstance(part, AggregateCall):
                    self._check(part in computed, f"`{part}` stands above no aggregate")

    def _check_conditions(self, conditions: Iterable[Expr]) -> None:
        for x in conditions:
            self._check(x.type in (Type.BOOLEAN, Type.NULL), f"a condition is BOOLEAN, `{x}` is {x.type}")


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

    def __post_init__(self) -> None:
        self._check(bool(self.stream), "a source has a name")

    @property
    def parameters(self) -> str:
        return self.stream


@dataclass(frozen=True, eq=False)
class Arrivals(Source):
    """A stream as a stateless block reads it: tuple by tuple as they arrive. Windows read a `Source` in the order of
    event time, once times are final, so the two have no operator in common."""


@dataclass(frozen=True, eq=False)
class Table(Source):
    """A source whose tuples are all there at every instant, and which therefore has no window."""


@dataclass(frozen=True, eq=False)
class Select(Unary):
    """The input's rows that meet all conditions."""

    conditions: frozenset[Expr]

    def __post_init__(self) -> None:
        self._check_conditions(self.conditions)
        self._check_reads(self.conditions, self.input.width, self.input.computed)

    @property
    def parameters(self) -> str:
        return " AND ".join(sorted(map(str, self.conditions)))

    @property
    def expressions(self) -> Iterable[Expr]:
        return self.conditions

    @property
    def width(self) -> int:
        return self.input.width

    @property
    def computed(self) -> frozenset[AggregateCall]:
        return self.input.computed


@dataclass(frozen=True, eq=False)
class Window(Unary):
    """The content of a window at each instant; durations are in milliseconds."""

    blocking: ClassVar[bool] = True
    kind: WindowKind
    rows: int = 0
    range: int = 0
    slide: int = 0
    partition: tuple[Column, ...] = ()

    def __post_init__(self) -> None:
        counted, name = self.kind in ("ROWS", "PARTITIONED"), f"a window of {self.kind}"
        self._check(self.rows > 0 or not counted, f"{name} has 1 row or more")
        self._check(self.rows == 0 or counted, f"{name} has no rows")
        self._check((self.range, self.slide) == (0, 0) or self.kind == "RANGE", f"{name} has no range")
        self._check(self.range >= 0 and self.slide >= 0, f"{name} has a range")
        self._check(bool(self.partition) or self.kind != "PARTITIONED", f"{name} has columns")
        self._check(not self.partition or self.kind == "PARTITIONED", f"{name} has no columns")
        self._check_reads(self.partition, self.input.width, frozenset())

    @property
    def expressions(self) -> Iterable[Expr]:
        return self.partition

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

    def __post_init__(self) -> None:
        self._check(len(self.sides) > 1, "a join has 2 sides or more")
        self._check_conditions(self.conditions)
        self._check_reads(self.conditions, len(self.sides), frozenset())

    @property
    def expressions(self) -> Iterable[Expr]:
        return self.conditions

    @property
    def width(self) -> int:
        return len(self.sides)

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

    def __post_init__(self) -> None:
        arguments = [part for call in self.calls for part in call.parts]
        self._check_reads([*self.groups, *arguments], self.input.width, frozenset())

    @property
    def expressions(self) -> Iterable[Expr]:
        return (*self.groups, *self.calls)

    @property
    def width(self) -> int:
        return self.input.width

    @property
    def computed(self) -> frozenset[AggregateCall]:
        return self.calls

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

    def __post_init__(self) -> None:
        self._check(bool(self.items), "a projection has columns")
        self._check_reads(self.expressions, self.input.width, self.input.computed)

    @property
    def expressions(self) -> Iterable[Expr]:
        return [expr for _, expr in self.items]

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

    def __post_init__(self) -> None:
        self._check(len(self.blocks) > 1, "a union has 2 blocks or more")
        types = {tuple(type_ for _, type_ in _columns(block)) for block in self.blocks}
        self._check(len(types) == 1, "the blocks of a union have the same types")

    @property
    def inputs(self) -> tuple[Node, ...]:
        return self.blocks

    @property
    def parameters(self) -> str:
        return "ALL"


def _columns(block: Node) -> Columns:
    """The columns of the results of a block; what stands above its projection changes none."""
    while not isinstance(block, Project):
        (block,) = block.inputs
    return block.columns
