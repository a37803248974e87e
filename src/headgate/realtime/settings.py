"""Every choice of the reproduction that paper 004 states or leaves open, in one place.

Fields marked *stated* carry the paper's values. Fields marked *open* are choices the paper does not make; the defaults
are the one set of settings behind every reproduced number, and `headgate bench star` varies them one at a time.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Literal

from headgate.errors import Conflict


@dataclass(frozen=True)
class Gains:
    """Of a PI controller: percentage points of utilisation per percentage point of error."""

    kp: float
    ki: float


@dataclass(frozen=True)
class Model:
    """What the simulated transactions look like (section 4.1)."""

    estimate_ms: tuple[float, float] = (5.0, 20.0)
    """Stated: the estimated execution time of a source is uniform in this range."""
    slack: tuple[float, float] = (10.0, 20.0)
    """Stated: deadline = arrival + average execution time x a slack uniform in this range."""
    accesses_per_ms: float = 1.0
    """Stated: a source's number of data accesses is proportional to its estimate, 5 to 20."""
    sources: int = 200
    """Open: how many sources there are. They share one rate, set so that the applied load is exact."""
    write_share: float = 0.25
    """Open: the share of accesses that write."""
    low_items: float = 0.5
    """Open: the share of data items at the lowest level; the rest is spread evenly over the others."""
    shortest: float = 0.1
    """Open: the normal distribution is cut off below this share of the average execution time."""
    milestones: tuple[float, ...] = (0.5, 1.0)
    """Stated: work of each QoS version, as a share of the full work. Open: a version that stops at a milestone makes
    that share of its data accesses."""
    write_rule: Literal["above", "equal"] = "above"
    """Stated: transactions write at their level or above (paper 004); `equal`: only at their level (paper 002)."""


@dataclass(frozen=True)
class Control:
    """Feedback control, QoS management and admission (sections 3.2 and 3.3)."""

    period_s: float = 5.0
    """Stated: the sampling period."""
    set_point: float = 5.0
    """Stated: the miss ratio, in percent, that every level must stay below."""
    low_gains: Gains = Gains(0.224, 0.176)
    """Stated: the miss ratio controller of the lowest level."""
    high_gains: Gains = Gains(0.127, 0.176)
    """Stated: the miss ratio controllers of the other levels."""
    form: Literal["printed", "factored"] = "printed"
    """Open: `printed` is Eq. 1; `factored` is KP x (error + KI x sum of errors), which has the stated poles
    if the profiled gain is doubled."""
    utilisation_gains: Gains = Gains(0.290, 0.051)
    """Open: what `tuning.place` gives for the stated poles and a process gain of 2 (estimates wrong by 2)."""
    threshold_low: float = 80.0
    """Stated: where the utilisation threshold starts and falls back to, in percent."""
    threshold_top: float = 100.0
    """Stated: the threshold does not exceed this."""
    threshold_step: float = 2.0
    """Stated: by how much the threshold grows in a sample without misses."""
    released: Literal["deadline", "end"] = "end"
    """Open: until when an admitted estimate counts: its transaction's deadline, or its end (commit or miss)."""
    limit: float = 75.0
    """Open: the most that the sum of estimates may be, in percent of what the levels may use. Chosen on one stated
    number, the miss ratio of Open-AC at AppLoad 200 %; all others are then predictions."""
    start: float = 5.0
    """Open: the limit a feedback controller starts with: its floor, so that no estimation error overloads the start."""
    limit_floor: float = 5.0
    """Open: the limit does not fall below this, about the estimate of one transaction."""
    quality_floor: float = 0.5
    """Open: the least share of transactions at full QoS (the lowest value in the paper's Table 1)."""
    least_sum: float = -math.inf
    """Open: the sum of errors of a controller does not fall below this."""
    hold_when_saturated: bool = True
    """Open: integrators stand still while the actuators are at the top of their range and more is asked for."""


@dataclass(frozen=True)
class Strict:
    """What only the strict processor has; all of it is constant while it runs."""

    reserve: float = 0.15
    """The share of time in which no lower level runs, for each level above another."""
    cycle_ms: float = 10.0
    """After how long the table of slots repeats."""
    threshold_low: float = 85.0
    """Where a level's utilisation threshold starts, in percent of its own turns: of the time in which it may run,
    what it and the levels it dominates use."""
    set_point: float = 1.0
    """The miss ratio, in percent, that the controllers aim at: the promise of 5 % is to hold at every moment, not only
    in the mean, so they aim lower."""


@dataclass(frozen=True)
class Settings:
    model: Model = field(default_factory=Model)
    control: Control = field(default_factory=Control)
    strict: Strict = field(default_factory=Strict)

    def but(self, name: str, value: object) -> Settings:
        """The same settings with one changed: `settings.but("control.start", 80.0)`."""
        part, _, key = name.partition(".")
        try:
            changed = replace(getattr(self, part), **{key: value})
            return replace(self, **{part: changed})
        except (AttributeError, TypeError):
            raise Conflict(f"cannot change setting `{name}`: there is no such setting") from None


@dataclass(frozen=True)
class Approach:
    """One of the systems that are compared (section 4.2)."""

    name: str
    by_level: bool = True
    """Dominated levels go first; otherwise deadlines alone decide, which is a covert channel."""
    admission: bool = True
    feedback: Literal["none", "shared", "dominated"] = "none"
    """What moves a level's limit and QoS: misses and utilisation of all levels (the paper), or its own misses and what
    it and the levels it dominates use."""
    counted: Literal["shared", "own"] = "shared"
    """Whose estimates count when a level asks for admission: those of all levels, against the whole processor (the
    paper), or its own, against what the levels it dominates left of its turns in the last period."""
    slots: bool = False
    """Whether time slots bound what the lower levels may use."""


OPEN = Approach("Open", admission=False)
OPEN_AC = Approach("Open-AC")
COVERT_AC = Approach("Covert-AC", by_level=False)
STAR = Approach("STAR", feedback="shared")
STRICT = Approach("strict STAR", feedback="dominated", counted="own", slots=True)
APPROACHES = (OPEN, OPEN_AC, COVERT_AC, STAR, STRICT)
