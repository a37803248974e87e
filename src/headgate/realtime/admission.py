"""The admission controller and the choice of a QoS version (paper 004, section 3.3).

A transaction is admitted if its estimated share of the processor fits beside the estimates of those admitted before:
at all levels (the paper), or at its own (strict). A rejected transaction leaves no trace at other levels.
"""

from __future__ import annotations

from headgate.realtime.compiled import compiled
from headgate.realtime.events import log, note
from headgate.realtime.scheduler import enqueue
from headgate.realtime.state import ADMITTED, NOBODY, READY, REJECTED, START, WHOLE, State


@compiled
def submit(state: State, now: int, level: int, deadline: int, estimate: int, script: int) -> int:
    """A transaction arrives: its place if it is admitted, else -1. Its QoS version is chosen so that the mean over
    transactions is the quality that its group has now; each version takes its milestone's share of the estimate."""
    group = state.groups[state.levels[level].group]
    steps = group.quality * (state.milestones.shape[0] - 1) + group.carry
    version = min(int(steps + 1e-9), state.milestones.shape[0] - 1)
    t = admit(state, now, level, deadline, estimate * state.milestones[version], version, script)
    if t != NOBODY:
        group.carry = steps - version
    return t


@compiled
def admit(state: State, now: int, level: int, deadline: int, work: float, version: int, script: int) -> int:
    """A transaction arrives in this version, which takes this much work: its place if it is admitted, else -1."""
    own = state.levels[level]
    own.submitted += 1
    need = int(work * WHOLE / (deadline - now))
    full = state.free_count[level] == 0 or state.held_count[level] == state.held.shape[1]
    if full or (state.rules[0].admission and not fits(state, now, level, need)):
        log(state, now, REJECTED, level, own.submitted, 0)
        return int(NOBODY)
    state.free_count[level] -= 1
    t = state.free[level, state.free_count[level]]
    me = state.transactions[t]
    me.state, me.phase, me.level, me.deadline = READY, START, level, deadline
    me.queue = level if state.rules[0].by_level else 0
    me.number = own.submitted
    me.version, me.need, me.locks, me.script, me.done = version, need, 0, script, 0
    own.admitted += 1
    own.promised += need
    if state.rules[0].admission and state.rules[0].until_deadline:
        _hold_until(state, level, deadline, need)
    enqueue(state, t)
    note(state, now, ADMITTED, t, version)
    return int(t)


@compiled
def fits(state: State, now: int, level: int, need: int) -> bool:
    """Whether the level may take on this estimate: within its limit, or as its only one where that is promised."""
    total = 0
    for other in range(state.levels.shape[0]):
        if other == level or state.rules[0].shared_sum:
            _release_due(state, now, other)
            total += state.levels[other].promised
    own = state.levels[level]
    return bool(total + need <= own.limit or (own.promised == 0 and state.rules[0].one_always))


@compiled
def _hold_until(state: State, level: int, deadline: int, need: int) -> None:
    """Keeps an estimate until its deadline; the earliest deadline stands last, where it is taken off."""
    place = state.held_count[level]
    while place > 0 and state.held_until[level, place - 1] < deadline:
        state.held_until[level, place] = state.held_until[level, place - 1]
        state.held[level, place] = state.held[level, place - 1]
        place -= 1
    state.held_until[level, place] = deadline
    state.held[level, place] = need
    state.held_count[level] += 1


@compiled
def _release_due(state: State, now: int, level: int) -> None:
    while state.held_count[level] > 0 and state.held_until[level, state.held_count[level] - 1] <= now:
        state.held_count[level] -= 1
        state.levels[level].promised -= state.held[level, state.held_count[level]]
