"""Tuples that wait for their time: those that some view sees whose watermark has not passed them.

They are kept in runs, each in the order of SPEC.md, 4.2, one for each batch that brought some. A view group takes from
every run what has become final for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from headgate.columns.sorting import Bools, Ints
from headgate.model.times import NO_TIME
from headgate.operators.program import TIME, VISIBILITY
from headgate.operators.tuple_store import TupleStore

_MOST_RUNS = 64


@dataclass(frozen=True)
class _Run:
    tuples: Ints
    times: Ints
    bounds: tuple[int, ...] | None = None
    """The watermarks within the run's times when it was last looked through; None: it was not."""


class Waiting:
    """`latest` is the latest time of all tuples that were ever added. INVARIANT: the store's tuples in here are held
    once each."""

    def __init__(self, store: TupleStore) -> None:
        self._store = store
        self._runs: list[_Run] = []
        self._found: dict[tuple[int, int], Ints] = {}
        """What was asked for since runs changed last: view groups mostly have the same watermarks."""
        self.latest = NO_TIME

    def add(self, tuples: Ints, latest: Ints | None = None) -> None:
        """Tuples that the caller holds; from now on they are held here. `latest` is the last one that came, if there
        are others that wait for nobody."""
        if len(tuples):
            tuples = self._store.in_order(tuples)
            self._runs.append(_Run(tuples, self._store.numbers(TIME)[tuples]))
            self._found = {}
        last = tuples[-1:] if latest is None else latest
        if len(last):
            self.latest = max(self.latest, int(self._store.numbers(TIME)[last[0]]))

    def any_between(self, since: int, until: int) -> bool:
        """Whether a tuple with a time in [since, until) waits."""
        return any(len(set(np.searchsorted(run.times, [since, until]).tolist())) == 2 for run in self._runs)

    def between(self, since: int, until: int) -> Ints:
        """The tuples with times in [since, until), in order."""
        if (since, until) not in self._found:
            self._found[since, until] = self._between(since, until)
        return self._found[since, until]

    def _between(self, since: int, until: int) -> Ints:
        parts = []
        for run in self._runs:
            first, end = np.searchsorted(run.times, [since, until]).tolist()
            if first < end:
                parts.append(run.tuples[first:end])
        if not parts:
            return np.empty(0, np.int64)
        return parts[0] if len(parts) == 1 else self._store.in_order(np.concatenate(parts))

    def keep(self, watermarks: Sequence[int], seen: Sequence[Bools]) -> None:
        """Keep the tuples that still wait for a view group: `watermarks` and the visibility rows that it sees."""
        self._found = {}
        groups = sorted(zip(watermarks, seen, strict=True), key=lambda x: -x[0])
        for number, run in enumerate(self._runs):
            first, last = int(run.times[0]), int(run.times[-1])
            bounds = tuple(min(x, last + 1) for x, _ in groups if x > first)
            if bounds != run.bounds:
                self._runs[number] = self._kept(run, groups, bounds)
        self._runs = [run for run in self._runs if len(run.tuples)]
        if len(self._runs) > _MOST_RUNS:
            tuples = self._store.in_order(np.concatenate([run.tuples for run in self._runs]))
            self._runs = [_Run(tuples, self._store.numbers(TIME)[tuples])]

    def _kept(self, run: _Run, groups: Sequence[tuple[int, Bools]], bounds: tuple[int, ...]) -> _Run:
        visibilities = self._store.numbers(VISIBILITY)[run.tuples]
        needed = np.zeros(len(run.tuples), np.bool_)
        for until, seen in groups:
            open_ = int(np.searchsorted(run.times, until))
            if open_ < len(needed):
                needed[open_:] |= seen[visibilities[open_:]]
        if needed.all():
            return _Run(run.tuples, run.times, bounds)
        self._store.release(run.tuples[~needed])
        return _Run(run.tuples[needed], run.times[needed], bounds)

    def all(self) -> Ints:
        """All waiting tuples."""
        return np.concatenate([np.empty(0, np.int64), *(run.tuples for run in self._runs)])

    def changed(self) -> None:
        """Visibility has changed: look through all runs again."""
        self._found = {}
        self._runs = [_Run(run.tuples, run.times) for run in self._runs]
