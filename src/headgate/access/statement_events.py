"""What a statement leaves on the audit trail, and under which name."""

from __future__ import annotations

from functools import cache

from headgate.access import rows as r
from headgate.access.audit import Event
from headgate.access.events import session_event
from headgate.access.request import Request
from headgate.cql.continuous import CreateQueryAs, SetQueryStatus, Subscribe
from headgate.cql.statements import AlterUser, GrantPermissions, GrantRoles, Show, Statement


def statement_events(
    session: r.Session, statement: Statement, request: Request, *, granted: bool, reason: str
) -> list[Event]:
    """One record, or one for each recipient of what is granted or revoked."""
    action = action_of(statement)
    if not request.given:
        return [Event(session.user, session.id, session.level, action, request.subject, granted, reason)]
    return [
        session_event(session, f"{action} {whom}", about, granted=granted, reason=reason)
        for about, whom in request.given
    ]


def action_of(statement: Statement) -> str:
    """The name of a statement in the audit trail: its kind and what it changes, never a value."""
    match statement:
        case GrantPermissions() | GrantRoles():
            verb = "REVOKE" if statement.revoke else "GRANT"
            return f"{verb} {', '.join(statement.permissions) if isinstance(statement, GrantPermissions) else 'ROLES'}"
        case SetQueryStatus():
            return "START QUERY" if statement.running else "STOP QUERY"
        case Subscribe():
            return "UNSUBSCRIBE" if statement.ends else "SUBSCRIBE"
        case CreateQueryAs() if statement.replaces:
            return "REPLACE QUERY"
        case AlterUser():
            return f"ALTER USER {', '.join(what for what, _ in statement.changes)}"
        case Show():
            return f"SHOW {statement.what}"
        case _:
            return _words(type(statement).__name__)


@cache
def _words(name: str) -> str:
    return "".join(f" {c}" if c.isupper() else c for c in name).strip().upper()
