"""What the work of a query on some tuples costs, learned from what it has cost: a part per tuple, a fixed part, and the
commit, which is measured by itself because it waits for disks and hardly depends on how many tuples there are."""

from __future__ import annotations

FIRST_FIXED, FIRST_EACH = 5_000_000, 1_000_000
"""Nanoseconds, before anything was measured: rather too much, so that nothing outlasts its quantum. The first is also a
guess of the fixed part while all pieces have one size."""
MOST_TUPLES = 10_000
_WEIGHT = 0.1
"""Of the newest measurement in each mean."""
_MOST_TIMES = 3
_MOST_FIXED = 0.25
"""Of what tuples take without the commit, the fixed part is believed to be this share at most: disturbances of small
pieces look like a fixed part, and a piece of any size would seem to cost nothing more."""
_MOST_GROWTH = 1.5
"""How many times as many tuples as pieces had so far the next ones may have: beyond that, nothing was measured."""


class Costs:
    """A line through what was measured, in which older measurements count less and less."""

    def __init__(self) -> None:
        self._n = self._c = self._nn = self._nc = self._commit = 0.0
        self._weight = 0.0
        self._excess = 0.0
        """By how much of the estimate more was needed, in the mean."""

    def measured(self, tuples: int, spent: int, commit: int = 0) -> None:
        """So many tuples took so many nanoseconds, of which the commit took these. What took far longer than it should
        was disturbed, as the first piece of a query is, which loads code: it counts for some times the estimate
        only."""
        estimate, known = self.estimate(tuples), self._commit / self._weight if self._weight else FIRST_FIXED
        if self._weight:
            more = max(0.0, spent / estimate - 1)
            self._excess += _WEIGHT * (min(more, 1.0) - self._excess)
        work = min(spent - commit, _MOST_TIMES * max(FIRST_FIXED, estimate - int(known)))
        commit = min(commit, int(_MOST_TIMES * max(known, FIRST_FIXED)))
        self._weight += _WEIGHT * (1 - self._weight)
        new = {"_n": tuples, "_c": work, "_nn": tuples * tuples, "_nc": tuples * work, "_commit": commit}
        for name, value in new.items():
            before = getattr(self, name)
            setattr(self, name, before + _WEIGHT * (value - before))

    @property
    def _line(self) -> tuple[float, float]:
        """The fixed part, and the part per tuple."""
        if not self._weight:
            return FIRST_FIXED, FIRST_EACH
        sums = (self._n, self._c, self._nn, self._nc, self._commit)
        n, c, nn, nc, commit = (x / self._weight for x in sums)
        spread = nn - n * n
        if n <= 0 or spread <= 0.01 * n * n:  # pieces of one size tell nothing of a fixed part
            fixed = min(_MOST_FIXED * c, FIRST_FIXED)
            return commit + fixed, (c - fixed) / max(1.0, n)
        each = min(max((nc - n * c) / spread, (1 - _MOST_FIXED) * c / n), c / n)
        return commit + c - each * n, each

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
        wanted = int(max(long - fixed, long / 4) / each) if each else MOST_TUPLES
        known = self._n / self._weight if self._weight else 0.0
        return max(1, min(wanted, int(_MOST_GROWTH * max(known, 1.0)) if known else wanted, MOST_TUPLES))
