"""Two-phase locking with high priority (2PL-HP; paper 004, section 3.1).

A transaction that asks for a lock aborts the holders it conflicts with if it goes before all of them, and waits
otherwise. Dominated levels go first; within a level, earlier deadlines. So nobody waits for a transaction of a level it
does not dominate, and waiting always points at somebody who goes before: there is no circle.
Writes by incomparable levels do not conflict: both are blind, and both are installed at commit, in that order.
"""

from __future__ import annotations

from headgate.realtime.compiled import compiled
from headgate.realtime.events import note
from headgate.realtime.state import (
    BLOCKED,
    LOCKED,
    NOBODY,
    READY,
    RESTARTED,
    START,
    WAITING,
    WORKING,
    WRITE,
    State,
)


@compiled
def goes_before(state: State, a: int, b: int) -> bool:
    """Whether transaction a has priority over transaction b."""
    one, other = state.transactions[a], state.transactions[b]
    if one.queue != other.queue:
        return bool(state.dominates[other.level, one.level])
    if one.deadline != other.deadline:
        return bool(one.deadline < other.deadline)
    if one.number != other.number:
        return bool(one.number < other.number)
    return bool(one.level < other.level)


@compiled
def conflict(state: State, a: int, mode: int, b: int, held: int) -> bool:
    """Whether a lock that a asks for excludes one that b holds."""
    if mode != WRITE and held != WRITE:
        return False
    one, other = state.transactions[a].level, state.transactions[b].level
    return bool(state.dominates[one, other] or state.dominates[other, one])


@compiled
def acquire(state: State, now: int, t: int) -> bool:
    """Tries to lock what the transaction's operation wants; it works on if granted, and is blocked if not."""
    me = state.transactions[t]
    item, mode = me.target, me.mode
    width = state.locks.shape[0] // state.transactions.shape[0]
    mine = NOBODY
    place = state.items[item].first
    while place != NOBODY:
        holder = place // width
        if holder == t:
            mine = place
        elif conflict(state, t, mode, holder, state.locks[place].mode) and not goes_before(state, t, holder):
            me.state = BLOCKED
            state.items[item].waiting += 1
            note(state, now, WAITING, t, item)
            return False
        place = state.locks[place].next
    place = state.items[item].first
    while place != NOBODY:
        holder, following = place // width, state.locks[place].next
        if holder != t and conflict(state, t, mode, holder, state.locks[place].mode):
            restart(state, now, holder)
            following = state.items[item].first  # the list has changed
        place = following
    if mine == NOBODY:
        _hold(state, t, item, mode, width)
    elif mode == WRITE:
        state.locks[mine].mode = WRITE
    me.phase = WORKING
    note(state, now, LOCKED, t, item)
    return True


@compiled
def _hold(state: State, t: int, item: int, mode: int, width: int) -> None:
    """A new lock, first in the item's list."""
    place = t * width + state.transactions[t].locks
    state.transactions[t].locks += 1
    lock, first = state.locks[place], state.items[item].first
    lock.target, lock.mode, lock.next, lock.previous = item, mode, first, NOBODY
    if first != NOBODY:
        state.locks[first].previous = place
    state.items[item].first = place


@compiled
def release(state: State, t: int) -> None:
    """Gives all locks back, and lets those who waited for them ask again."""
    width = state.locks.shape[0] // state.transactions.shape[0]
    for place in range(t * width, t * width + state.transactions[t].locks):
        lock = state.locks[place]
        if lock.previous == NOBODY:
            state.items[lock.target].first = lock.next
        else:
            state.locks[lock.previous].next = lock.next
        if lock.next != NOBODY:
            state.locks[lock.next].previous = lock.previous
        if state.items[lock.target].waiting > 0:
            _wake(state, lock.target)
    state.transactions[t].locks = 0


@compiled
def _wake(state: State, item: int) -> None:
    for queue in range(state.queue_count.shape[0]):
        for place in range(state.queue_count[queue]):
            t = state.queue[queue, place]
            if state.transactions[t].state == BLOCKED and state.transactions[t].target == item:
                unblock(state, t)


@compiled
def unblock(state: State, t: int) -> None:
    """A blocked transaction is ready again; it still has to ask for its lock."""
    if state.transactions[t].state == BLOCKED:
        state.items[state.transactions[t].target].waiting -= 1
        state.transactions[t].state = READY


@compiled
def restart(state: State, now: int, t: int) -> None:
    """Aborts a transaction for the sake of another; it starts again, with the same deadline."""
    unblock(state, t)
    release(state, t)
    state.transactions[t].phase = START
    state.transactions[t].done = 0
    state.levels[state.transactions[t].level].restarts += 1
    note(state, now, RESTARTED, t, 0)
