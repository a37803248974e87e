"""The views of running queries, for EXPLAIN: which subscribers have the same rights, and so share windows and results.

INVARIANT: a caller learns of its own subscriptions at its level, and with VIEW AUDIT of all subscriptions up to its
level; the audit trail tells an auditor the same. Nothing else in the answer depends on subscriptions.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from headgate.access import objects
from headgate.access import rows as r
from headgate.access.authorizer import Principal
from headgate.access.permissions import Permission
from headgate.access.request import Request
from headgate.access.running import Planned
from headgate.labels import Clearance
from headgate.lexing import quote
from headgate.plain import counted
from headgate.plan.secure import Mode

MOST_SUBSCRIBERS = 1000
"""Subscribers in one answer; their rights are computed while the lock is held. Others are counted."""


def views(q: Request, queries: Iterable[Planned]) -> dict[int, list[str]]:
    """The views of each query, by the query's number, one line for each view: its subscribers, with their roles."""
    known = _known(q)
    left = MOST_SUBSCRIBERS
    found = {}
    for planned in queries:
        subscriptions = known.get(planned.query.query.output, [])
        found[planned.query.id] = _views(q, planned, subscriptions[:left])
        if len(subscriptions) > left:
            found[planned.query.id].append(f"and {counted(len(subscriptions) - left, 'more subscriber')}")
        left = max(0, left - len(subscriptions))
    return found


def _views(q: Request, planned: Planned, subscriptions: Sequence[r.Subscription]) -> list[str]:
    """All readers of a cumulative query share one view. Subscribers who may receive nothing now have none."""
    definition = planned.query.query
    read = objects.derived_from(q.state, planned.inputs) if subscriptions else []
    sharing: dict[Clearance | None, list[str]] = {}
    for subscription in subscriptions:
        who = _receiving(q, subscription)
        if who is None:
            continue
        if planned.query.owner == who.user and definition.narrowed:
            who = replace(who, roles=who.roles & frozenset(definition.roles))
        key = q.authorizer.clearance(who, read) if planned.mode == Mode.EXACT else None
        roles = ", ".join(map(quote, sorted(who.roles))) or "no role"
        sharing.setdefault(key, []).append(f"{quote(who.user)} ({roles}; level {who.level})")
    return sorted(", ".join(members) for members in sharing.values())


def _known(q: Request) -> dict[int, list[r.Subscription]]:
    """The subscriptions that the caller may know of, by stream."""
    order, level = q.authorizer.order, q.authorizer.level
    auditor = q.may(Permission.VIEW_AUDIT, q.catalog.system)
    found: dict[int, list[r.Subscription]] = {}
    for x in sorted(q.state.subscriptions if auditor else q.subscriptions.here(q.principal), key=lambda x: x.key):
        if order.dominates(q.principal.level, level(x.level)):
            found.setdefault(x.stream, []).append(x)
    return found


def _receiving(q: Request, subscription: r.Subscription) -> Principal | None:
    """The principal whose rights count, if it receives results."""
    who, output = q.subscriptions.principal(subscription), q.state.objects.get(subscription.stream)
    if who is None or output is None:
        return None
    needed = (Permission.SUBSCRIBE, Permission.READ_TUPLE)
    return who if all(q.authorizer.allows(who, permission, output) for permission in needed) else None
