"""What a running query did, for EXPLAIN ANALYZE: the numbers that stand behind the operators of its tree.

INVARIANT: what a reader is shown is a function of the tuples that its own view saw. It is shown no times, and no number
of what is kept for several queries together.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from headgate.plain import counted
from headgate.plan import nodes as n
from headgate.plan.explain import Line
from headgate.plan.steps import Operator

ROW, GROUP, ACCUMULATOR = 100, 64, 32
"""Estimated bytes of a row with about four columns, of a group with its key, and of one aggregate of it."""


@dataclass(frozen=True)
class StepCounts:
    """What one step did for a view: tuples, rows or changes that came in and went out, what it keeps now, and the
    processor time."""

    taken: int = 0
    given: int = 0
    held: int = 0
    nanoseconds: int = 0


@dataclass(frozen=True)
class ViewCounts:
    """The steps of one view. `subscribers` are those whom it serves, by the engine's names."""

    subscribers: tuple[str, ...]
    steps: Mapping[str, StepCounts]


@dataclass(frozen=True)
class DeadlineCounts:
    """A query with a deadline, for the subscribers of one level: the engine's name of the query, the version in force,
    and how many transactions were admitted, were not, were done in time, and missed their deadline."""

    query: str
    level: str
    version: str
    admitted: int = 0
    rejected: int = 0
    timely: int = 0
    missed: int = 0


@dataclass(frozen=True)
class LevelCounts:
    """A level in the last control period: its misses, what it used of the processor, its QoS and the limit on its
    estimates, all in percent."""

    level: str
    misses: float
    utilisation: float
    quality: float
    limit: float


class LiveEngine(Protocol):
    """A running engine, as EXPLAIN ANALYZE asks it. It may wait for a batch to end: nobody asks while holding a lock
    that a batch needs."""

    @property
    def began(self) -> float:
        """When it began to count."""
        ...

    def profile(self, query: str, subscriber: str | None = None) -> list[ViewCounts]:
        """What was done for the views of a query: all, or the one that serves this subscriber. Names are the
        engine's."""
        ...

    def due(self) -> tuple[Sequence[DeadlineCounts], Sequence[LevelCounts]]:
        """The queries with deadlines that run, and the levels that have a share of time."""
        ...


def analyzed(lines: Sequence[Line], done: Mapping[str, StepCounts], *, everything: bool) -> Iterator[str]:
    """The lines of a tree with what their operators did; `everything` is for operators of the system."""
    told = set[str]()
    for line in lines:
        if line.operator is None:
            yield line.text
            continue
        numbers = ", ".join(_numbers(line.operator, done, told, everything=everything))
        yield f"{line.text}{'; ' if '   -- ' in line.text else '   -- '}{numbers}" if numbers else line.text


def _numbers(own: Operator, done: Mapping[str, StepCounts], told: set[str], *, everything: bool) -> Iterator[str]:
    """Results are made in one step, whose numbers stand on the first of its operators."""
    name = own.steps[1] if isinstance(own.node, n.Window) else own.steps[0]
    if name in told and name.startswith("results "):
        return
    told.add(name)
    step = done.get(name, StepCounts())
    if not everything and isinstance(own.node, n.Arrivals):
        return  # what no query needs is not read, so how much comes in depends on others
    if not everything and isinstance(own.node, n.Select) and isinstance(own.node.input, n.Arrivals):
        yield f"out {step.given:,}"
    elif not _is_of_table(own.node):
        yield f"in {step.taken:,}, out {step.given:,}"
    match own.node:
        case n.Window() | n.Table() | n.Select(input=n.Table()):
            yield f"holds {counted(step.held, 'row')}, about {step.held * ROW:,} bytes"
        case n.Join() if everything:  # whether it keeps its rows depends on who else reads them
            yield f"holds {counted(step.held, 'row')}, about {step.held * ROW:,} bytes"
        case n.Aggregate(calls=calls) if everything:  # empty groups are kept until others cause operators to be rebuilt
            yield f"holds {counted(step.held, 'group')}, about {step.held * (GROUP + ACCUMULATOR * len(calls)):,} bytes"
        case n.Distinct() if everything:
            yield f"holds {counted(step.held, 'group')}, about {step.held * GROUP:,} bytes"
    if everything:
        spent = sum(done.get(x, StepCounts()).nanoseconds for x in own.steps)
        yield f"{spent / 1e6:.1f} ms"


def _is_of_table(node: n.Node) -> bool:
    """A table is there, and does not come."""
    return isinstance(node, n.Table) or (isinstance(node, n.Select) and isinstance(node.input, n.Table))
