"""A continuous query: the definition of a running query, as the engine uses it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from headgate.cql.deadlines import Deadline, Version
from headgate.labels import Label, Level
from headgate.plan.expressions import Column, Expr
from headgate.plan.lowering import lower
from headgate.plan.nodes import Node
from headgate.plan.qos import version_of
from headgate.plan.queries import Query, QueryBlock
from headgate.plan.secure import Mode


@dataclass(frozen=True)
class ContinuousQuery:
    """A running query.

    query: its blocks, with names resolved
    level: the level at which it reads
    lateness: by stream, how late tuples may arrive, in milliseconds
    mode: exact, or cumulative
    output: the stream that its results form for consumer queries; empty if none
    stage: how many producer queries stand at most between it and its sources
    together: whether its subscribers share the tuples that any of them may see
    base: the query that it is a copy of, for the subscribers of one level; empty: it is no copy
    deadline: how soon its results are due, and its QoS versions; None: whenever they come
    most_state, most_results: how many tuples of state, and results per second, the owner's roles allow each view now
    """

    name: str
    query: Query
    level: Level
    lateness: Mapping[str, int] = field(default_factory=dict)
    mode: Mode = Mode.EXACT
    output: str = ""
    stage: int = 0
    together: bool = False
    base: str = ""
    most_state: int | None = None
    most_results: int | None = None
    deadline: Deadline | None = None

    @cached_property
    def streams(self) -> frozenset[str]:
        return frozenset(reading.stream.name for block in self.query.blocks for reading in block.readings)

    def at(self, level: str) -> ContinuousQuery:
        """The copy of a cumulative query for the subscribers of one level: windows are never shared between levels."""
        return replace(self, name=name_at(self.name, level), base=self.name)

    def version(self, version: Version) -> ContinuousQuery:
        """A QoS version of it, as a query of the same name."""
        return replace(self, query=version_of(self.query, version), deadline=None)

    @cached_property
    def limited(self) -> bool:
        return self.most_state is not None or self.most_results is not None

    @cached_property
    def tables(self) -> frozenset[str]:
        """The inputs that are tables."""
        readings = (reading for block in self.query.blocks for reading in block.readings)
        return frozenset(reading.stream.name for reading in readings if reading.stream.table)

    @cached_property
    def column_labels(self) -> tuple[tuple[Label, ...], ...]:
        """For each block, the labels of the labelled columns that it reads."""
        return tuple(tuple(dict.fromkeys(_column_labels(block))) for block in self.query.blocks)

    @cached_property
    def root(self) -> Node:
        """Its tree of operators."""
        return lower(self.query)

    @cached_property
    def meaning(self) -> str:
        """A key for its semantics: stored state can be used again only while this key is the same."""
        return f"{self.mode} {self.level} {self.root.key}"


def name_at(query: str, level: str) -> str:
    return f"{query}@{level}"


def _column_labels(block: QueryBlock) -> Iterator[Label]:
    read = {(column.input, column.name) for column in columns_read(block)}
    for number, reading in enumerate(block.readings):
        yield from (label for name, label in reading.stream.labels if (number, name) in read)


def columns_read(block: QueryBlock) -> frozenset[Column]:
    """All columns that a block reads: in conditions, select items, groups and PARTITIONED BY."""
    exprs: list[Expr] = [block.before, block.after, block.having, *(expr for _, expr in block.items), *block.groups]
    for reading in block.readings:
        exprs += reading.window.partition if reading.window else ()
    return frozenset(column for expr in exprs for column in expr.columns)
