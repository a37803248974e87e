"""Events: what a request leaves on the audit trail, granted or refused."""

from __future__ import annotations

from headgate.access import rows as r
from headgate.access.audit import Event
from headgate.labels import LEAST


def session_event(
    session: r.Session | None, action: str, about: str, *, granted: bool = False, reason: str = ""
) -> Event:
    """A record of what a session asked for; a caller without a session has neither name nor level."""
    if session is None:
        return Event("", "", str(LEAST), action, about, granted, reason)
    return Event(session.user, session.id, session.level, action, about, granted, reason)


def undone(event: Event) -> Event:
    return event._replace(granted=False, reason="undone: a later statement failed")
