"""The log of a run: what happened to which transaction, and when.

It is kept where there is room for it. Traces of levels are compared by it, and programs learn from it what became of
their transactions.
"""

from __future__ import annotations

from headgate.realtime.compiled import compiled
from headgate.realtime.state import LOCKED, WAITING, WORKED, State


@compiled
def note(state: State, now: int, event: int, t: int, detail: int) -> None:
    """Logs an event of a transaction."""
    if state.rules[0].details or event not in (LOCKED, WAITING, WORKED):
        log(state, now, event, state.transactions[t].level, state.transactions[t].number, detail)


@compiled
def log(state: State, now: int, event: int, level: int, number: int, detail: int) -> None:
    """Logs an event of the transaction with this number at its level; one too many for the room is only counted."""
    if state.log.shape[0] == 0:
        return
    place = state.log_count[0]
    if place < state.log.shape[0]:
        entry = state.log[place]
        entry.time, entry.event, entry.level, entry.number, entry.detail = now, event, level, number, detail
    state.log_count[0] = place + 1
