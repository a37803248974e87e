"""Controller tuning (paper 004, section 3.2.2): profile the database, then place the poles of the closed loop.

The controlled system is an integrator: a signal dU changes the requested utilisation by dU for good, and the miss ratio
follows it with the profiled gain, the steepest increase of the miss ratio per increase of load. A PI controller in
front of it gives two poles, which can be placed freely; inside the unit circle the loop is stable, and the nearer to 0
the faster it settles.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import control
import numpy as np

from headgate.errors import Conflict
from headgate.realtime.lattice import Lattice
from headgate.realtime.settings import OPEN, Gains, Settings
from headgate.realtime.simulator import Simulation
from headgate.realtime.workload import Load


def place(gain: float, poles: tuple[float, float]) -> Gains:
    """The gains of Eq. 1 that give the closed loop these poles."""
    if gain <= 0:
        raise Conflict(f"cannot place poles for a gain of `{gain:g}`: it must be more than 0")
    # States: the controlled value y, and the sum of errors before this sample. With error e = -y, Eq. 1 is
    # dU = KP e + KI (sum + e) = -(KP + KI) y + KI sum.
    system = np.array([[1.0, 0.0], [-1.0, 1.0]])
    feedback = np.asarray(control.acker(system, np.array([[gain], [0.0]]), list(poles))).ravel()
    return Gains(kp=float(feedback[0] + feedback[1]), ki=float(-feedback[1]))


def poles_of(gain: float, gains: Gains) -> list[complex]:
    """The closed-loop poles of Eq. 1 around a system of this gain, largest first."""
    controller = control.tf([gains.kp + gains.ki, -gains.kp], [1, -1], True)
    loop = control.feedback(controller * control.tf([gain], [1, -1], True))
    return sorted((complex(pole) for pole in control.poles(loop)), key=lambda pole: (-abs(pole), -pole.imag))


def settling(gain: float, gains: Gains, period_s: float, within: float = 0.01) -> float:
    """After how many seconds the loop's answer to a step stays within this share of its end."""
    controller = control.tf([gains.kp + gains.ki, -gains.kp], [1, -1], True)
    loop = control.feedback(controller * control.tf([gain], [1, -1], True))
    answer = control.step_response(loop, np.arange(400))
    outside = np.flatnonzero(np.abs(np.asarray(answer.outputs).ravel() - 1) > within)
    return float((outside[-1] + 1 if len(outside) else 0) * period_s)


@dataclass(frozen=True)
class Profile:
    """Miss ratios of one level for rising loads, in percent."""

    level: int
    loads: tuple[float, ...]
    misses: tuple[float, ...]

    def steepest(self) -> tuple[float, float, float]:
        """The gain, and the two loads between which the miss ratio rises most per unit of load."""
        points = pairwise(zip(self.loads, self.misses, strict=True))
        return max(((high - low) / (b - a), a, b) for (a, low), (b, high) in points)


def profile(
    lattice: Lattice,
    split: Sequence[float],
    loads: Sequence[float] = tuple(range(60, 210, 10)),
    settings: Settings | None = None,
    *,
    seconds: float = 600.0,
    runs: int = 1,
) -> list[Profile]:
    """Measures all levels with every transaction admitted at full QoS, the worst case; `split` is each level's share of
    the load."""
    misses = np.zeros((len(lattice.levels), len(loads)))
    for column, total in enumerate(loads):
        for seed in range(runs):
            load = Load(tuple(total * share for share in split), seconds=seconds, seed=seed)
            simulation = Simulation(lattice, OPEN, load, settings)
            for _ in simulation.samples():
                pass
            levels = simulation.state.levels
            misses[:, column] += 100 * levels["tardy"] / np.maximum(1, levels["tardy"] + levels["timely"]) / runs
    return [Profile(k, tuple(loads), tuple(misses[k].tolist())) for k in range(len(lattice.levels))]
