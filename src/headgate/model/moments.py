"""The moments of a batch, and how a watermark moves with them (SPEC.md, 4.3).

Each tuple that comes in is a moment, in the order of arrival. What queries make of it arrives at the same moment, in
all stages. The last moment of a batch has no tuple: the clock moves, or everything ends. So nothing depends on how
tuples are split into batches.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from headgate.columns.sorting import Ints

END = 1 << 61
"""The watermark at the end of all input."""


@dataclass(frozen=True)
class WatermarkTimeline:
    """How a watermark moves in a batch.

    marks: the watermark before each moment, and after the last; it never falls
    first, moments: the moment of each arrival number from `first` on
    """

    marks: Ints
    first: int
    moments: Ints

    @property
    def last(self) -> int:
        """The last moment."""
        return len(self.marks) - 2

    def final(self, times: Ints) -> Ints:
        """The moment at which instants of these times become final, among those that do."""
        return np.minimum(np.searchsorted(self.marks[1:], times, side="right"), self.last)

    def came(self, arrivals: Ints) -> Ints:
        """The moment of tuples with these arrival numbers."""
        return self.moments[arrivals - self.first]

    def until(self, moment: int) -> WatermarkTimeline:
        """The same, but from this moment on nothing moves."""
        return replace(self, marks=stopped(self.marks, moment))


def stopped(marks: Ints, moment: int) -> Ints:
    """A watermark that does not move with this moment, nor later. Before all moments: -1."""
    at = max(moment, 0)
    return np.concatenate([marks[: at + 1], np.full(len(marks) - at - 1, marks[at])]) if at + 1 < len(marks) else marks
