"""Which tuples come too late (SPEC.md, 4.3): most often none, and that is found out once for all views."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from headgate.engine.kernels.reading import NO_TIME
from headgate.engine.kernels.rows import Bools, Ints


class Arrived:
    """Tuples of one stream in the order of their arrival: their times, and the number of each one's sight, of so
    many."""

    def __init__(self, times: Ints, kind: Ints, kinds: int) -> None:
        self._times = times
        self._kind = kind
        self._kinds = kinds

    def latest(self, seen: Bools) -> int:
        """The latest time of those with these sights."""
        return int(self._latest[seen].max())

    def late(self, seen: Bools, before: int, lateness: int, others: int) -> Bools | None:
        """Those with these sights that come when time has passed them, None if none does. Time was at `before`, it
        follows what is seen by so much; the time of the `others` holds it back."""
        if self._earliest >= others or (self._earliest >= before - lateness and self._falls <= lateness):
            return None
        late = self.those(seen) & (self._times < self.marks(seen, before, lateness, others)[:-1])
        return late if late.any() else None

    def marks(self, seen: Bools, before: int, lateness: int, others: int) -> Ints:
        """How far time has come before the first tuple, and after each."""
        greatest = np.maximum.accumulate(np.concatenate([[before], np.where(self.those(seen), self._times, NO_TIME)]))
        return np.asarray(np.minimum(greatest - lateness, others), np.int64)

    def those(self, seen: Bools) -> Bools:
        """The tuples with these sights."""
        return seen[self._kind]

    @cached_property
    def _earliest(self) -> int:
        return int(self._times.min())

    @cached_property
    def _falls(self) -> int:
        """How far behind any tuple before it a tuple is, at most."""
        return int((np.maximum.accumulate(self._times) - self._times).max())

    @cached_property
    def _latest(self) -> Ints:
        """By sight."""
        found = np.full(self._kinds, NO_TIME)
        np.maximum.at(found, self._kind, self._times)
        return found
