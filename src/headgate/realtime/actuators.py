"""How a control signal is carried out (paper 004, section 3.3): degrade QoS first, then admit less.

The other way round, more is admitted first; only when the admission limit is at its most does QoS rise again. The paper
does not say how; it reports a QoS near its least wherever load is heavy, which this order gives.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from headgate.realtime.settings import Control


class Actuators:
    """The share of transactions at full QoS, and the limit on the sum of estimates in percent of the processor."""

    def __init__(self, settings: Control, milestones: Sequence[float]) -> None:
        self.settings = settings
        self.milestones = tuple(milestones)
        self.quality = 1.0
        self.limit = min(settings.start, settings.limit)

    @property
    def saturated(self) -> bool:
        """Nothing is held back any more."""
        return self.quality == 1.0 and self.limit == self.settings.limit

    def work(self, quality: float) -> float:
        """The mean work of a transaction at this quality, as a share of the full work."""
        if len(self.milestones) == 1:
            return self.milestones[0]
        place = quality * (len(self.milestones) - 1)
        lower = min(int(place), len(self.milestones) - 2)
        share = place - lower
        return (1 - share) * self.milestones[lower] + share * self.milestones[lower + 1]

    def apply(self, change: float, utilisation: float) -> None:
        """Changes utilisation by so many percentage points; `utilisation` is what was measured last."""
        if change < 0:
            self._limit_by(self._degrade(change, utilisation))
        else:
            self._upgrade(self._limit_by(change), utilisation)

    def _limit_by(self, change: float) -> float:
        """Moves the admission limit; what does not fit is given back."""
        wanted = self.limit + change
        self.limit = min(max(wanted, self.settings.limit_floor), self.settings.limit)
        return wanted - self.limit

    def _degrade(self, change: float, utilisation: float) -> float:
        """Lowers QoS, and gives back what is left for admission to do (the paper's dU_new)."""
        if utilisation <= 0:
            return change
        before = self.work(self.quality)
        self.quality = self._quality_for(before * (1 + change / utilisation))
        return change + utilisation * (1 - self.work(self.quality) / before)

    def _upgrade(self, change: float, utilisation: float) -> None:
        if change > 0:
            self.quality = self._quality_for(self.work(self.quality) * (1 + change / max(utilisation, 1.0)))

    def _quality_for(self, work: float) -> float:
        """The quality at which a transaction takes this share of its full work, as near as it gets."""
        low, high = self.settings.quality_floor, 1.0
        if work <= self.work(low):
            return low
        if work >= self.work(high):
            return high
        points = [i / (len(self.milestones) - 1) for i in range(len(self.milestones))]
        for left, right in pairwise(points):
            if work <= self.work(right):
                share = (work - self.work(left)) / (self.work(right) - self.work(left))
                return max(low, left + share * (right - left))
        return high
