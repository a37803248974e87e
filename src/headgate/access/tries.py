"""Login attempts: wrong passwords delay the next attempt, longer each time, and only for the place they come from.

Each place from which a user has logged in before has a count of its own; all other places share one. So strangers,
however many, guess slowly, and cannot lock the user out. INVARIANT: a refused login has one text and one cost, whether
the name is unknown, the password wrong, the account locked or the attempt too early.
"""

from __future__ import annotations

from dataclasses import replace

from headgate.access import parameters
from headgate.access import rows as r
from headgate.access.sessions import NOBODY
from headgate.access.state import State
from headgate.clock import Clock

MOST_REFUSED = 1_000_000_000
MOST_COUNTED = 1000
MOST_SOURCES = 20
"""The most places remembered for one user: those used last."""
LONGEST_SOURCE = 200


class Tries:
    def __init__(self, state: State, clock: Clock) -> None:
        self._state = state
        self._clock = clock

    def admit(self, user: str, source: str, stored: str, proved: bool) -> str | None:
        """Counts an attempt. Returns None if the user may log in, otherwise the true reason, for the audit trail only.

        Refusals cost the same: attempts for an unknown user are counted on a user that nobody can be.
        """
        source = source[:LONGEST_SOURCE]
        named = self._state.users.get(user) if user != NOBODY else None
        found = named or self._state.users.get(NOBODY)
        now = self._clock.now()
        if found is None:
            return "the store is empty"
        known = self._state.login_sources.get(user, source)
        count = known or found
        early = now < count.locked_until
        if named is not None and proved and not found.locked and not early and found.password == stored:
            self._came_in(found, source, known, now)
            return None
        failures, until = count.failures, count.locked_until
        if not found.locked and not early:
            failures, until = self._one_more(count, now)
        refused = (found.refused + 1) % MOST_REFUSED
        if known is None:
            self._state.users.put(replace(found, failures=failures, locked_until=until, refused=refused))
        else:
            self._state.users.put(replace(found, refused=refused))
            self._state.login_sources.put(replace(known, failures=failures, locked_until=until))
        if named is None:
            return "no such user"
        if found.locked:
            return "the account is locked"
        return "too early after wrong passwords" if early else f"wrong password, {failures} in a row"

    def _one_more(self, count: r.User | r.LoginSource, now: float) -> tuple[int, float]:
        """The number of wrong passwords in a row, and until when the next attempt has to wait: a second after
        `lockout_failures`, then twice as long each time, `lockout_minutes` at most. After that time without a wrong one
        the count is reset."""
        longest = 60.0 * parameters.number(self._state, "lockout_minutes")
        rested = count.locked_until > 0 and now >= count.locked_until + longest
        failures = min((0 if rested else count.failures) + 1, MOST_COUNTED)
        beyond = failures - parameters.number(self._state, "lockout_failures")
        if beyond < 0:
            return failures, 0.0
        return failures, now + min(2.0 ** min(beyond, 30), longest)

    def _came_in(self, user: r.User, source: str, known: r.LoginSource | None, now: float) -> None:
        """Attempts of strangers stay counted when the user logs in from a place it used before."""
        if known is None:
            self._state.users.put(replace(user, failures=0, locked_until=0.0))
        if source:
            self._state.login_sources.put(r.LoginSource(user.name, source, now))
            mine = sorted(self._state.login_sources.find("user", user.name), key=lambda x: x.last_used)
            for oldest in mine[:-MOST_SOURCES]:
                self._state.login_sources.remove(oldest)
