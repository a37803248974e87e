"""Logins: sessions are opened, kept from being idle, and ended."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from headgate.access import rows as r
from headgate.access.audit import Event
from headgate.access.events import session_event
from headgate.access.sessions import NOBODY, REFUSED, WAIT
from headgate.access.store import Transaction
from headgate.access.tries import Tries
from headgate.errors import AccessDenied, AuthenticationFailed, Conflict
from headgate.labels import LEAST, Level
from headgate.service.reference_monitor import ReferenceMonitor


class Logins:
    def __init__(self, monitor: ReferenceMonitor) -> None:
        self._monitor = monitor
        self._tries = Tries(monitor.state, monitor.clock)

    def login(self, user: str, password: str, roles: frozenset[str] | None, level: Level | None, source: str) -> str:
        """By password; as `Headgate.login`."""
        monitor = self._monitor
        with monitor.lock:
            monitor.refresh()
            stored = monitor.sessions.stored_password(user)
        proved = monitor.sessions.proves(stored, password)  # slow, so without the lock

        def refusal() -> str | None:
            why = self._tries.admit(user, source, stored, proved)
            return f"{why}, from {source}" if why and source else why

        return self._opened(user, roles, level, refusal)

    def login_certified(self, user: str, roles: frozenset[str] | None, level: Level | None, proof: str) -> str:
        """By a proof that the caller has checked; as `Headgate.login_certified`."""

        def refusal() -> str | None:
            found = self._monitor.state.users.get(user) if user != NOBODY else None
            if found is not None and not found.locked:
                return None
            return f"{'no such user' if found is None else 'the account is locked'}, {proof}"

        return self._opened(user, roles, level, refusal, proof)

    def _opened(
        self,
        user: str,
        roles: frozenset[str] | None,
        level: Level | None,
        refusal: Callable[[], str | None],
        how: str = "",
    ) -> str:
        """A new session's token, unless there is a reason to refuse it, which only the audit trail learns."""
        monitor, event = self._monitor, Event(user, "", str(LEAST), "LOGIN", "session", False, "")
        with monitor.lock:
            try:
                with monitor.transaction() as work:
                    why = refusal()
                    if why is None:
                        return self._open(work, event, roles, level, how)
                    work.events.append(event._replace(reason=why))
            except (AccessDenied, Conflict) as error:
                monitor.record(None, event._replace(reason=error.message))
                raise
            raise AuthenticationFailed(REFUSED, hint=WAIT)

    def _open(
        self, work: Transaction, event: Event, roles: frozenset[str] | None, level: Level | None, how: str
    ) -> str:
        monitor = self._monitor
        token, session = monitor.sessions.open(event.user, roles, level)
        request = monitor.request(session, work)
        owed = map(request.proved, monitor.authorizer.session_bases(request.principal))
        reasons = "; ".join(filter(None, [how, *owed]))
        work.events.append(event._replace(session=session.id, granted=True, reason=reasons))
        monitor.authorizer.prepare(monitor.authorizer.level(session.level))
        return token

    def logout(self, token: str) -> None:
        def end(work: Transaction, session: r.Session) -> None:
            if session.name:
                raise Conflict("cannot log out: this is an API key", hint="DROP API KEY ends it")
            self._monitor.sessions.end(session)
            work.events.append(session_event(session, "LOGOUT", "session", granted=True))

        self._monitor.act(token, "LOGOUT", ["session"], end)

    def use(self, token: str) -> None:
        """Marks a session as not idle."""
        with self._monitor.lock, self._monitor.transaction():
            self._touch(token)

    def use_all(self, tokens: Iterable[str]) -> set[str]:
        """Marks sessions as not idle; returns the tokens whose session has ended."""
        ended = set[str]()
        with self._monitor.lock, self._monitor.transaction():
            for token in tokens:
                try:
                    self._touch(token)
                except AuthenticationFailed:
                    ended.add(token)
        return ended

    def _touch(self, token: str) -> None:
        self._monitor.sessions.touch(self._monitor.sessions.find(token))
