"""Separation of duty (ANSI RBAC): static for the roles a user may hold, dynamic for those a session may activate.

Roles count together with the roles they inherit, so a hierarchy cannot introduce a forbidden pair.
"""

from __future__ import annotations

from collections.abc import Iterable

from headgate.access import rows as r
from headgate.access.authorizer import Authorizer
from headgate.access.state import State
from headgate.errors import Conflict
from headgate.lexing import quote


class Duties:
    def __init__(self, state: State, authorizer: Authorizer) -> None:
        self._state = state
        self._authorizer = authorizer

    def broken(self, roles: frozenset[str], *, dynamic: bool) -> r.Separation | None:
        """A separation that this set of roles breaks, if any."""
        held = self._authorizer.effective(roles)
        return next(
            (
                separation
                for separation in self._state.separations
                if separation.dynamic == dynamic and len(held.intersection(separation.roles)) > separation.at_most
            ),
            None,
        )

    def check_session(self, roles: frozenset[str]) -> None:
        if separation := self.broken(roles, dynamic=True):
            raise Conflict(
                f"separation {quote(separation.name)} allows at most {separation.at_most} of the roles "
                f"{', '.join(map(quote, separation.roles))} in one session",
                hint="choose fewer roles",
            )

    def check_users(self, users: Iterable[str]) -> None:
        for user in users:
            if separation := self.broken(self._authorizer.authorised(user), dynamic=False):
                raise Conflict(
                    f"separation {quote(separation.name)} allows one user at most {separation.at_most} "
                    f"of the roles {', '.join(map(quote, separation.roles))}"
                )

    def users_of(self, role: str) -> set[str]:
        """All users who are authorised for a role, directly or through a senior role."""
        seniors, waiting = {role}, [role]
        while waiting:
            for edge in self._state.inheritances.peek("junior", waiting.pop()):
                if edge.senior not in seniors:
                    seniors.add(edge.senior)
                    waiting.append(edge.senior)
        return {m.user for senior in seniors for m in self._state.memberships.peek("role", senior)}
