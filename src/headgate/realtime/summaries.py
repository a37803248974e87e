"""Runs of one setting, averaged: means with 90 % confidence intervals, mean traces, and their settling."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import t as student

from headgate.realtime.experiments import Case, Outcome


@dataclass(frozen=True)
class Mean:
    """An average over runs, with the half-width of its 90 % confidence interval."""

    value: float
    half: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Mean:
        n = len(values)
        half = float(student.ppf(0.95, n - 1) * np.std(values, ddof=1) / np.sqrt(n)) if n > 1 else 0.0
        return cls(float(np.mean(values)), half)

    def __str__(self) -> str:
        return f"{self.value:.2f} ± {self.half:.2f}"


@dataclass(frozen=True)
class Summary:
    """All runs of one setting."""

    case: Case
    misses: tuple[Mean, ...]
    utilisation: Mean
    throughput: Mean
    quality: Mean
    traces: tuple[tuple[float, ...], ...]
    """The mean trace of each level's miss ratio over the runs."""

    def peak(self, level: int) -> float:
        return max(self.traces[level])

    def settling(self, level: int, period_s: float, above: float) -> float:
        """The longest time that the mean trace stays above this miss ratio, in seconds."""
        longest = now = 0
        for value in self.traces[level]:
            now = now + 1 if value > above else 0
            longest = max(longest, now)
        return longest * period_s


def summarise(outcomes: Iterable[Outcome]) -> list[Summary]:
    """The runs of each setting, averaged, in the order of their first run."""
    together: dict[tuple[object, ...], list[Outcome]] = {}
    for outcome in outcomes:
        together.setdefault(outcome.case.setting, []).append(outcome)
    return [
        Summary(
            runs[0].case,
            tuple(Mean.of([run.misses[k] for run in runs]) for k in range(len(runs[0].misses))),
            Mean.of([run.utilisation for run in runs]),
            Mean.of([run.throughput for run in runs]),
            Mean.of([run.quality for run in runs]),
            tuple(tuple(np.mean([run.traces[k] for run in runs], axis=0).tolist()) for k in range(len(runs[0].misses))),
        )
        for runs in together.values()
    ]
