"""Explanations of decisions: which roles, grants and rules decide, for those who may know it."""

from __future__ import annotations

from dataclasses import dataclass

from headgate.access import rows as r
from headgate.access.authorizer import Decision, Principal, shown
from headgate.access.derived import DerivedStreams
from headgate.access.permissions import APPLIES, Kind, Permission
from headgate.access.request import Request
from headgate.access.sessions import NOBODY
from headgate.cql.names import Target
from headgate.errors import AccessDenied, Conflict, NotFound, StoreError


@dataclass(frozen=True)
class Explanation:
    """A decision and everything it considered."""

    decision: Decision
    details: tuple[str, ...]


def explained(q: Request, user: str, permission: Permission, target: Target) -> Explanation:
    """Why a user, with all its roles and at its clearance, is granted or denied a permission."""
    thing = q.find(target)
    auditor = q.may(Permission.VIEW_AUDIT, q.catalog.system)
    if permission not in APPLIES[Kind(thing.kind)]:
        raise Conflict(f"{permission} does not apply to {shown(thing)}")
    if user != q.user and not auditor:
        raise AccessDenied("you may ask this for yourself, or with VIEW AUDIT for others")
    found = q.state.users.get(user)
    if found is None or user == NOBODY:
        raise NotFound(f"there is no user `{user}`")
    principal = q.authorizer.potential(found)
    decision = q.authorizer.decide(principal, permission, thing)
    details = q.authorizer.explain(principal, permission, thing) if auditor else []
    if decision and permission in (Permission.READ_TUPLE, Permission.SUBSCRIBE):
        details += _computed_from(q, principal, thing)
    return Explanation(decision, tuple(details))


def _computed_from(q: Request, reader: Principal, thing: r.Object) -> list[str]:
    """For the output of a query: whether the reader may read what it is computed from. Streams are named to those who
    may see them."""
    if thing.kind != Kind.STREAM or thing.stream.made_of is None:
        return []
    try:
        unread = DerivedStreams(q.state, q.authorizer, q.plans()).unread(reader, thing)
    except StoreError:  # a definition is damaged
        return ["what it is computed from: damaged"]
    if not unread:
        return []
    seen = [shown(x) for x in unread if q.may(Permission.VIEW_OBJECT, x)]
    hidden = ["streams that you may not see"] if len(seen) < len(unread) else []
    return [f"what it is computed from: DENIED ({', '.join(sorted(seen) + hidden)})"]
