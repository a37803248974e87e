"""Tuples that wait for their time: those that some view sees whose watermark has not passed them.

They are kept in runs, each in the order of SPEC.md, 4.2, one for each batch that brought some. A view group takes from
every run what has become final for it.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from headgate.columns.sorting import Bools, Ints
from headgate.loops.slots import count_seen
from headgate.model.times import NO_TIME
from headgate.operators.program import TIME, VISIBILITY
from headgate.operators.tuple_store import TupleStore

_MOST_RUNS = 64
_LATEST = 1 << 62


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
        self._between: dict[tuple[int, int], Ints] = {}
        """The tuples between two times, as long as the runs are as they are: view groups mostly ask for the same."""
        self._lock = threading.Lock()  # view groups run in parallel
        self.latest = NO_TIME

    def add(self, tuples: Ints, latest: Ints | None = None) -> None:
        """Tuples that the caller holds; from now on they are held here. `latest` is the last one that came, if there
        are others that wait for nobody."""
        self._between.clear()
        if len(tuples):
            tuples = self._store.in_order(tuples)
            self._runs.append(_Run(tuples, self._store.numbers(TIME)[tuples]))
        last = tuples[-1:] if latest is None else latest
        if len(last):
            self.latest = max(self.latest, int(self._store.numbers(TIME)[last[0]]))

    def any_between(self, since: int, until: int) -> bool:
        """Whether a tuple with a time in [since, until) waits."""
        return any(len(set(np.searchsorted(run.times, [since, until]).tolist())) == 2 for run in self._runs)

    def between(self, since: int, until: int) -> Ints:
        """The tuples with times in [since, until), in order."""
        with self._lock:
            if (since, until) not in self._between:
                self._between[since, until] = self._store.merged(self._parts(since, until))
            return self._between[since, until]

    def _parts(self, since: int, until: int) -> list[Ints]:
        bounds = [np.searchsorted(run.times, [since, until]).tolist() for run in self._runs]
        return [run.tuples[first:end] for run, (first, end) in zip(self._runs, bounds, strict=True) if first < end]

    def count_from(self, since: int, seen: Bools) -> int:
        """How many tuples from this time on have a visibility row that is seen."""
        rows = self._store.numbers(VISIBILITY)
        return sum(int(count_seen(x, rows, seen)) for x in self._parts(since, _LATEST))

    def keep(self, watermarks: Sequence[int], seen: Sequence[Bools]) -> None:
        """Keep the tuples that still wait for a view group: `watermarks` and the visibility rows that it sees."""
        self._between.clear()
        groups = sorted(zip(watermarks, seen, strict=True), key=lambda x: -x[0])
        for number, run in enumerate(self._runs):
            first, last = int(run.times[0]), int(run.times[-1])
            bounds = tuple(min(x, last + 1) for x, _ in groups if x > first)
            if bounds != run.bounds:
                self._runs[number] = self._kept(run, groups, bounds)
        self._runs = [run for run in self._runs if len(run.tuples)]
        if len(self._runs) > _MOST_RUNS:
            tuples = self._store.merged([run.tuples for run in self._runs])
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
        self._between.clear()
        self._runs = [_Run(run.tuples, run.times) for run in self._runs]
