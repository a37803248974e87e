"""The whole transaction handler: state, controllers and actuators of one processor, sampled once per period.

It has no clock and no programs: `simulator.py` gives it a workload and simulated time, `transactions.py` programs and
the time of its caller.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from headgate.realtime.actuators import Actuators
from headgate.realtime.arrays import Ints
from headgate.realtime.control import Controller
from headgate.realtime.lattice import MILLISECOND, SECOND, Lattice, Slot
from headgate.realtime.settings import Approach, Control, Settings
from headgate.realtime.state import WHOLE, new_state


@dataclass(frozen=True)
class Sample:
    """One period, per level: counts, utilisation in percent by the level itself, and the QoS and limit that held."""

    time: float
    submitted: Ints
    admitted: Ints
    timely: Ints
    tardy: Ints
    restarts: Ints
    versions: Ints
    utilisation: tuple[float, ...]
    quality: tuple[float, ...]
    limit: tuple[float, ...]

    def miss_ratio(self, level: int) -> float:
        """In percent of those admitted transactions that ended; 0 if none ended."""
        ended = int(self.timely[level] + self.tardy[level])
        return 100 * int(self.tardy[level]) / ended if ended else 0.0


class Handler:
    """One processor under one approach. `state` is what the compiled functions work on, `groups` are levels under one
    controller: all of them, or each on its own."""

    def __init__(
        self,
        lattice: Lattice,
        item_levels: Ints,
        approach: Approach,
        settings: Settings | None = None,
        *,
        capacity: int = 2048,
        log: int = 0,
        details: bool = True,
    ) -> None:
        self.lattice, self.approach = lattice, approach
        self.settings = settings or Settings()
        model, control = self.settings.model, self.settings.control
        self.slots = self._slots()
        everyone = range(len(lattice.levels))
        self.groups = [(k,) for k in everyone] if approach.feedback == "dominated" else [tuple(everyone)]
        group_of = {k: g for g, group in enumerate(self.groups) for k in group}
        self.state = new_state(
            lattice,
            self.slots,
            item_levels,
            groups=[group_of[k] for k in everyone],
            milestones=model.milestones,
            by_level=approach.by_level,
            admission=approach.admission,
            shared_sum=approach.counted == "shared",
            until_deadline=control.released == "deadline",
            one_always=approach.slots,
            capacity=capacity,
            log=log,
            details=details,
        )
        self._turns = [self._turns_of(k) for k in everyone]
        self._left = list(self._turns)
        self.controllers: list[Controller] = []
        self.actuators: list[Actuators] = []
        if approach.feedback != "none":
            for group in self.groups:
                own = self._control_settings(group)
                self.controllers.append(Controller(group, own))
                self.actuators.append(Actuators(own, model.milestones))
        self._actuate()
        self._sampled_at = 0
        self._before = self.state.levels.copy()

    def _slots(self) -> list[Slot]:
        if not self.approach.slots:
            return self.lattice.one_queue()
        strict = self.settings.strict
        return self.lattice.slots(strict.reserve, round(strict.cycle_ms * MILLISECOND))

    def _control_settings(self, group: Sequence[int]) -> Control:
        """Strict control aims lower, and speaks of a level's own turns: the signal is in percent of them, like the
        utilisation it follows from, and so is the limit it moves."""
        control, strict = self.settings.control, self.settings.strict
        if self.approach.feedback != "dominated":
            return control
        turns = self._turns[group[0]]
        return replace(
            control,
            set_point=strict.set_point,
            threshold_low=strict.threshold_low,
            start=control.start / turns,
            limit_floor=control.limit_floor / turns,
        )

    def _turns_of(self, level: int) -> float:
        """The share of time in which a level may run."""
        turns = sum(slot.duration for slot in self.slots if level in slot.chain)
        return turns / sum(slot.duration for slot in self.slots)

    def sample(self, now: int) -> Sample:
        """The period since the last sample is over: measures it, and sets QoS and limits for the next."""
        levels = self.state.levels
        change = {name: levels[name] - self._before[name] for name in levels.dtype.names}
        length = max(1, now - self._sampled_at)
        self._before, self._sampled_at = levels.copy(), now
        names = ("submitted", "admitted", "timely", "tardy", "restarts", "versions")
        sample = Sample(
            now / SECOND,
            **{name: change[name] for name in names},
            utilisation=tuple((100 * change["busy"] / length).tolist()),
            quality=tuple(float(self.state.groups[g]["quality"]) for g in levels["group"]),
            limit=tuple((levels["limit"] * 100 / WHOLE).tolist()),
        )
        seen = (change["seen"] / length).tolist()
        for g, controller in enumerate(self.controllers):
            self._control(controller, g, sample, seen)
        lower = ((change["seen"] - change["busy"]) / length).tolist()
        self._left = [turns - used for turns, used in zip(self._turns, lower, strict=True)]
        self._actuate()
        return sample

    def _control(self, controller: Controller, g: int, sample: Sample, seen: Sequence[float]) -> None:
        """One sample of one controller, and what its actuators make of it."""
        group, actuators = self.groups[g], self.actuators[g]
        if self.approach.feedback == "shared":
            used = sum(sample.utilisation)
        else:
            used = 100 * seen[group[0]] / self._turns[group[0]]
        misses = {k: sample.miss_ratio(k) for k in group}
        held = self.settings.control.hold_when_saturated and actuators.saturated
        actuators.apply(controller.sample(misses, used, saturated=held).change, used)

    def _actuate(self) -> None:
        """Sets the QoS of each group and the limit of each level."""
        for g, actuators in enumerate(self.actuators):
            self.state.groups[g]["quality"] = actuators.quality
        for k, level in enumerate(self.state.levels):
            level["limit"] = int(self._limit(k) / 100 * WHOLE)

    def _limit(self, level: int) -> float:
        """What a level may promise, in percent of the processor; where its own estimates count, a share of what the
        levels it dominates left of its turns."""
        control = self.settings.control
        limit = self.actuators[self.state.levels[level]["group"]].limit if self.actuators else control.limit
        return limit if self.approach.counted == "shared" else max(limit * self._left[level], control.limit_floor)
