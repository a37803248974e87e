"""`headgate bench deadlines`: live queries with deadlines at three levels under twice the load, with control or not.

The whole engine runs without Spark, once by the clock of the machine and once by the clock of the processor
(`deadline_runs.py`). First the bench measures how many tuples a second the query takes at full QoS; then it sends twice
as many, a third to each level. Utilisation is that of the thread that does the work, which includes writing state and
delivery; reading tuples is not part of it. Without control (the paper's Open) lower levels go first and everything is
admitted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from headgate.bench.deadline_runs import DUE, LEVELS, Measure, Measured, by_machine, by_processor
from headgate.bench.harness import Goal, Plot, Progress, Report, Row, environment
from headgate.realtime.governor import warm
from headgate.realtime.handler import Sample
from headgate.realtime.settings import OPEN, STRICT, Approach

CLOCKS: dict[str, Measure] = {"machine": by_machine, "processor": by_processor}
LOAD = 2.0
SECONDS, OPEN_SECONDS, QUICK_SECONDS = 600.0, 120.0, 15.0
CALIBRATION, ROUNDS, LIGHT = 35.0, 2, 8_000.0
"""How long each measurement of the cost of tuples takes, in seconds, how many there are, and the tuples a second that
the first one takes for the whole processor."""
_SETTLED = 80.0
_PROMISE = 5.0


@dataclass(frozen=True)
class Outcome:
    """What one run came to."""

    clock: str
    approach: Approach
    run: Measured

    @property
    def samples(self) -> Sequence[Sample]:
        return self.run.samples

    def misses(self, level: int) -> float:
        """In percent of the admitted work that ended."""
        timely, tardy = (sum(int(getattr(x, name)[level]) for x in self.samples) for name in ("timely", "tardy"))
        return 100 * tardy / max(1, timely + tardy)

    def settling(self, level: int) -> float:
        """The longest time that misses stayed above the promise, in seconds."""
        longest = now = 0
        for x in self.samples:
            now = now + 1 if x.miss_ratio(level) > 1.01 * _PROMISE else 0
            longest = max(longest, now)
        return 5.0 * longest

    def utilisation(self, level: int | None = None) -> float:
        """In percent of the processor, after the time that it has to settle."""
        after = [x for x in self.samples if x.time > _SETTLED] or list(self.samples)
        return float(np.mean([sum(x.utilisation) if level is None else x.utilisation[level] for x in after]))

    def row(self, level: int) -> Row:
        submitted, admitted = (sum(int(getattr(x, name)[level]) for x in self.samples) for name in _COUNTED)
        return {
            "clock": self.clock,
            "control": self.approach.name,
            "level": LEVELS[level],
            "submitted": submitted,
            "admitted": admitted,
            "misses %": self.misses(level),
            "settling s": self.settling(level),
            "utilisation %": self.utilisation(level),
            "QoS %": float(np.mean([100 * x.quality[level] for x in self.samples])),
        }


_COUNTED = ("submitted", "admitted")


def run(quick: bool, progress: Progress) -> Report:
    seconds = (QUICK_SECONDS, QUICK_SECONDS) if quick else (SECONDS, OPEN_SECONDS)
    progress.expect(1 + 2 * len(CLOCKS))
    warm()
    progress.step("how fast the query is")
    rate = capacity(QUICK_SECONDS if quick else CALIBRATION)
    outcomes, notes = list[Outcome](), list[str]()
    for clock, measure in CLOCKS.items():
        for approach, length in zip((STRICT, OPEN), seconds, strict=True):
            progress.step(f"clock of the {clock}: {approach.name}, {length:.0f} s")
            outcomes.append(Outcome(clock, approach, measure(approach, LOAD * rate / len(LEVELS), length)))
        notes += _notes(outcomes[-2])
    return Report(
        "Live queries with deadlines under twice the load",
        [outcome.row(k) for outcome in outcomes for k in range(len(LEVELS))],
        [] if quick else [x for pair in zip(outcomes[::2], outcomes[1::2], strict=True) for x in _goals(*pair)],
        [
            f"Deadline 2 s; versions of the query: {', '.join(map(str, reversed(DUE.versions)))}.",
            f"By the clock of the processor the query takes {rate:,.0f} tuples a second at full QoS.",
            f"{LOAD * rate:,.0f} a second came by either clock.",
            *notes,
        ],
        environment("numpy", "pyarrow", "duckdb", "numba"),
        [x for outcome in outcomes[::2] for x in plots(outcome.samples, LEVELS, f", clock of the {outcome.clock}")],
    )


def _notes(governed: Outcome) -> list[str]:
    run, by = governed.run, f"Clock of the {governed.clock}: "
    return [
        f"{by}by the estimates of the engine that was an AppLoad of {run.load:.0f} % with control.",
        f"{by}with control, {run.overruns} pieces outlasted their quantum, by {run.longest:.0f} ms at most.",
    ]


def _goals(governed: Outcome, free: Outcome) -> list[Goal]:
    levels, by = range(len(LEVELS)), f"clock of the {governed.clock}: "
    return [
        Goal(f"{by}highest miss ratio of any level", max(map(governed.misses, levels)), _PROMISE, "%"),
        Goal(f"{by}longest time above it", max(map(governed.settling, levels)), _SETTLED, "s"),
        Goal(f"{by}utilisation after 80 s", governed.utilisation(), 80, "%", "at least"),
        Goal(f"{by}misses of the highest level without control", free.misses(len(LEVELS) - 1), 50, "%", "at least"),
    ]


def capacity(seconds: float = CALIBRATION) -> float:
    """Tuples a second that are the work of the whole processor at full QoS, by the estimates of the engine. Pieces are
    larger under load, and then a tuple takes less; so this is measured under the load that follows from it. It is
    measured by the clock of the processor: by that of the machine, whatever else runs for a minute would decide about
    the load of the ten that follow."""
    rate = LIGHT
    for _ in range(ROUNDS):
        rate *= 100 * LOAD / max(1.0, by_processor(STRICT, LOAD * rate / len(LEVELS), seconds).load)
    return rate


def plots(samples: Sequence[Sample], levels: Sequence[str], by: str = "") -> list[Plot]:
    """Misses, utilisation and QoS of each level over time."""

    def lines(values: Sequence[Sequence[float]]) -> dict[str, list[tuple[float, float]]]:
        return {
            level: [(x.time, row[k]) for x, row in zip(samples, values, strict=True)] for k, level in enumerate(levels)
        }

    misses = [[x.miss_ratio(k) for k in range(len(levels))] for x in samples]
    return [
        Plot(f"Misses{by}", "time, s", "miss ratio, %", lines(misses), {"promised: 5 %": _PROMISE}),
        Plot(f"Utilisation{by}", "time, s", "utilisation, %", lines([x.utilisation for x in samples])),
        Plot(f"QoS{by}", "time, s", "at full QoS, %", lines([[100 * y for y in x.quality] for x in samples])),
    ]
