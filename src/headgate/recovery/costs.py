"""What the work of a query on some tuples costs, learned from what it has cost: a part per tuple, a fixed part, and the
commit, which is measured by itself because it waits for disks and is made for several pieces at once."""

from __future__ import annotations

FIRST_FIXED, FIRST_EACH = 5_000_000, 1_000_000
"""Nanoseconds, before anything was measured: rather too much, so that nothing outlasts its quantum. The first is also a
guess of the fixed part while all pieces have one size, and of a commit."""
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
        self._n = self._c = self._nn = self._nc = self._share = self._commit = 0.0
        self._weight = 0.0
        self._excess = 0.0
        """By how much of the estimate more was needed, in the mean."""

    def measured(self, tuples: int, spent: int, commit: int = 0, pieces: int = 1) -> None:
        """So many tuples took so many nanoseconds, and then the commit of so many pieces took these. What took far
        longer than it should was disturbed, as the first piece of a query is, which loads code: it counts for some
        times the estimate only."""
        share, known = self._mean(self._share), self._mean(self._commit)
        work = max(FIRST_FIXED, self.estimate(tuples) - int(share))
        if self._weight:
            more = max(0.0, spent / work - 1)
            self._excess += _WEIGHT * (min(more, 1.0) - self._excess)
        spent = min(spent, _MOST_TIMES * work)
        commit = min(commit, int(_MOST_TIMES * max(known, FIRST_FIXED)))
        self._weight += _WEIGHT * (1 - self._weight)
        new = {"_n": tuples, "_c": spent, "_nn": tuples * tuples, "_nc": tuples * spent}
        for name, value in (new | {"_share": commit / pieces, "_commit": commit}).items():
            before = getattr(self, name)
            setattr(self, name, before + _WEIGHT * (value - before))

    def _mean(self, of: float) -> float:
        return of / self._weight if self._weight else FIRST_FIXED

    @property
    def _line(self) -> tuple[float, float]:
        """The fixed part, with its share of a commit, and the part per tuple."""
        if not self._weight:
            return FIRST_FIXED, FIRST_EACH
        n, c, nn, nc, share = (x / self._weight for x in (self._n, self._c, self._nn, self._nc, self._share))
        spread = nn - n * n
        if n <= 0 or spread <= 0.01 * n * n:  # pieces of one size tell nothing of a fixed part
            fixed = min(_MOST_FIXED * c, FIRST_FIXED)
            return share + fixed, (c - fixed) / max(1.0, n)
        each = min(max((nc - n * c) / spread, (1 - _MOST_FIXED) * c / n), c / n)
        return share + c - each * n, each

    def estimate(self, tuples: int) -> int:
        """In nanoseconds, with its share of a commit."""
        fixed, each = self._line
        return max(1, int(fixed + each * tuples))

    def bound(self, tuples: int) -> int:
        """What it hardly exceeds if it is the last piece before a commit, in nanoseconds."""
        alone = self.estimate(tuples) + self._mean(self._commit) - (self._mean(self._share) if self._weight else 0)
        return int(alone * (1.05 + 3 * self._excess))

    def tuples_in(self, nanoseconds: int, most: int) -> int:
        """How many tuples are to be done at once so that it takes so long, `most` where the fixed part is large."""
        fixed, each = self._line
        long = min(max(nanoseconds, 2 * fixed), most)
        wanted = int(max(long - fixed, long / 4) / each) if each else MOST_TUPLES
        known = self._n / self._weight if self._weight else 0.0
        return max(1, min(wanted, int(_MOST_GROWTH * max(known, 1.0)) if known else wanted, MOST_TUPLES))
