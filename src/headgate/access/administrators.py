"""Administrators: the users who could log in and change the system. There is always one."""

from __future__ import annotations

from headgate.access.authorizer import EVERYONE, SYSTEM_ID, Authorizer
from headgate.access.duties import Duties
from headgate.access.permissions import Permission
from headgate.access.state import State


def has_administrator(state: State, authorizer: Authorizer, duties: Duties) -> bool:
    granted = {g.role for g in state.grants.peek("right", (SYSTEM_ID, Permission.CHANGE_SYSTEM.value))}
    users = {name for role in granted for name in duties.users_of(role)}
    if EVERYONE in granted:
        users = {user.name for user in state.users}
    return any(_can_administer(state, authorizer, duties, name, granted) for name in sorted(users))


def _can_administer(state: State, authorizer: Authorizer, duties: Duties, name: str, granted: set[str]) -> bool:
    """Whether a user could log in with a role that may change the system."""
    user = state.users.get(name)
    if user is None or user.locked or not user.password:
        return False
    ways = [frozenset[str](), *(frozenset({role}) for role in authorizer.authorised(name))]
    return any(
        not granted.isdisjoint(authorizer.effective(way)) and not duties.broken(way, dynamic=True) for way in ways
    )
