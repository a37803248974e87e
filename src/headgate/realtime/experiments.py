"""The experiments of paper 004, section 4, as a list of cases that can run anywhere, in any order.

Sets 1 to 4 are the paper's; beside them strict STAR on other orders of levels, and the settings that the paper leaves
open, varied one at a time.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from headgate.labels.levels import Level, LevelOrder
from headgate.realtime.lattice import SECOND, Lattice
from headgate.realtime.settings import (
    APPROACHES,
    COVERT_AC,
    OPEN_AC,
    STAR,
    STRICT,
    Approach,
    Gains,
    Settings,
)
from headgate.realtime.simulator import Simulation
from headgate.realtime.workload import Load

LATTICES: dict[str, dict[str, str]] = {
    "2 levels": {"U": "", "S": "U"},
    "3 in a chain": {"U": "", "C": "U", "S": "C"},
    "3, two incomparable": {"U": "", "A": "U", "B": "U"},
    "5 in a chain": {"U": "", "C": "U", "S": "C", "T": "S", "X": "T"},
    "5 with a diamond": {"U": "", "A": "U", "B": "U", "S": "A B", "T": "S"},
    "5, three incomparable": {"U": "", "A": "U", "B": "U", "C": "U", "T": "A B C"},
}
"""Each level with the levels directly below it."""

APPLOADS = (70.0, 100.0, 150.0, 200.0)
ERRORS = (0.0, 0.25, 0.5, 0.75, 1.0)
HCRS = (20.0, 40.0, 60.0, 80.0, 100.0)
SIZES = (10_000, 100_000)

CHANGES: tuple[tuple[str, object], ...] = (
    ("control.released", "deadline"),
    ("control.limit", 60.0),
    ("control.limit", 100.0),
    ("control.start", 20.0),
    ("control.start", 75.0),
    ("control.limit_floor", 15.0),
    ("control.quality_floor", 0.0),
    ("control.utilisation_gains", Gains(0.581, 0.102)),
    ("control.utilisation_gains", Gains(0.1, 0.02)),
    ("control.form", "factored"),
    ("control.hold_when_saturated", False),
    ("model.sources", 50),
    ("model.write_share", 0.5),
    ("model.write_share", 1.0),
    ("model.low_items", 0.2),
    ("model.write_rule", "equal"),
    ("strict.reserve", 0.1),
    ("strict.reserve", 0.2),
    ("strict.cycle_ms", 30.0),
    ("strict.threshold_low", 95.0),
    ("strict.set_point", 5.0),
)
"""Settings that are varied one at a time: the paper's open choices, and those of strict control."""


def lattice_named(name: str) -> Lattice:
    above = LATTICES[name]
    order = LevelOrder({level: frozenset(lower.split()) for level, lower in above.items()})
    return Lattice.of(order, [Level(level) for level in above])


@dataclass(frozen=True)
class Case:
    """One run. `part` says what it belongs to; `x` is what varies there."""

    part: str
    x: float
    approach: Approach
    shares: tuple[float, ...]
    error: float = 0.0
    items: int = 1000
    levels: str = "2 levels"
    changed: tuple[str, object] | None = None
    seconds: float = 600.0
    seed: int = 0

    @property
    def setting(self) -> tuple[object, ...]:
        """All but the seed: runs that are averaged."""
        return self.part, self.x, self.approach, self.shares, self.error, self.items, self.levels, self.changed


@dataclass(frozen=True)
class Outcome:
    """What one run measured, in percent; traces are per level, one value per sample."""

    case: Case
    misses: tuple[float, ...]
    utilisation: float
    throughput: float
    quality: float
    submitted: int
    traces: tuple[tuple[float, ...], ...]
    processor_s: float = field(default=0.0, compare=False)
    """Processor time that the run took."""


