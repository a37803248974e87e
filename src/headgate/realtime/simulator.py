"""Runs a workload by simulated time: the state machines of this package, sampled and controlled once per period."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from headgate.errors import Conflict
from headgate.realtime.admission import submit
from headgate.realtime.compiled import compiled
from headgate.realtime.handler import Handler, Sample
from headgate.realtime.lattice import SECOND, Lattice
from headgate.realtime.scheduler import advance, begin, commit
from headgate.realtime.settings import Approach, Settings
from headgate.realtime.state import NOBODY, START, State
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


class Simulation:
    """One run of one approach under one load."""

    def __init__(
        self,
        lattice: Lattice,
        approach: Approach,
        load: Load,
        settings: Settings | None = None,
        *,
        log: int = 0,
        details: bool = True,
    ) -> None:
        self.load = load
        self.settings = settings or Settings()
        if len(load.shares) != len(lattice.levels):
            raise Conflict(f"cannot apply {len(load.shares)} loads to {len(lattice.levels)} levels: give one for each")
        items = item_levels(lattice, load.items, self.settings.model)
        self.handler = Handler(lattice, items, approach, self.settings, log=log, details=details)
        self.state = self.handler.state
        self.script = generate(lattice, load, self.settings.model)

    def samples(self) -> Iterator[Sample]:
        """Simulates period by period."""
        period = round(self.settings.control.period_s * SECOND)
        now, place = 0, 0
        while now < self.load.seconds * SECOND:
            place = run_until(self.state, self.script, place, now, now + period)
            now += period
            yield self.handler.sample(now)
