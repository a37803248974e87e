"""What the work of a query on some tuples costs, learned from what it has cost: a fixed part and a part per tuple."""

from __future__ import annotations

FIRST_FIXED, FIRST_EACH = 5_000_000, 1_000_000
"""Nanoseconds, before anything was measured: rather too much, so that nothing outlasts its quantum. The first is also a
guess of the fixed part while all pieces have one size."""
MOST_TUPLES = 10_000
_WEIGHT = 0.1
"""Of the newest measurement in each mean."""
_MOST_TIMES = 3


class Costs:
    """A line through what was measured, in which older measurements count less and less."""

    def __init__(self) -> None:
        self._n = self._c = self._nn = self._nc = 0.0
        self._weight = 0.0
        self._excess = 0.0
        """By how much of the estimate more was needed, in the mean."""

    def measured(self, tuples: int, spent: int) -> None:
        """So many tuples took so many nanoseconds. What took far longer than it should was disturbed, as the first
        piece of a query is, which loads code: it counts for some times the estimate only."""
        spent = min(spent, _MOST_TIMES * self.estimate(tuples))
        if self._weight:
            more = max(0.0, spent / self.estimate(tuples) - 1)
            self._excess += _WEIGHT * (min(more, 1.0) - self._excess)
        self._weight += _WEIGHT * (1 - self._weight)
        for name, value in (("_n", tuples), ("_c", spent), ("_nn", tuples * tuples), ("_nc", tuples * spent)):
            before = getattr(self, name)
            setattr(self, name, before + _WEIGHT * (value - before))

    @property
    def _line(self) -> tuple[float, float]:
        """The fixed part, and the part per tuple."""
        if not self._weight:
            return FIRST_FIXED, FIRST_EACH
        n, c, nn, nc = (x / self._weight for x in (self._n, self._c, self._nn, self._nc))
        spread = nn - n * n
        if n <= 0 or spread <= 0.01 * n * n:  # pieces of one size tell nothing of a fixed part
            fixed = min(c / 2, FIRST_FIXED)
            return fixed, (c - fixed) / max(1.0, n)
        each = min(max((nc - n * c) / spread, 0.0), c / n)
        return c - each * n, each

    def estimate(self, tuples: int) -> int:
        """In nanoseconds."""
        fixed, each = self._line
        return max(1, int(fixed + each * tuples))

    def bound(self, tuples: int) -> int:
        """What it hardly exceeds, in nanoseconds."""
        return int(self.estimate(tuples) * (1.05 + 3 * self._excess))

    def tuples_in(self, nanoseconds: int, most: int) -> int:
        """How many tuples are to be done at once so that it takes so long, `most` where the fixed part is large."""
        fixed, each = self._line
        long = min(max(nanoseconds, 2 * fixed), most)
        return min(max(1, int(max(long - fixed, long / 4) / each)), MOST_TUPLES) if each else MOST_TUPLES
