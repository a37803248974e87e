"""What a statement made policies give or take: one audit record for each right, and for a right given its proof."""

from __future__ import annotations

from headgate.access.audit import Event
from headgate.access.events import session_event
from headgate.access.evidence import action_of
from headgate.access.policy_rights import Basis
from headgate.access.request import Request


def consequences(request: Request, before: list[Basis], after: list[Basis]) -> list[Event]:
    session, gone = request.session, sorted(set(before) - set(after))
    events = [session_event(session, action_of(basis, given=False), basis.about, granted=True) for basis in gone]
    for basis in sorted(set(after) - set(before)):
        action, reason = action_of(basis, given=True), request.proved(basis)
        events.append(session_event(session, action, basis.about, granted=True, reason=reason))
    return events
