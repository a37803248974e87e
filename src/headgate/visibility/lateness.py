"""Late tuples (SPEC.md, 4.3). Most batches have none, which one check finds out for all views."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from headgate.columns.sorting import Bools, Ints
from headgate.model.times import NO_TIME


class ArrivalTimes:
    """Event times of tuples of one stream, in order of arrival.

    times: the event times, in milliseconds
    kind: for each tuple a number from 0 to `kinds` - 1 that stands for its visibility row
    clock: the time of arrival; event times ahead of it move watermarks only up to it. None: no time is ahead of it.
    """

    def __init__(self, times: Ints, kind: Ints, kinds: int, clock: int | None = None) -> None:
        self.times = times
        self._reached = times if clock is None else np.minimum(times, clock)
        self._kind = kind
        self._kinds = kinds

    def latest(self, seen: Bools) -> int:
        """The latest time, capped by the clock, of the tuples of the `seen` kinds."""
        return int(self._latest[seen].max())

    def late(self, seen: Bools, before: int, lateness: int, others: int) -> Bools | None:
        """The tuples of the `seen` kinds that are below the watermark when they arrive; None if none is. `before` is
        the greatest event time seen before this batch; the watermark follows the greatest by `lateness` and is at
        most `others`, the watermark of the query's other streams."""
        if self._earliest >= others or (self._earliest >= before - lateness and self._falls <= lateness):
            return None
        greatest = np.maximum.accumulate(np.concatenate([[before], self.reached(seen)[:-1]]))
        late = self.below(seen, np.minimum(greatest - lateness, others))
        return late if late.any() else None

    def below(self, seen: Bools, marks: Ints) -> Bools:
        """The tuples of the `seen` kinds that are below the watermark when they arrive, which is given for each."""
        return np.asarray(self.those(seen) & (self.times < marks), np.bool_)

    def reached(self, seen: Bools) -> Ints:
        """How far each tuple of the `seen` kinds moves the time of its stream; the others do not."""
        return np.where(self.those(seen), self._reached, NO_TIME)

    def those(self, seen: Bools) -> Bools:
        """The tuples of the `seen` kinds."""
        return seen[self._kind]

    @cached_property
    def _earliest(self) -> int:
        return int(self.times.min())

    @cached_property
    def _falls(self) -> int:
        """The largest distance of a tuple behind the greatest time up to it."""
        return int((np.maximum.accumulate(self._reached) - self.times).max())

    @cached_property
    def _latest(self) -> Ints:
        """The latest time of each kind."""
        found = np.full(self._kinds, NO_TIME)
        np.maximum.at(found, self._kind, self._reached)
        return found
