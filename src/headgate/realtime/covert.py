"""Covert channels, measured: what a low observer learns of a high sender's load (paper 004 closes the channels of the
scheduler and of the locks; its control signal and its admission sum are two more).

The sender switches its load on and off, one bit per symbol. The observer sends a steady load of its own and looks only
at what becomes of it: how many of its transactions are admitted, at which QoS, and how long they take. It learns from
the first half of the symbols where to draw the line, and guesses the second half. What is counted is what it then
surely has: the capacity of a binary channel with the largest error rate that fits its mistakes, with 95 % confidence.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import binomtest

from headgate.errors import Conflict
from headgate.realtime.arrays import Bools, Floats, Records
from headgate.realtime.lattice import SECOND, Lattice
from headgate.realtime.settings import Approach, Settings
from headgate.realtime.simulator import Simulation
from headgate.realtime.state import ADMITTED, COMMITTED, REJECTED
from headgate.realtime.workload import Load

OBSERVABLES = ("admission", "QoS", "response time")
_LOG = 4_000_000
_FEWEST = 4  # two to learn from, two to guess, of which the last may have no answer any more


@dataclass(frozen=True)
class Attack:
    """A sender at the top level, an observer at the lowest."""

    observer_load: float = 60.0
    sender_load: float = 150.0
    symbol_s: float = 1.0
    seconds: float = 1200.0
    warm_up_s: float = 100.0
    """The sender already sends, but the observer does not count yet: the controllers are still settling."""
    seed: int = 0

    @property
    def ignored(self) -> int:
        """Symbols of the warm-up."""
        return int(self.warm_up_s / self.symbol_s)


@dataclass(frozen=True)
class Leak:
    """What came through one observable."""

    observable: str
    symbol_s: float
    guesses: int
    mistakes: int
    bits_per_second: float


def low_trace(
    lattice: Lattice, approach: Approach, attack: Attack, bits: Bools, settings: Settings | None = None
) -> Records:
    """All that the observer can see of its own transactions while the sender sends these bits, warm-up included."""
    top = len(lattice.levels) - 1
    on = [(i * attack.symbol_s, (i + 1) * attack.symbol_s) for i in np.flatnonzero(bits)]
    shares = [0.0] * (top + 1)
    shares[0], shares[top] = attack.observer_load, attack.sender_load
    seconds = len(bits) * attack.symbol_s
    load = Load(tuple(shares), seconds=seconds, seed=attack.seed, intervals={top: on})
    simulation = Simulation(lattice, approach, load, settings, log=_LOG, details=False)
    for _ in simulation.samples():
        pass
    count = int(simulation.state.log_count[0])
    if count > _LOG:
        raise Conflict(f"cannot keep {count:,} events: shorten the attack")
    log = simulation.state.log[:count]
    return log[log["level"] == 0].copy()


def leaks(lattice: Lattice, approach: Approach, attack: Attack, settings: Settings | None = None) -> list[Leak]:
    """Sends random bits, and lets the observer guess them by each observable."""
    symbols = int(attack.seconds / attack.symbol_s)
    if symbols < _FEWEST:
        raise Conflict(f"cannot learn from {symbols} symbols: send for at least {_FEWEST * attack.symbol_s:g} s")
    draw = np.random.default_rng([attack.seed, 1])
    bits = np.concatenate([_balanced(attack.ignored, draw), _balanced(symbols, draw)])
    trace = low_trace(lattice, approach, attack, bits, settings)
    seen = _features(trace, attack.symbol_s, len(bits))
    counted = bits[attack.ignored :]
    return [_guess(name, seen[name][attack.ignored :], counted, attack.symbol_s) for name in OBSERVABLES]


def _balanced(symbols: int, draw: np.random.Generator) -> Bools:
    """Random bits, as many ones as zeros in each half, so that guessing the commoner one gains nothing."""
    halves = [np.arange(n) % 2 == 0 for n in (symbols // 2, symbols - symbols // 2)]
    return np.concatenate([draw.permutation(half) for half in halves])


def _features(trace: Records, symbol_s: float, symbols: int) -> dict[str, Floats]:
    """Per symbol: the share admitted, the mean version admitted, the mean time from arrival to commit."""
    place = np.minimum(trace["time"] // round(symbol_s * SECOND), symbols - 1)
    admitted, rejected = trace["event"] == ADMITTED, trace["event"] == REJECTED
    committed = trace["event"] == COMMITTED

    def count(chosen: Bools, weights: Floats | None = None) -> Floats:
        return np.bincount(place[chosen], weights, symbols).astype(np.float64)

    begun = np.zeros(int(trace["number"].max(initial=0)) + 1)
    begun[trace["number"][admitted]] = trace["time"][admitted]
    took = (trace["time"] - begun[trace["number"]]) / SECOND
    return {
        "admission": count(admitted) / np.maximum(1, count(admitted) + count(rejected)),
        "QoS": count(admitted, trace["detail"][admitted].astype(np.float64)) / np.maximum(1, count(admitted)),
        "response time": count(committed, took[committed]) / np.maximum(1, count(committed)),
    }


def _guess(name: str, seen: Floats, bits: Bools, symbol_s: float) -> Leak:
    """Guesses the second half of the bits by the line that fits the first half best; control answers late, so the
    observer may also look one symbol later."""
    half = len(bits) // 2
    best = (len(bits), 0.0, False, 0)
    for late in (0, 1):
        x, sent = seen[late : half + late], bits[:half]
        for line in _lines(x):
            mistakes = int(((x > line) != sent).sum())
            best = min(best, (mistakes, line, False, late), (half - mistakes, line, True, late))
    _, line, turned, late = best
    x, sent = seen[half + late :], bits[half : len(bits) - late]
    wrong = int((((x > line) ^ turned) != sent).sum())
    worst = binomtest(wrong, len(sent)).proportion_ci(0.90).high  # one-sided 95 %
    return Leak(name, symbol_s, len(sent), wrong, capacity(worst) / symbol_s)


def _lines(x: Floats) -> Sequence[float]:
    values = np.unique(x)
    return [float(line) for line in np.unique(np.quantile(values, np.linspace(0, 1, 101)))]


def capacity(error: float) -> float:
    """Bits per symbol of a binary symmetric channel; an error rate of one half or more is worth nothing."""
    if error >= 0.5:
        return 0.0
    if error <= 0:
        return 1.0
    return float(1 + error * np.log2(error) + (1 - error) * np.log2(1 - error))
