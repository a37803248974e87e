"""Publishers: the right of a session to publish to a stream."""

from __future__ import annotations

from dataclasses import dataclass

from headgate.access import rows as r
from headgate.access.authorizer import named, shown, source_name
from headgate.access.definitions import PUBLISH, StreamDefinition
from headgate.access.events import session_event
from headgate.access.permissions import Kind, Permission
from headgate.access.store import Transaction
from headgate.labels import Level, Rules
from headgate.service.reference_monitor import ReferenceMonitor


@dataclass(frozen=True)
class PublishingSession:
    """Who publishes to a stream: the session's user and level, the user's public keys, and the stream."""

    user: str
    session: str
    level: Level
    keys: tuple[str, ...]
    stream: r.Object
    rules: Rules


class Publishers:
    def __init__(self, monitor: ReferenceMonitor) -> None:
        self._monitor = monitor

    def sender(self, token: str, name: str, owner: str | None) -> PublishingSession:
        """The right to publish; the permission or refusal is recorded."""
        about = [named(Kind.STREAM, name, owner)]

        def ask(work: Transaction, session: r.Session) -> r.Object:
            request = self._monitor.request(session, work)
            thing = self._monitor.catalog.find(request.principal, Kind.STREAM, name, owner)
            about[:] = [shown(thing)]
            request.need(Permission.PUBLISH, thing)
            work.events.append(
                session_event(session, "PUBLISH", shown(thing), granted=True, reason="; ".join(request.reasons))
            )
            return thing

        return self.session(token, self._monitor.act(token, "PUBLISH", about, ask))

    def session(self, token: str, stream: r.Object) -> PublishingSession:
        """The session that publishes to a stream, whose right was checked."""
        monitor = self._monitor
        with monitor.lock:
            session = monitor.sessions.find(token)
            user = monitor.state.users.get(session.user)
            level, rules = monitor.authorizer.level(session.level), monitor.authorizer.rules([stream])
            return PublishingSession(session.user, session.id, level, user.keys if user else (), stream, rules)

    def streams(self) -> frozenset[str]:
        """All streams that take published tuples, by their names as sources."""
        with self._monitor.lock:
            self._monitor.refresh()
            streams = self._monitor.state.objects.peek("kind", Kind.STREAM.value)
            known = [(x, x.definition) for x in streams if isinstance(x.definition, StreamDefinition)]
            return frozenset(source_name(x) for x, d in known if d.input is not None and d.input.format == PUBLISH)

    def record_refusal(self, token: str, action: str, about: str, reason: str) -> None:
        """Records that something a session sent was refused, for a reason that is not one of its rights."""
        with self._monitor.lock:
            self._monitor.refresh()
            session = self._monitor.sessions.find(token)
            self._monitor.record(session, session_event(session, action, about, reason=reason))
