"""Decisions on the rights of this moment, and their explanations."""

from __future__ import annotations

from dataclasses import dataclass

from headgate.access import rows as r
from headgate.access.authorizer import Decision, named, shown, source_name
from headgate.access.events import session_event
from headgate.access.evidence import Evidence, read_proof
from headgate.access.explanations import Explanation, explained
from headgate.access.permissions import Kind, Permission
from headgate.access.store import Transaction
from headgate.cql.names import Target
from headgate.errors import NotFound
from headgate.labels import Clearance, Level, Rules
from headgate.lexing import quote
from headgate.service.reference_monitor import ReferenceMonitor

_SHORTEST = 8
"""How much of a proof's name must be given."""


@dataclass(frozen=True)
class Streams:
    """Some streams, their names as sources in labels, and the rules that decide about their tuples."""

    objects: tuple[r.Object, ...]
    sources: tuple[str, ...]
    rules: Rules


class AccessDecisions:
    def __init__(self, monitor: ReferenceMonitor) -> None:
        self._monitor = monitor

    def check(self, token: str, permission: Permission, kind: Kind, name: str, owner: str | None) -> Decision:
        """One decision; an object that the session cannot see is denied like one that does not exist."""
        with self._monitor.lock:
            principal = self._monitor.principal(token)
            try:
                thing = self._monitor.catalog.find(principal, kind, name, owner)
            except NotFound as error:
                return Decision(False, permission, f"{kind.lower()} {name}", error.message)
            return self._monitor.authorizer.decide(principal, permission, thing)

    def dominates_all(self, token: str) -> bool:
        """Whether a session's level stands above all others, with all compartments: what is told there tells nobody
        of something above its level."""
        with self._monitor.lock:
            level, order = self._monitor.principal(token).level, self._monitor.authorizer.order
            every = frozenset(x.name for x in self._monitor.state.compartments)
            return all(order.dominates(level, Level(name, every)) for name in (*order.above, level.name))

    def streams(self, token: str, names: list[str]) -> Streams:
        """The streams that a session means by these names, with the rules for decisions about their tuples."""
        with self._monitor.lock:
            principal = self._monitor.principal(token)
            found = [self._monitor.catalog.find(principal, Kind.STREAM, name) for name in names]
            return Streams(tuple(found), tuple(map(source_name, found)), self._monitor.authorizer.rules(found))

    def clearance(self, token: str, streams: Streams) -> Clearance:
        """The clearance that a session has for the labels of these streams."""
        with self._monitor.lock:
            principal = self._monitor.principal(token)
            current = (self._monitor.state.objects.get(thing.id) for thing in streams.objects)
            return self._monitor.authorizer.clearance(principal, [thing for thing in current if thing is not None])

    def why(self, token: str, user: str, permission: Permission, target: Target) -> Explanation:
        """Why a user, with all its roles and at its clearance, is granted or denied a permission."""
        action = f"EXPLAIN {permission} FOR USER {quote(user)}"
        about = [named(Kind(target.kind), target.name, target.owner)]

        def explain(work: Transaction, session: r.Session) -> Explanation:
            request = self._monitor.request(session, work)
            about[:] = [shown(request.find(target))]
            found = explained(request, user, permission, target)
            work.events.append(session_event(session, action, request.subject, granted=True))
            return found

        return self._monitor.act(token, action, about, explain)

    def proof(self, token: str, name: str) -> Evidence:
        """The proof that an audit record names, with every signature checked again: for auditors."""
        about = [f"proof {name}"]

        def read(work: Transaction, session: r.Session) -> Evidence:
            request = self._monitor.request(session, work)
            request.need_system(Permission.VIEW_AUDIT)
            found = work.proof(name) if len(name) >= _SHORTEST and name.isalnum() else []
            if len(found) != 1:
                raise NotFound(f"there is no proof `{name}`", hint="audit records name proofs after the word `proof`")
            tree, content = read_proof(*found[0])
            rules = dict(work.proof(str(content["rules"]))).get(str(content["rules"]), "")
            work.events.append(session_event(session, "EXPLAIN PROOF", about[0], granted=True))
            return Evidence(str(content["policy"]), tree, rules)

        return self._monitor.act(token, "EXPLAIN PROOF", about, read)
