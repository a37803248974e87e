"""Sessions: logging in as a principal, being recognised, being logged out (paper 000, section 2; paper 002, section 2).

A refused login has one text and one cost, whether the name is unknown, the password wrong or the account locked.
"""

from __future__ import annotations

from dataclasses import replace

from headgate.access import parameters
from headgate.access import rows as r
from headgate.access.authorizer import Authorizer
from headgate.access.duties import Duties
from headgate.access.passwords import Passwords, new_token, token_hash
from headgate.access.state import State
from headgate.clock import Clock
from headgate.errors import AccessDenied, AuthenticationFailed
from headgate.labels import Level
from headgate.lexing import quote

REFUSED = "login refused"
NO_SESSION = "no valid session"
NOBODY = ""  # cannot be a name
MOST_REFUSED = 1_000_000_000
_CLEAN_EVERY = 60.0
_NOTED_EVERY = 1.0


class Sessions:
    def __init__(
        self, state: State, authorizer: Authorizer, duties: Duties, passwords: Passwords, clock: Clock
    ) -> None:
        self._state = state
        self._authorizer = authorizer
        self._duties = duties
        self._passwords = passwords
        self._clock = clock
        self._cleaned = 0.0

    def stored_password(self, user: str) -> str:
        """What a login has to match; asked under the lock, so that nothing uncommitted is seen."""
        found = self._state.users.get(user)
        return found.password if found else ""

    def proves(self, stored: str, password: str) -> bool:
        """The slow part of a login: needs no lock, and takes as long for nobody as for somebody."""
        return self._passwords.verify(stored, password)

    def admit(self, user: str, stored: str, proved: bool) -> str | None:
        """Counts a try; None if the user may come in, otherwise the true reason, for the audit trail only.

        Refusals cost the same: those without a user are counted on one that nobody can be.
        """
        named = self._state.users.get(user) if user != NOBODY else None
        found = named or self._state.users.get(NOBODY)
        now = self._clock.now()
        if found is None:
            return "the store is empty"
        locked = found.locked or now < found.locked_until
        if named is not None and proved and not locked and found.password == stored:
            self._state.users.put(replace(found, failures=0, locked_until=0.0))
            return None
        failures, until = found.failures + (not locked), found.locked_until
        if not locked and failures >= parameters.number(self._state, "lockout_failures"):
            failures, until = 0, now + 60 * parameters.number(self._state, "lockout_minutes")
        refused = (found.refused + 1) % MOST_REFUSED
        self._state.users.put(replace(found, failures=failures, locked_until=until, refused=refused))
        if named is None:
            return "no such user"
        return "the account is locked" if locked else f"wrong password, {failures or 'the last of too many'} in a row"

    def open(self, user: str, roles: frozenset[str] | None, level: Level | None) -> tuple[str, r.Session]:
        """A new session for an admitted user; returns the token, which is kept nowhere."""
        self._clean_up()
        found = self._state.users.get(user)
        if found is None:
            raise AuthenticationFailed(REFUSED)
        if roles is None:
            roles = frozenset(m.role for m in self._state.memberships.peek("user", user))
        self.check_roles(user, roles)
        clearance = self._authorizer.level(found.clearance)
        level = level or clearance
        if not self._authorizer.order.dominates(clearance, level):
            raise AccessDenied(f"level {level} is not dominated by your clearance {clearance}")
        now, token = self._clock.now(), new_token()
        hashed = token_hash(token)
        session = r.Session(
            hashed,
            hashed[:12],
            user,
            tuple(sorted(roles)),
            str(level),
            now,
            now,
            now + 60 * parameters.number(self._state, "session_minutes"),
        )
        self._state.sessions.put(session)
        return token, session

    def check_roles(self, user: str, roles: frozenset[str]) -> None:
        """Only authorised roles can be active, and not those that duties keep apart."""
        for role in sorted(roles - self._authorizer.authorised(user)):
            raise AccessDenied(f"role {quote(role)} is not one of yours")
        self._duties.check_session(roles)

    def find(self, token: str) -> r.Session:
        return self.current(token_hash(token))

    def current(self, hashed: str) -> r.Session:
        """The session of a token, by its hash, as it is now."""
        session = self._state.sessions.get(hashed)
        if session is None or not self.is_alive(session):
            raise AuthenticationFailed(NO_SESSION, hint="log in again")
        return session

    def is_alive(self, session: r.Session) -> bool:
        now = self._clock.now()
        idle = 60 * parameters.number(self._state, "idle_minutes")
        return now < session.expires and now - session.last_used < idle

    def touch(self, session: r.Session) -> r.Session:
        """Notes that a session was used; not more than once a second, which nobody's idle time depends on."""
        current = self._state.sessions.get(session.token_hash)
        if current is None:
            return session
        now = self._clock.now()
        if 0 <= now - current.last_used < _NOTED_EVERY:
            return current
        current = replace(current, last_used=now)
        self._state.sessions.put(current)
        return current

    def end(self, session: r.Session) -> None:
        for subscription in self._state.subscriptions.find("session", session.token_hash):
            self._state.subscriptions.remove(subscription)
        self._state.sessions.remove(session)

    def subscribe(self, session: r.Session, stream: r.Object) -> bool:
        """Whether it was not subscribed before."""
        new = self._state.subscriptions.get(session.token_hash, stream.id) is None
        self._state.subscriptions.put(r.Subscription(session.token_hash, stream.id))
        return new

    def unsubscribe(self, session: r.Session, stream: r.Object) -> bool:
        """Whether it was subscribed before."""
        found = self._state.subscriptions.get(session.token_hash, stream.id)
        if found is not None:
            self._state.subscriptions.remove(found)
        return found is not None

    def _clean_up(self) -> None:
        """Dead sessions are refused anyway; now and then their rows go too."""
        now = self._clock.now()
        if now - self._cleaned >= _CLEAN_EVERY:
            self._cleaned = now
            self.forget_dead()

    def forget_dead(self) -> None:
        for session in self._state.sessions:
            if not self.is_alive(session):
                self.end(session)

    def settle(self) -> list[r.Session]:
        """Ends every session that its user's rights no longer cover; what a change of rights takes away is gone now."""
        ended = []
        for session in self._state.sessions:
            user = self._state.users.get(session.user)
            roles = frozenset(session.roles) & self._authorizer.authorised(session.user)
            if user is None or not self._covered(user, session) or self._conflict(roles):
                self.end(session)
                ended.append(session)
            elif len(roles) < len(session.roles):  # what was taken away does not come back by being given again
                self._state.sessions.put(replace(session, roles=tuple(sorted(roles))))
        return ended

    def _covered(self, user: r.User, session: r.Session) -> bool:
        level = self._authorizer.level
        return not user.locked and self._authorizer.order.dominates(level(user.clearance), level(session.level))

    def _conflict(self, roles: frozenset[str]) -> bool:
        return self._duties.broken(roles, dynamic=True) is not None
