"""Arrival by splits: what the visibility index needs to know of tuples that it does not see itself.

Tasks read the splits of a batch and sum each up. From the summaries everybody computes the same watermarks: the driver,
and each task that advances a partition.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from headgate.columns.sorting import Bools, Ints
from headgate.model.rejected import RejectedRows
from headgate.model.times import NO_TIME
from headgate.model.tuples import TupleBatch

_FAR = 1 << 62


class MayBeLate(Exception):
    """The summaries do not exclude that a tuple is late: it must be decided tuple by tuple."""


@dataclass(frozen=True)
class SplitSummary:
    """What a task tells of its split.

    tuples, unseen: how many tuples it has, and how many of them nobody sees
    latest: by label, the greatest time, capped by the clock; of tuples that somebody sees
    earliest: the least time of these
    falls: how far one of these lies behind the greatest time before it, at most
    unknown: label texts that have no number yet
    unfit: why it must be read by the driver; empty if not
    rejected: rows that are no tuples, and are not counted among them
    """

    split: int
    tuples: int = 0
    unseen: int = 0
    latest: tuple[tuple[int, int], ...] = ()
    earliest: int = _FAR
    falls: int = 0
    unknown: tuple[tuple[str | None, ...], ...] = ()
    unfit: str = ""
    rejected: tuple[RejectedRows, ...] = ()


def summed_up(split: int, arrivals: TupleBatch, tuples: int, clock: int) -> SplitSummary:
    """The summary of a split, of which these tuples are seen by somebody."""
    if not len(arrivals.times):
        return SplitSummary(split, tuples, tuples)
    reached = np.minimum(arrivals.times, clock)
    found = np.full(int(arrivals.labels.max()) + 1, NO_TIME)
    np.maximum.at(found, arrivals.labels, reached)
    return SplitSummary(
        split,
        tuples,
        tuples - len(arrivals.times),
        tuple((label, int(found[label])) for label in np.flatnonzero(found > NO_TIME).tolist()),
        int(arrivals.times.min()),
        int((np.maximum.accumulate(reached) - arrivals.times).max()),
    )


class SplitTimes:
    """The event times of all splits together, in the place of `ArrivalTimes`."""

    def __init__(self, splits: Sequence[SplitSummary]) -> None:
        latest: dict[int, int] = {}
        self._earliest, self._falls, greatest = _FAR, 0, NO_TIME
        for x in splits:
            self._earliest = min(self._earliest, x.earliest)
            self._falls = max(self._falls, x.falls, greatest - x.earliest)
            for label, time in x.latest:
                latest[label] = max(time, latest.get(label, NO_TIME))
                greatest = max(greatest, time)
        self.labels = np.array(sorted(latest), np.int64)
        self._latest = np.array([latest[label] for label in self.labels.tolist()], np.int64)

    @property
    def times(self) -> Ints:
        raise MayBeLate

    def latest(self, seen: Bools) -> int:
        return int(self._latest[seen].max())

    def late(self, seen: Bools, before: int, lateness: int, others: int) -> None:  # noqa: ARG002
        """As `ArrivalTimes.late`, if no tuple is late; otherwise MayBeLate."""
        if self._earliest < others and (self._earliest < before - lateness or self._falls > lateness):
            raise MayBeLate

    def those(self, seen: Bools) -> Bools:  # noqa: ARG002
        """No tuple is here."""
        return np.zeros(0, np.bool_)

    def below(self, seen: Bools, marks: Ints) -> Bools:  # noqa: ARG002
        raise MayBeLate

    def reached(self, seen: Bools) -> Ints:  # noqa: ARG002
        raise MayBeLate
