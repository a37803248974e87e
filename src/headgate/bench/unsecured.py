"""The engine without security, for comparison only: the baseline of `headgate bench secfilter`.

It consists of the same parts, but nothing is labelled and nothing decided: ingress reads no labels, all tuples have one
visibility row, one view sees all of them, and its subscriber receives every result.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import pyarrow as pa

from headgate.columns.sorting import Bools, Constant, Ints, repeated
from headgate.egress.filter import ResultFilter
from headgate.execution.executors import LocalExecutor
from headgate.execution.processor import Processor
from headgate.expressions.duck import evaluate
from headgate.ingress.validation import Ingress
from headgate.labels import PUBLIC, Label, Level, Rules
from headgate.model.query import ContinuousQuery
from headgate.model.results import ResultBatch
from headgate.model.tuples import TupleBatch
from headgate.model.view import View
from headgate.model.visibility import Visibility
from headgate.visibility.index import VisibilityIndex
from headgate.visibility.watermarks import Moments


class UnlabelledIngress(Ingress):
    def _labels(self, batch: pa.Table) -> tuple[Ints, Bools]:
        return repeated(0, batch.num_rows), _ALL


_ALL = np.ones(1, np.bool_)


class UnsecuredProcessor(Processor):
    """A processor of one query, with one subscriber."""

    def __init__(self, running: ContinuousQuery) -> None:
        make = partial(LocalExecutor, evaluate=evaluate)
        super().__init__([running], Rules(), make, _Undecided)
        self._index = _OneVisibility(running)


class _OneVisibility(VisibilityIndex):
    def __init__(self, running: ContinuousQuery) -> None:
        super().__init__(Rules())
        self._zeros = Constant()
        self.add_view(running, {"anybody": None})
        columns = len(running.query.blocks)
        never = np.zeros(columns, np.int64)
        targets = tuple((running.name, number) for number in range(columns))
        self._only = Visibility(targets, np.ones((1, columns), np.int32), (frozenset(),), never, never, {})

    def arrive(self, arrivals: Sequence[TupleBatch], moments: Moments, clock: int | None = None) -> list[Ints]:  # noqa: ARG002
        return [self._zeros.of(0, len(x.labels)) for x in arrivals]

    def seen(self, visibilities: Ints) -> None:
        pass

    def batch(self, *, last: bool = False) -> Visibility:  # noqa: ARG002
        return self._only


class _Undecided(ResultFilter):
    def _shared_out(self, views: Sequence[View], whole: ResultBatch) -> list[ResultBatch]:
        return [replace(whole, subscribers=tuple(name for view in views for name in view.clearances))]

    def _labels_of(self, level: Level, sets: Iterable[object]) -> tuple[Label, ...]:  # noqa: ARG002
        return tuple(PUBLIC for _ in sets)


def results(result_batches: Sequence[ResultBatch]) -> int:
    return sum(map(len, result_batches))
