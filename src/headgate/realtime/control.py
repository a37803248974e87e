"""Feedback control of miss ratio and utilisation (paper 004, section 3.2).

A controller hears the miss ratios of some levels and the utilisation by some levels, and says by how many percentage
points utilisation should change. The paper has one that hears all levels; strict control has one for each level, which
hears the misses of this level only, and what it and the levels it dominates use. Nothing here knows the time: `sample`
is called once per period.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from headgate.realtime.settings import Control, Gains


class Pi:
    """A digital PI controller, Eq. 1: KP x error + KI x sum of the errors so far, this one included."""

    def __init__(self, gains: Gains) -> None:
        self.gains = gains
        self.total = 0.0

    def signal(self, error: float) -> float:
        """What the controller asks for; its sum is not changed yet."""
        return self.gains.kp * error + self.gains.ki * (self.total + error)

    def integrate(self, error: float, least: float = -math.inf) -> None:
        self.total = max(least, self.total + error)


class Threshold:
    """The utilisation threshold manager (3.2.4): creeps up while nobody misses, falls back when misses take control."""

    def __init__(self, low: float, step: float, top: float) -> None:
        self.low, self.step, self.top = low, step, top
        self.value = self.low

    def update(self, *, no_misses: bool, misses_in_control: bool) -> None:
        if misses_in_control:
            self.value = self.low
        elif no_misses and self.value + self.step <= self.top:
            self.value += self.step


@dataclass(frozen=True)
class Signal:
    """What one sample led to, in percentage points of utilisation."""

    change: float
    of_misses: float
    of_utilisation: float
    by_level: Mapping[int, float]
    threshold: float

    @property
    def misses_in_control(self) -> bool:
        return self.of_misses <= self.of_utilisation


def combine(signals: Sequence[float]) -> float:
    """One miss ratio signal of all levels' (3.2.5): the sum of the negative ones, else the smallest."""
    negative = [signal for signal in signals if signal < 0]
    return sum(negative) if negative else min(signals)


class Controller:
    """Miss ratio controllers for the levels it hears, one utilisation controller, and its threshold."""

    def __init__(self, hears: Sequence[int], settings: Control) -> None:
        self.settings = settings
        self.of_misses = {k: Pi(_gains(settings, k)) for k in hears}
        self.of_utilisation = Pi(settings.utilisation_gains)
        self.threshold = Threshold(settings.threshold_low, settings.threshold_step, settings.threshold_top)

    def sample(self, misses: Mapping[int, float], utilisation: float, *, saturated: bool = False) -> Signal:
        """Miss ratios and utilisation of the last period, in percent. `saturated`: the actuators cannot give more."""
        errors = {k: self.settings.set_point - misses[k] for k in self.of_misses}
        by_level = {k: pi.signal(errors[k]) for k, pi in self.of_misses.items()}
        of_misses = combine(list(by_level.values()))
        shortfall = self.threshold.value - utilisation
        of_utilisation = self.of_utilisation.signal(shortfall)
        signal = Signal(
            min(of_misses, of_utilisation), of_misses, of_utilisation, by_level, threshold=self.threshold.value
        )
        if not (saturated and signal.change > 0):
            self._integrate(signal, errors, shortfall)
        no_misses = all(misses[k] == 0 for k in self.of_misses)
        self.threshold.update(no_misses=no_misses, misses_in_control=signal.misses_in_control)
        return signal

    def _integrate(self, signal: Signal, errors: Mapping[int, float], shortfall: float) -> None:
        """Only who is in control accumulates (anti-windup, 3.2.6)."""
        if not signal.misses_in_control:
            self.of_utilisation.integrate(shortfall, self.settings.least_sum)
            return
        in_control = [k for k, change in signal.by_level.items() if change < 0]
        if not in_control:
            in_control = [min(signal.by_level, key=lambda k: signal.by_level[k])]
        for k in in_control:
            self.of_misses[k].integrate(errors[k], self.settings.least_sum)


def _gains(settings: Control, level: int) -> Gains:
    """The miss ratio gains of a level, for Eq. 1 as printed."""
    gains = settings.low_gains if level == 0 else settings.high_gains
    return gains if settings.form == "printed" else Gains(gains.kp, gains.kp * gains.ki)
