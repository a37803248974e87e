"""What is wanted of the next batch of a stream: which columns, which labels, which tuples at all."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from headgate.engine.demand import Demand
from headgate.plan.expressions import Expr

MOST_LISTED = 100
"""Labels, or blocks, that Spark is told of one by one; more are looked at here."""


@dataclass(frozen=True)
class Wanted:
    """`labels` are the numbers of labels by the texts they were read from, None if there are too many to be listed;
    `keep` says for each block without a window which labels it sees and under which condition it yields anything, None
    if other blocks want whatever comes."""

    demand: Demand
    columns: tuple[str, ...]
    labels: Mapping[tuple[str | None, ...], int] | None
    keep: tuple[tuple[tuple[int, ...], Expr | None], ...] | None = None


Learn = Callable[[Sequence[tuple[str | None, ...]]], Wanted | None]
"""Reads the texts of labels, and says what is wanted then; None: nothing any more."""
