"""Runs a workload by simulated time: the state machines of this package, sampled and controlled once per period."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from headgate.realtime.actuators import Actuators
from headgate.realtime.admission import submit
from headgate.realtime.arrays import Ints, Records
from headgate.realtime.compiled import compiled
from headgate.realtime.control import Controller, Signal
from headgate.realtime.lattice import MILLISECOND, SECOND, Lattice, Slot
from headgate.realtime.scheduler import advance, begin, commit
from headgate.realtime.settings import Approach, Settings
from headgate.realtime.state import NOBODY, START, WHOLE, State, new_state
from headgate.realtime.workload import Load, Script, generate, item_levels


@compiled
def next_operation(state: State, script: Script, now: int, t: int) -> None:
    """Lets a transaction make its next data access, with its part of the work, or commit after the last."""
    me = state.transactions[t]
    if me.phase == START:
        me.done = 0
    share = state.milestones[me.version]
    first = script.first[me.script]
    accesses = max(1, int(np.rint((script.first[me.script + 1] - first) * share)))
    if me.done == accesses:
        commit(state, now, t)
        return
    work = max(1, int(script.work[me.script] * share))
    part = work // accesses
    if me.done == accesses - 1:
        part = work - part * (accesses - 1)
    access = first + me.done
    me.done += 1
    begin(state, now, t, script.item[access], script.mode[access], part)


@compiled
def run_until(state: State, script: Script, place: int, now: int, until: int) -> int:
    """Simulates from `now` to `until`; `place` is the next arrival of the script, and so is what is returned."""
    arrivals = script.time.shape[0]
    while now < until:
        horizon = until
        if place < arrivals:
            horizon = min(until, script.time[place])
        t = int(NOBODY)
        if now < horizon:
            now, t = advance(state, now, horizon)
        if t != NOBODY:
            next_operation(state, script, now, t)
            continue
        while place < arrivals and script.time[place] <= now and now < until:
            submit(state, now, script.level[place], script.deadline[place], script.estimate[place], place)
            place += 1
    return place


@dataclass(frozen=True)
class Sample:
    """One period, per level: counts, utilisation in percent by the level itself, and what control made of it."""

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
    signals: tuple[Signal | None, ...]

    def miss_ratio(self, level: int) -> float:
        """In percent of those admitted transactions that ended; 0 if none ended."""
        ended = int(self.timely[level] + self.tardy[level])
        return 100 * int(self.tardy[level]) / ended if ended else 0.0


@dataclass(frozen=True)
class Group:
    """Levels under one controller: which levels they are, and which levels it hears."""

    levels: tuple[int, ...]
    hears: tuple[int, ...]
    measures: tuple[int, ...]
    """The levels whose use of the processor it takes for its utilisation."""


def groups_of(lattice: Lattice, approach: Approach) -> list[Group]:
    """One group of all levels, or one for each level that hears only itself and measures what it dominates."""
    everyone = tuple(range(len(lattice.levels)))
    if approach.feedback != "dominated":
        return [Group(everyone, everyone, everyone)]
    return [Group((k,), (k,), tuple(j for j in everyone if lattice.dominates[k, j])) for k in everyone]


class Simulation:
    """One run of one approach under one load."""

    def __init__(
        self, lattice: Lattice, approach: Approach, load: Load, settings: Settings | None = None, *, log: int = 0
    ) -> None:
        self.lattice, self.approach, self.load = lattice, approach, load
        self.settings = settings or Settings()
        model, control = self.settings.model, self.settings.control
        if approach.feedback == "dominated":
            control = replace(control, set_point=self.settings.strict.set_point)
        self.slots = self._slots()
        self.groups = groups_of(lattice, approach)
        group_of = {k: g for g, group in enumerate(self.groups) for k in group.levels}
        everyone = np.ones_like(lattice.dominates)
        self.state = new_state(
            lattice,
            self.slots,
            item_levels(lattice, load.items, model),
            groups=[group_of[k] for k in range(len(lattice.levels))],
            counted=lattice.dominates if approach.counted == "dominated" else everyone,
            milestones=model.milestones,
            by_level=approach.by_level,
            admission=approach.admission,
            until_deadline=control.released == "deadline",
            one_always=approach.slots,
            log=log,
        )
        self.state.groups["limit"] = int(control.limit / 100 * WHOLE)
        capacity = lattice.capacity(self.slots)
        self.controllers: list[Controller] = []
        self.actuators: list[Actuators] = []
        if approach.feedback != "none":
            for g, group in enumerate(self.groups):
                top = 100 * max(capacity[k] for k in group.levels)
                self.controllers.append(Controller(group.hears, control, top))
                self.actuators.append(Actuators(control, model.milestones))
                self._set(g)
        self.script = generate(lattice, load, model)

    def _slots(self) -> list[Slot]:
        if not self.approach.slots:
            return self.lattice.one_queue()
        strict = self.settings.strict
        return self.lattice.slots(strict.reserve, round(strict.cycle_ms * MILLISECOND))

    def samples(self) -> Iterator[Sample]:
        """Simulates period by period."""
        period = round(self.settings.control.period_s * SECOND)
        now, place = 0, 0
        while now < self.load.seconds * SECOND:
            before = self.state.levels.copy()
            place = run_until(self.state, self.script, place, now, now + period)
            now += period
            yield self._sample(now, before, period)

    def _sample(self, now: int, before: Records, period: int) -> Sample:
        levels = self.state.levels
        change = {name: levels[name] - before[name] for name in levels.dtype.names}
        busy = 100 * change["busy"] / period
        quality = [float(self.state.groups[g]["quality"]) for g in levels["group"]]
        limit = [self.state.groups[g]["limit"] * 100 / WHOLE for g in levels["group"]]
        names = ("submitted", "admitted", "timely", "tardy", "restarts", "versions")
        sample = Sample(
            now / SECOND,
            **{name: change[name] for name in names},
            utilisation=tuple(map(float, busy)),
            quality=tuple(quality),
            limit=tuple(map(float, limit)),
            signals=(),
        )
        signals = [self._control(g, sample) for g in range(len(self.controllers))]
        by_level = tuple(signals[g] if signals else None for g in levels["group"])
        return Sample(**{**vars(sample), "signals": by_level})

    def _control(self, g: int, sample: Sample) -> Signal:
        """One sample of one controller, and what its actuators do."""
        group, actuators = self.groups[g], self.actuators[g]
        used = sum(sample.utilisation[k] for k in group.measures)
        misses = {k: sample.miss_ratio(k) for k in group.hears}
        signal = self.controllers[g].sample(
            misses, used, saturated=self.settings.control.hold_when_saturated and actuators.saturated
        )
        actuators.apply(signal.change, used)
        self._set(g)
        return signal

    def _set(self, g: int) -> None:
        self.state.groups[g]["quality"] = self.actuators[g].quality
        self.state.groups[g]["limit"] = int(self.actuators[g].limit / 100 * WHOLE)