def run_case(case: Case) -> Outcome:
    begun = time.process_time()
    settings = Settings() if case.changed is None else Settings().but(*case.changed)
    load = Load(case.shares, case.error, case.items, case.seconds, case.seed)
    simulation = Simulation(lattice_named(case.levels), case.approach, load, settings)
    samples = list(simulation.samples())
    levels = simulation.state.levels
    timely, tardy = levels["timely"], levels["tardy"]
    best = len(settings.model.milestones) - 1
    return Outcome(
        case,
        tuple((100 * tardy / np.maximum(1, timely + tardy)).tolist()),
        100 * float(levels["busy"].sum()) / (case.seconds * SECOND),
        100 * float(timely.sum()) / max(1, int(levels["submitted"].sum())),
        100 * float(levels["versions"].sum()) / max(1, int(timely.sum()) * best),
        int(levels["submitted"].sum()),
        tuple(tuple(sample.miss_ratio(k) for sample in samples) for k in range(len(levels))),
        time.process_time() - begun,
    )


def two(total: float, hcr: float) -> tuple[float, float]:
    """The loads of both classes; HCR is the low class's share of the transactions, in percent."""
    return total * hcr / 100, total * (100 - hcr) / 100


def repeated(cases: Iterable[Case], runs: int, seconds: float, first: int = 0) -> list[Case]:
    """Each case so many times, with seeds of its own from `first` on."""
    seeds = range(first, first + runs)
    return [replace(case, seed=seed, seconds=seconds) for case in cases for seed in seeds]


def paper_cases() -> list[Case]:
    """Experiment sets 1 to 4; Open is left out of sets 2 to 4, as in the paper."""
    closed = (OPEN_AC, COVERT_AC, STAR, STRICT)
    return [
        *(Case("set 1", x, approach, two(x, 20)) for x in APPLOADS for approach in APPROACHES),
        *(Case("set 2", x, approach, two(200, 20), x) for x in ERRORS for approach in closed),
        *(Case("set 3", x, approach, two(200, x), 1.0) for x in HCRS for approach in closed),
        *(
            Case(f"set 4, {size:,} items", x, approach, two(200, x), 1.0, size)
            for size in SIZES
            for x in HCRS
            for approach in (closed if size == max(SIZES) else (STAR, STRICT))
        ),
    ]


def lattice_cases() -> list[Case]:
    """Strict STAR at AppLoad 200 %, EstErr 1, on other orders: equal loads, most at the bottom, little there."""
    cases = []
    for name, above in LATTICES.items():
        upper = len(above) - 1
        if upper > 1:
            for x in (100 / (upper + 1), 60.0, 10.0):
                shares = (2 * x, *[(200 - 2 * x) / upper] * upper)
                cases.append(Case("lattices", x, STRICT, shares, 1.0, levels=name))
    return cases


def fresh_cases() -> list[Case]:
    """Strict STAR in set 3 and on two lattices, to be run with seeds that its settings were not chosen on."""
    cases = [case for case in paper_cases() if case.part == "set 3" and case.approach == STRICT]
    cases += [case for case in lattice_cases() if case.levels in ("5 with a diamond", "5, three incomparable")]
    return [replace(case, part=f"other seeds, {case.levels}") for case in cases]


def sensitivity_cases(changes: Sequence[tuple[str, object]] = CHANGES) -> list[Case]:
    """The cases that carry the reproduction, with one setting changed."""
    probes = [
        (OPEN_AC, 200.0, 20.0, 0.0),
        (COVERT_AC, 200.0, 20.0, 0.0),
        (OPEN_AC, 200.0, 20.0, 1.0),
        (COVERT_AC, 200.0, 20.0, 1.0),
        (STAR, 200.0, 20.0, 0.0),
        (STAR, 200.0, 20.0, 1.0),
        (STRICT, 200.0, 20.0, 1.0),
        (STRICT, 200.0, 80.0, 1.0),
    ]
    return [
        Case("sensitivity", hcr, approach, two(load, hcr), error, changed=change)
        for change in changes
        for approach, load, hcr, error in probes
        if not change[0].startswith("strict.") or approach == STRICT
    ]
