"""EXPLAIN ANALYZE: what the operators of a running query did, within what the caller may see.

INVARIANT: a reader is shown what its own subscription saw, as if nobody else were there. A session with CHANGE SYSTEM
is shown all views up to its level, and times.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from headgate.access import rows as r
from headgate.access.authorizer import shown
from headgate.access.permissions import Permission
from headgate.access.request import Request
from headgate.access.running import Planned
from headgate.access.subscriptions import subscriber_name
from headgate.errors import AccessDenied, Conflict
from headgate.lexing import quote
from headgate.plain import counted
from headgate.plan.analysis import LiveEngine, StepCounts, analyzed
from headgate.plan.explain import Line
from headgate.plan.secure import Mode

MOST_VIEWS = 10
"""Views in one answer; the others are counted."""


@dataclass(frozen=True)
class Analysis:
    """Which numbers a caller may have.

    query: the engine's name of the query
    own: the engine's name of the caller as a subscriber; empty: it may have everything of `subscribers`
    subscribers: how subscribers are shown, by the engine's names
    """

    engine: LiveEngine
    query: str
    own: str
    subscribers: Mapping[str, str]

    def lines(self, tree: Sequence[Line]) -> Iterator[str]:
        if self.own:
            found = self.engine.profile(self.query, self.own)
            yield "counted since the engine began, or since you subscribed if that was later"
            yield from self._tree(tree, found[0].steps if found else {})
            return
        began = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(self.engine.began))
        yield f"counted since the engine began ({began}), or since a view began if that was later"
        views = [x for x in self.engine.profile(self.query) if self.subscribers.keys() >= set(x.subscribers)]
        for view in views[:MOST_VIEWS]:
            yield from ("", f"view of {', '.join(self.subscribers[x] for x in view.subscribers)}")
            yield from self._tree(tree, view.steps)
        if len(views) > MOST_VIEWS:
            yield from ("", f"and {counted(len(views) - MOST_VIEWS, 'more view')}")

    def _tree(self, tree: Sequence[Line], steps: Mapping[str, StepCounts]) -> Iterator[str]:
        yield ""
        yield from (f"  {line}" for line in analyzed(tree, steps, everything=not self.own))


def analysis(q: Request, thing: r.Object) -> Analysis:
    """Decides which numbers of a query the caller may have."""
    planned = q.plans().query(thing.id)
    if planned is None:
        raise Conflict(f"cannot analyze {shown(thing)}: it does not run", hint="START QUERY starts it")
    own, subscribers = "", dict[str, str]()
    if q.may_administer():
        subscribers = _up_to_its_level(q)
    else:
        own = subscriber_name(_own(q, thing, planned))
    if q.engine is None:
        raise Conflict(
            f"cannot analyze {shown(thing)}: no engine runs it", hint="start one with `headgate serve`, and ask it"
        )
    return Analysis(q.engine, str(thing.id), own, subscribers)


def _up_to_its_level(q: Request) -> dict[str, str]:
    order, level = q.authorizer.order, q.authorizer.level
    known = [x for x in q.state.subscriptions if order.dominates(q.principal.level, level(x.level))]
    return {subscriber_name(x): f"{quote(x.user)} (level {x.level})" for x in sorted(known, key=lambda x: x.key)}


def _own(q: Request, thing: r.Object, planned: Planned) -> r.Subscription:
    """The caller's subscription, if it gives no more than the caller's session may see at this moment."""
    about, output = f"cannot analyze {shown(thing)}", q.state.objects.get(thing.query.output)
    found = q.subscriptions.find(q.principal, output) if output is not None else None
    if output is None or found is None:
        raise AccessDenied(f"{about}: you have not subscribed to its results", hint="SUBSCRIBE TO its output first")
    who = q.subscriptions.principal(found)
    needed = (Permission.SUBSCRIBE, Permission.READ_TUPLE)
    if who is None or not all(q.authorizer.allows(who, permission, output) for permission in needed):
        raise AccessDenied(f"{about}: your rights do not cover its results now")
    if not who.roles <= q.principal.roles:
        raise AccessDenied(
            f"{about}: your subscription has roles that this session has not", hint="activate them with SET ROLE"
        )
    if planned.mode == Mode.CUMULATIVE:
        raise AccessDenied(
            f"{about}: its readers share one view, and its numbers would tell what others may see",
            hint="a session with CHANGE SYSTEM may analyze it",
        )
    return found
