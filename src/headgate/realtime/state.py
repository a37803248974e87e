"""All state of the transaction handler, in arrays: transactions, ready queues, locks, admitted estimates, counters.

Times are whole nanoseconds and estimates whole parts per billion, so that no rounding depends on how often time was cut
into pieces: the trace of a level is the same to the bit, whatever other levels do.
INVARIANT: nothing that a level can run out of is shared between levels; each has places for transactions of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from headgate.realtime.arrays import Bools, Floats, Ints, Records
from headgate.realtime.lattice import Lattice, Slot, slot_arrays

NEVER = np.int64(2**62)
NOBODY = np.int64(-1)
WHOLE = 1_000_000_000
"""The whole processor, in parts per billion."""

FREE, READY, BLOCKED = 0, 1, 2
"""What a place for a transaction holds."""
START, NEXT, LOCKING, WORKING = 0, 1, 2, 3
"""How far a transaction is: before its first operation, between two, before a lock, at work."""
READ, WRITE = 0, 1
ADMITTED, REJECTED, LOCKED, WAITING, RESTARTED, WORKED, COMMITTED, MISSED, ABORTED = range(9)
"""What the log tells."""
EVENTS = ("admitted", "rejected", "locked", "waiting", "restarted", "worked", "committed", "missed", "aborted")

_int = np.int64
TRANSACTION = np.dtype(
    [
        ("state", _int),  # FREE, READY, BLOCKED
        ("phase", _int),  # START, NEXT, LOCKING, WORKING
        ("level", _int),
        ("queue", _int),  # its ready queue: its level, or 0 where deadlines alone decide
        ("number", _int),  # counts arrivals at its level
        ("deadline", _int),
        ("version", _int),  # QoS
        ("need", _int),  # the admitted estimate
        ("target", _int),  # wanted by the operation, or -1
        ("mode", _int),
        ("left", _int),  # work of the operation that is left
        ("locks", _int),  # how many it holds
        ("script", _int),  # which transaction of the workload it is, and how many operations are done
        ("done", _int),
    ]
)
ITEM = np.dtype([("level", _int), ("first", _int), ("waiting", _int)])
LOCK = np.dtype([("target", _int), ("mode", _int), ("next", _int), ("previous", _int)])
LEVEL = np.dtype(
    [
        ("group", _int),  # which control group decides its quality
        ("limit", _int),  # the most that the estimates that count for it may add up to
        ("promised", _int),  # admitted estimates that were not released
        ("submitted", _int),
        ("admitted", _int),
        ("timely", _int),
        ("tardy", _int),
        ("restarts", _int),
        ("busy", _int),  # nanoseconds of processor
        ("seen", _int),  # nanoseconds of its own turns that it and the levels it dominates used
        ("versions", _int),  # sum of the versions that committed
    ]
)
GROUP = np.dtype([("quality", np.float64), ("carry", np.float64)])
RULES = np.dtype(
    [
        ("by_level", _int),
        ("admission", _int),
        ("shared_sum", _int),  # estimates of all levels count for each; otherwise only its own
        ("until_deadline", _int),
        ("one_always", _int),
        ("details", _int),
    ]
)
LOG = np.dtype([("time", _int), ("event", _int), ("level", _int), ("number", _int), ("detail", _int)])


class State(NamedTuple):
    """The transaction handler of one processor. Numbers of transactions are places in `transactions`."""

    transactions: Records
    free: Ints  # per level a stack of free places
    free_count: Ints
    queue: Ints  # per ready queue the transactions, earliest deadline first
    queue_count: Ints
    items: Records
    locks: Records  # `width` places for each transaction
    dominates: Bools
    chains: Ints  # per slot the levels that may run, lowest first
    ends: Ints  # when each slot of a cycle ends
    turns: Bools  # turns[slot, k]: level k may run in this slot
    levels: Records
    groups: Records
    held_until: Ints  # per level the times when estimates are released, and which
    held: Ints
    held_count: Ints
    milestones: Floats  # share of the full work that each QoS version takes
    rules: Records
    log: Records
    log_count: Ints


def new_state(
    lattice: Lattice,
    slots: Sequence[Slot],
    item_levels: Ints,
    *,
    groups: Sequence[int],
    milestones: Sequence[float] = (0.5, 1.0),
    by_level: bool = True,
    admission: bool = True,
    shared_sum: bool = True,
    until_deadline: bool = True,
    one_always: bool = False,
    capacity: int = 2048,
    locks: int = 64,
    log: int = 0,
    details: bool = True,
) -> State:
    """A handler without transactions. `groups` names each level's control group; `capacity` is the most transactions of
    one level at a time, `locks` the most locks of one transaction, `log` the room for events
    (0: none is kept), `details` whether locks and work are among them."""
    n = len(lattice.levels)
    transactions = _records(n * capacity, TRANSACTION)
    items = _records(len(item_levels), ITEM)
    items["level"] = item_levels
    items["first"] = NOBODY
    levels = _records(n, LEVEL)
    levels["group"] = groups
    levels["limit"] = WHOLE
    groups_ = _records(max(groups) + 1, GROUP)
    groups_["quality"] = 1.0
    rules = _records(1, RULES)
    rules[0] = (by_level, admission, shared_sum, until_deadline, one_always, details)
    chains, ends = slot_arrays(slots, n)
    held = (n, capacity * 8)
    return State(
        transactions=transactions,
        free=np.arange(n * capacity, dtype=np.int64).reshape(n, capacity),
        free_count=np.full(n, capacity, np.int64),
        queue=np.zeros((n, n * capacity), np.int64),
        queue_count=np.zeros(n, np.int64),
        items=items,
        locks=_records(n * capacity * locks, LOCK),
        dominates=lattice.dominates,
        chains=chains,
        ends=ends,
        turns=np.array([[k in slot.chain for k in range(n)] for slot in slots]),
        levels=levels,
        groups=groups_,
        held_until=np.zeros(held, np.int64),
        held=np.zeros(held, np.int64),
        held_count=np.zeros(n, np.int64),
        milestones=np.array(milestones, dtype=np.float64),
        rules=rules,
        log=_records(log, LOG),
        log_count=np.zeros(1, np.int64),
    )


def _records(count: int, kind: np.dtype[np.void]) -> Records:
    """Records whose fields are attributes, in compiled functions and in uncompiled ones."""
    return np.zeros(count, kind).view(np.recarray)
