"""The basic scheduler (paper 004, section 3.1): dominated levels first, earliest deadline first within a level.

`advance` is the processor: it runs transactions until one of them needs its next operation, or until a given time. The
caller owns the clock and the programs. A driver by the real clock uses the same parts: `dispatch` says who runs,
`charge` what it used, `expire` whose deadline has passed.
"""

from __future__ import annotations

from headgate.realtime.compiled import compiled
from headgate.realtime.events import note
from headgate.realtime.locks import acquire, goes_before, release, unblock
from headgate.realtime.state import (
    ABORTED,
    COMMITTED,
    FREE,
    LOCKING,
    MISSED,
    NEVER,
    NEXT,
    NOBODY,
    READY,
    START,
    WORKED,
    WORKING,
    State,
)


@compiled
def enqueue(state: State, t: int) -> None:
    """Into its ready queue, by priority. Queues are short, so a sorted array is enough."""
    queue = state.transactions[t].queue
    place = state.queue_count[queue]
    while place > 0 and goes_before(state, t, state.queue[queue, place - 1]):
        state.queue[queue, place] = state.queue[queue, place - 1]
        place -= 1
    state.queue[queue, place] = t
    state.queue_count[queue] += 1


@compiled
def leave(state: State, t: int) -> None:
    """A transaction is over: its locks, its place in the queue and its place in memory are free again."""
    me = state.transactions[t]
    unblock(state, t)
    release(state, t)
    queue, count = me.queue, state.queue_count[me.queue]
    found = False
    for place in range(count):
        if found:
            state.queue[queue, place - 1] = state.queue[queue, place]
        found = found or state.queue[queue, place] == t
    state.queue_count[queue] = count - 1
    me.state = FREE
    state.free[me.level, state.free_count[me.level]] = t
    state.free_count[me.level] += 1
    if not state.rules[0].until_deadline:
        state.levels[me.level].promised -= me.need


@compiled
def commit(state: State, now: int, t: int) -> None:
    """The transaction is done, in time."""
    level = state.levels[state.transactions[t].level]
    level.timely += 1
    level.versions += state.transactions[t].version
    note(state, now, COMMITTED, t, state.transactions[t].version)
    leave(state, t)


@compiled
def miss(state: State, now: int, t: int) -> None:
    """The transaction is done, too late."""
    state.levels[state.transactions[t].level].tardy += 1
    note(state, now, MISSED, t, state.transactions[t].version)
    leave(state, t)


@compiled
def abort(state: State, now: int, t: int) -> None:
    """The transaction's own program gave up; it counts neither as timely nor as tardy."""
    note(state, now, ABORTED, t, state.transactions[t].version)
    leave(state, t)


@compiled
def expire(state: State, now: int) -> int:
    """Aborts all transactions whose deadline has passed; returns when the next one passes."""
    following = NEVER
    for queue in range(state.queue_count.shape[0]):
        while state.queue_count[queue] > 0:
            t = state.queue[queue, 0]
            if state.transactions[t].deadline > now:
                following = min(following, state.transactions[t].deadline)
                break
            miss(state, now, t)
    return int(following)


@compiled
def slot_at(state: State, now: int) -> tuple[int, int]:
    """The slot of this moment, and when it ends."""
    if state.ends.shape[0] == 1:
        return 0, int(NEVER)
    cycle = state.ends[state.ends.shape[0] - 1]
    begun = now // cycle * cycle
    slot = 0
    while begun + state.ends[slot] <= now:
        slot += 1
    return slot, int(begun + state.ends[slot])


@compiled
def dispatch(state: State, slot: int) -> int:
    """Who runs in this slot: the first ready transaction of the lowest level of its chain that has one, or -1."""
    for place in range(state.chains.shape[1]):
        queue = state.chains[slot, place]
        if queue < 0:
            break
        for i in range(state.queue_count[queue]):
            if state.transactions[state.queue[queue, i]].state == READY:
                return int(state.queue[queue, i])
    return int(NOBODY)


@compiled
def charge(state: State, now: int, t: int, slot: int, spent: int) -> None:
    """The transaction has used the processor in this slot; `now` is when it stopped."""
    me = state.transactions[t]
    me.left -= spent
    state.levels[me.level].busy += spent
    for k in range(state.levels.shape[0]):
        if state.turns[slot, k] and state.dominates[k, me.level]:
            state.levels[k].seen += spent
    if me.left == 0:
        finish(state, now, t)


@compiled
def finish(state: State, now: int, t: int) -> None:
    """The operation is done."""
    state.transactions[t].phase = NEXT
    note(state, now, WORKED, t, 0)


@compiled
def begin(state: State, now: int, t: int, item: int, mode: int, work: int) -> None:
    """The next operation of a transaction: lock an item (or none, if -1), then work."""
    me = state.transactions[t]
    me.target, me.mode, me.left = item, mode, work
    me.phase = LOCKING if item >= 0 else WORKING
    if me.phase == WORKING and work == 0:
        finish(state, now, t)


@compiled
def advance(state: State, now: int, until: int) -> tuple[int, int]:
    """Runs the processor. Returns the time and the transaction that needs its next operation (`begin` or `commit` it),
    or `until` and -1."""
    while True:
        deadline = expire(state, now)
        if now >= until:
            return until, int(NOBODY)
        slot, slot_end = slot_at(state, now)
        horizon = min(until, deadline, slot_end)
        t = dispatch(state, slot)
        while t != NOBODY and now < horizon:
            phase = state.transactions[t].phase
            if phase in (START, NEXT):
                return now, t
            if phase == LOCKING:
                if not acquire(state, now, t):
                    t = dispatch(state, slot)
                    continue
                if state.transactions[t].left == 0:
                    finish(state, now, t)
                continue
            spent = min(state.transactions[t].left, horizon - now)
            now += spent
            charge(state, now, t, slot, spent)
            if state.transactions[t].phase == NEXT:
                return now, t  # so that who is done at its deadline, or at the end of its turn, still commits
        if t == NOBODY:
            now = horizon
