"""How long something takes, on a machine that also does other things."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median


@dataclass(frozen=True)
class Timing:
    """Nanoseconds per tuple, one figure for each repetition."""

    repetitions: Sequence[float]

    @property
    def median(self) -> float:
        return median(self.repetitions)

    @property
    def spread(self) -> float:
        """From the fastest to the slowest repetition, relative to the median: how far to trust it."""
        return (max(self.repetitions) - min(self.repetitions)) / self.median


def time_each(tuples: int, repetitions: int, prepare: Callable[[], Callable[[], object]]) -> Timing:
    """`prepare` makes the work of one repetition and is not timed, so nothing is cached from the previous one.

    The clock is this process's processor time, so the time of other processes on the machine is not counted.
    """
    found = []
    for _ in range(repetitions):
        work = prepare()
        gc.collect()
        start = time.process_time_ns()
        work()
        found.append((time.process_time_ns() - start) / tuples)
    return Timing(found)
