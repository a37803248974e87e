"""Which tuples come too late (SPEC.md, 4.3): most often none, and that is found out once for all views."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from headgate.columns.sorting import Bools, Ints
from headgate.model.times import NO_TIME


class ArrivalTimes:
    """Tuples of one stream in the order of their arrival: their times, and the number of each one's sight, of so
    many. They come when the `clock` stands at so many milliseconds, ahead of which they move nobody's time (None: it
    is ahead of all of them)."""

    def __init__(self, times: Ints, kind: Ints, kinds: int, clock: int | None = None) -> None:
        self._times = times
        self._reached = times if clock is None else np.minimum(times, clock)
        self._kind = kind
        self._kinds = kinds

    def latest(self, seen: Bools) -> int:
        """How far those with these sights move time."""
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
        greatest = np.maximum.accumulate(np.concatenate([[before], np.where(self.those(seen), self._reached, NO_TIME)]))
        return np.asarray(np.minimum(greatest - lateness, others), np.int64)

    def latest_of(self, end: int, seen: Bools) -> int:
        """The same of the first of them."""
        return int(self._reached[:end][self.those(seen)[:end]].max(initial=NO_TIME))

    def those(self, seen: Bools) -> Bools:
        """The tuples with these sights."""
        return seen[self._kind]

    @cached_property
    def _earliest(self) -> int:
        return int(self._times.min())

    @cached_property
    def _falls(self) -> int:
        """How far behind any tuple before it a tuple is, at most."""
        return int((np.maximum.accumulate(self._reached) - self._times).max())

    @cached_property
    def _latest(self) -> Ints:
        """By sight."""
        found = np.full(self._kinds, NO_TIME)
        np.maximum.at(found, self._kind, self._reached)
        return found
