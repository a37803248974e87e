"""Results that go on to other queries without passing the driver: the tasks of the next stage read what the tasks of
the one before have written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from headgate.egress.gathered import GatheredBatch, Gathering, joined
from headgate.expressions.sql.types import ARROW
from headgate.model.results import ResultBatch
from headgate.model.tuples import TupleBatch
from headgate.model.view import View
from headgate.plan.expressions import Type

WORTH_SHARING = 1 << 17
"""From twice so many results on, several tasks read them."""


@dataclass(frozen=True)
class ResultSplit:
    """Some results in their order, as tuples.

    first, end: which of the results
    labels: by kind of label in the results, the number of the tuple's label
    rows: the visibility row of each of these labels that somebody sees
    size: about how many bytes they take
    """

    number: int
    stream: str
    columns: tuple[tuple[str, Type], ...]
    results: Gathering | ResultBatch
    first: int
    end: int
    labels: tuple[int, ...]
    rows: Mapping[int, int]
    size: int

    def tuples(self) -> TupleBatch:
        results = self.results
        if isinstance(results, Gathering):
            parts, order = results.rows_between(self.first, self.end)
            results = joined(results.query, parts, order, results.kinds)
        columns = {
            name: column.cast(ARROW[type_]) for (name, type_), column in zip(self.columns, results.values, strict=True)
        }
        return TupleBatch(self.stream, results.times, np.array(self.labels, np.int64)[results.labels], columns)


@dataclass(frozen=True)
class HandedOn:
    """The results that some views of other queries read.

    stream, columns: the output that they belong to
    labels: by kind of label in the results, the number of the tuple's label
    views: the views that they are for
    """

    stream: str
    columns: tuple[tuple[str, Type], ...]
    results: ResultBatch
    labels: tuple[int, ...]
    views: tuple[View, ...]

    def __len__(self) -> int:
        return len(self.results)

    def tuples(self) -> TupleBatch:
        """All of them, in this process, with the moments at which they come."""
        (whole,) = self._splits({}, 0, 1)
        return replace(whole.tuples(), views=self.views, moments=self.results.moments)

    def splits(self, rows: Mapping[int, int], first: int) -> list[ResultSplit]:
        """As many as there are workers, of results that are in files; one of results that are here."""
        results, shares = self.results, 1
        if isinstance(results, GatheredBatch):
            shares = max(1, min(results.workers.at_once, len(self) // WORTH_SHARING))
        return self._splits(rows, first, shares)

    def _splits(self, rows: Mapping[int, int], first: int, shares: int) -> list[ResultSplit]:
        results, size = self.results, len(self)
        content: Gathering | ResultBatch
        if isinstance(results, GatheredBatch):
            content = results.gathering
        else:
            content = replace(results, subscribers=(), kinds=())
        ends = [size * share // shares for share in range(shares + 1)]
        each = 8 * (3 + len(self.columns))
        return [
            ResultSplit(number, self.stream, self.columns, content, *bounds, self.labels, rows, each * (size // shares))
            for number, bounds in enumerate(pairwise(ends), start=first)
        ]
