"""Sessions: logging in as a principal, being recognised, being logged out (paper 000, section 2; paper 002, section 2).

An API key is a session that somebody opens for a program. INVARIANT: it can do no more than a session with its roles
at its level, ends with whatever ends a session, and cannot make itself last longer or have more roles."""

from __future__ import annotations

from dataclasses import replace

from headgate.access import parameters
from headgate.access import rows as r
from headgate.access.authorizer import Authorizer
from headgate.access.duties import Duties
from headgate.access.passwords import Passwords, new_token, token_hash
from headgate.access.state import State
from headgate.clock import Clock
from headgate.errors import AccessDenied, AuthenticationFailed, Conflict
from headgate.labels import Level
from headgate.lexing import quote

REFUSED = "login refused"
WAIT = "after several wrong passwords the next try has to wait, seconds at first"  # the same text for everyone
NO_SESSION = "no valid session"
NOBODY = ""  # cannot be a name
KEY_MARK = "hgk_"
"""How the secret of an API key begins, so that people and scanners recognise it."""
MOST_KEYS = 100
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
        """The hash that a login has to match; read under the lock, so that nothing uncommitted is seen."""
        found = self._state.users.get(user)
        return found.password if found else ""

    def proves(self, stored: str, password: str) -> bool:
        """The slow part of a login: needs no lock, and takes the same time whether or not the user exists."""
        return self._passwords.verify(stored, password)

    def open(self, user: str, roles: frozenset[str] | None, level: Level | None) -> tuple[str, r.Session]:
        """Opens a session for an admitted user; returns the token, which is stored nowhere."""
        self._clean_up()
        found = self._state.users.get(user)
        if found is None:
            raise AuthenticationFailed(REFUSED)
        if roles is None:
            roles = self._authorizer.assigned(user)
        self.check_roles(user, roles)
        clearance = self._authorizer.level(found.clearance)
        level = level or clearance
        if not self._authorizer.cleared(found, level):
            raise AccessDenied(f"level {level} is not dominated by your clearance {clearance}")
        self._check_number(user, level)
        return self._add(new_token(), user, roles, level, 60 * parameters.number(self._state, "session_minutes"))

    def open_key(self, name: str, user: r.User, roles: frozenset[str], level: Level, seconds: float) -> str:
        """Makes an API key; returns its secret, which is stored nowhere."""
        self._clean_up()
        self.check_roles(user.name, roles)
        if user.locked or not self._authorizer.cleared(user, level):
            raise AccessDenied(f"user {quote(user.name)} cannot log in at level {level}, and so can no API key")
        keys = [x for x in self._state.sessions.peek("user", user.name) if x.name and self.is_alive(x)]
        if any((x.name, x.level) == (name, str(level)) for x in keys):
            raise Conflict(f"there is already an API key {quote(name)}", hint="drop it first")
        if len(keys) >= MOST_KEYS:
            raise Conflict(f"user {quote(user.name)} has {MOST_KEYS} API keys, and may not have more")
        token, _ = self._add(f"{KEY_MARK}{new_token()}", user.name, roles, level, seconds, name)
        return token

    def _add(
        self, token: str, user: str, roles: frozenset[str], level: Level, seconds: float, key: str = ""
    ) -> tuple[str, r.Session]:
        now, hashed = self._clock.now(), token_hash(token)
        names = tuple(sorted(roles))
        session = r.Session(hashed, hashed[:12], user, names, str(level), now, now, now + seconds, key)
        self._state.sessions.put(session)
        return token, session

    def _check_number(self, user: str, level: Level) -> None:
        """Counts only sessions that this one may know of: no session at a high level takes a place at a low one."""
        dominates, level_of = self._authorizer.order.dominates, self._authorizer.level
        mine = [x for x in self._state.sessions.peek("user", user) if not x.name and self.is_alive(x)]
        most = parameters.number(self._state, "max_sessions")
        if sum(dominates(level, level_of(x.level)) for x in mine) >= most:
            idle = parameters.number(self._state, "idle_minutes")
            raise Conflict(
                f"you have {most} open sessions, and may not have more",
                hint=f"log out of one, or wait until one was not used for {idle} minutes; "
                "an administrator can end them (END SESSIONS) or set max_sessions",
            )

    def check_roles(self, user: str, roles: frozenset[str]) -> None:
        """Only authorised roles can be active, and not those that separation of duty keeps apart."""
        for role in sorted(roles - self._authorizer.authorised(user)):
            raise AccessDenied(f"role {quote(role)} is not one of yours")
        self._duties.check_session(roles)

    def find(self, token: str) -> r.Session:
        return self.current(token_hash(token))

    def current(self, hashed: str) -> r.Session:
        """The session of a token, by its hash, as it is now."""
        session = self._state.sessions.get(hashed)
        if session is None or not self.is_alive(session) or not self._still_covered(session):
            raise AuthenticationFailed(NO_SESSION, hint="log in again")
        return session

    def _still_covered(self, session: r.Session) -> bool:
        """A change of rights ends sessions in its own transaction (`settle`); a clearance that a policy gave for a time
        ends without one."""
        user = self._state.users.get(session.user)
        return user is not None and self._covered(user, session)

    def is_alive(self, session: r.Session) -> bool:
        now = self._clock.now()
        idle = 60 * parameters.number(self._state, "idle_minutes")
        return now < session.expires and (bool(session.name) or now - session.last_used < idle)

    def touch(self, session: r.Session) -> r.Session:
        """Records that a session was used; at most once a second, on which nobody's idle time depends."""
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
        """Ends a session; its user's subscriptions stay."""
        self._state.sessions.remove(session)

    def _clean_up(self) -> None:
        """Expired sessions are refused anyway; from time to time their rows are removed."""
        now = self._clock.now()
        if now - self._cleaned >= _CLEAN_EVERY:
            self._cleaned = now
            self.forget_dead()

    def forget_dead(self) -> None:
        for session in self._state.sessions:
            if not self.is_alive(session):
                self.end(session)

    def settle(self) -> list[r.Session]:
        """Ends every session that its user's rights no longer cover. A revoked role has no effect until it is granted
        again (see `Authorizer.principal`)."""
        ended = []
        for session in self._state.sessions:
            user = self._state.users.get(session.user)
            roles = frozenset(session.roles) & self._authorizer.authorised(session.user)
            if user is None or not self._covered(user, session) or self._conflict(roles):
                self.end(session)
                ended.append(session)
        return ended

    def _covered(self, user: r.User, session: r.Session) -> bool:
        return not user.locked and self._authorizer.cleared(user, self._authorizer.level(session.level))

    def _conflict(self, roles: frozenset[str]) -> bool:
        return self._duties.broken(roles, dynamic=True) is not None
