"""Subscriptions: the streams whose results a user receives, at a level and with roles of its choice, until UNSUBSCRIBE.

A subscription outlives the session that made it. INVARIANT: it never gives more than a session with its roles at its
level could have at this moment; while no such session is possible, it is suspended.
"""

from __future__ import annotations

from collections.abc import Collection

from headgate.access import rows as r
from headgate.access.authorizer import Authorizer, Principal
from headgate.access.duties import Duties
from headgate.access.state import State
from headgate.lexing import quote


def subscriber_name(subscription: r.Subscription) -> str:
    """The engine's name for a subscriber; a user who ended a subscription and subscribes again gets another one."""
    return f"{quote(subscription.user)}@{subscription.level}#{subscription.number}"


class Subscriptions:
    def __init__(self, state: State, authorizer: Authorizer, duties: Duties) -> None:
        self._state = state
        self._authorizer = authorizer
        self._duties = duties

    def of(self, user: str) -> Collection[r.Subscription]:
        return self._state.subscriptions.find("user", user)

    def here(self, who: Principal) -> Collection[r.Subscription]:
        """The subscriptions of a user at its level."""
        return self._state.subscriptions.find("user_level", (who.user, str(who.level)))

    def find(self, who: Principal, stream: r.Object) -> r.Subscription | None:
        """One for each level: a subscription made at one level is visible at no other."""
        return self._state.subscriptions.get(who.user, str(who.level), stream.id)

    def put(self, who: Principal, stream: r.Object, number: int) -> None:
        """Adds a subscription, or sets new roles for the one that has this number."""
        roles = tuple(sorted(who.roles))
        self._state.subscriptions.put(r.Subscription(who.user, str(who.level), stream.id, number, roles))

    def remove(self, subscription: r.Subscription) -> None:
        self._state.subscriptions.remove(subscription)

    def principal(self, subscription: r.Subscription) -> Principal | None:
        """The principal whose current rights decide: the roles that the subscription was made with and that the user
        still has, at its level. None if nobody could log in like that: the user is locked, the clearance too low, or
        the roles are kept apart."""
        user, level = self._state.users.get(subscription.user), self._authorizer.level(subscription.level)
        if user is None or user.locked:
            return None
        if not self._authorizer.cleared(user, level):
            return None
        roles = frozenset(subscription.roles) & self._authorizer.authorised(user.name)
        if self._duties.broken(roles, dynamic=True) is not None:
            return None
        return Principal(user.name, roles, level)
