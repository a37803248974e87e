"""Roles, their hierarchy, and separation of duty."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from headgate.access import rows as r
from headgate.access.authorizer import EVERYONE
from headgate.access.permissions import Permission
from headgate.access.request import Handler, Request, Result
from headgate.access.state import State
from headgate.cql import statements as s
from headgate.errors import AccessDenied, Conflict, NotFound
from headgate.labels import LEAST
from headgate.lexing import quote


def _need_role(q: Request, role: r.Role) -> None:
    """A role is administered by its owner or by a user who may change the system; both at level U."""
    if role.name == EVERYONE:
        raise Conflict(f"role {EVERYONE} is everyone's and cannot be changed")
    if role.owner != q.user:
        q.need_system(Permission.CHANGE_SYSTEM)
    elif q.principal.level != LEAST:
        raise AccessDenied("roles have level U", hint="log in at level U to change them")


def _create(q: Request, x: s.CreateRole) -> Result:
    q.about(f"role {quote(x.name.text)}")
    q.need_system(Permission.CHANGE_SYSTEM)
    if q.state.roles.get(x.name.text):
        raise Conflict(f"there is already a role `{x.name.text}`", position=x.name.position)
    q.state.roles.put(replace(r.Role(x.name.text, q.user), **_limits(x)))
    return Result(f"role {quote(x.name.text)} created")


def _alter(q: Request, x: s.AlterRole) -> Result:
    q.about(f"role {quote(x.name.text)}")
    role = q.find_role(x.name)
    _need_role(q, role)
    q.need_system(Permission.CHANGE_SYSTEM)
    if x.owner:  # naming users reveals whether they exist, so this is for administrators
        q.state.roles.put(replace(role, owner=q.find_user(x.owner).name))
    else:  # limits too: an owner could lift those of its other roles, and end the queries of others
        q.state.roles.put(replace(role, **_limits(x)))
    return Result(f"role {quote(role.name)} altered")


def _limits(x: s.CreateRole | s.AlterRole) -> dict[str, Any]:
    """`MAX QUERIES` is the field `max_queries`, and so on."""
    return {what.lower().replace(" ", "_"): most for what, most in x.limits}


def _drop(q: Request, x: s.DropRole) -> Result:
    """Drops a role and everything that mentions it."""
    q.about(f"role {quote(x.name.text)}")
    role = q.find_role(x.name)
    _need_role(q, role)
    state = q.state
    for membership in state.memberships.find("role", role.name):
        state.memberships.remove(membership)
    for edge in [*state.inheritances.find("senior", role.name), *state.inheritances.find("junior", role.name)]:
        state.inheritances.remove(edge)
    for grant in state.grants.find("role", role.name):
        state.grants.remove(grant)
    for separation in state.separations:
        if role.name in separation.roles:
            rest = tuple(name for name in separation.roles if name != role.name)
            state.separations.remove(separation)
            if len(rest) > separation.at_most:
                state.separations.put(replace(separation, roles=rest))
    _deactivate(state, role)
    state.roles.remove(role)
    return Result(f"role {quote(role.name)} dropped")


def _deactivate(state: State, role: r.Role) -> None:
    """Sessions, subscriptions and policies no longer act with a role."""
    for session in state.sessions:
        if role.name in session.roles:
            state.sessions.put(replace(session, roles=_without(role, session.roles)))
    for subscription in state.subscriptions:
        if role.name in subscription.roles:
            state.subscriptions.put(replace(subscription, roles=_without(role, subscription.roles)))
    for policy in state.policies:
        if role.name in policy.roles:
            state.policies.put(replace(policy, roles=_without(role, policy.roles)))


def _without(role: r.Role, roles: tuple[str, ...]) -> tuple[str, ...]:
    """A role that gets this name later is a different one."""
    return tuple(name for name in roles if name != role.name)


def _grant(q: Request, x: s.GrantRoles) -> Result:
    """Roles to users, and junior roles to senior ones."""
    roles = {name.text: q.find_role(name) for name in x.roles}
    given = ", ".join(f"role {quote(name)}" for name in roles)
    verb, preposition = ("revoked", "from") if x.revoke else ("granted", "to")
    whom = ", ".join(dict.fromkeys(quote(name.text) for name in (*x.to_users, *x.to_roles)))
    for role_name in roles:
        for receiver in dict.fromkeys(name.text for name in (*x.to_users, *x.to_roles)):
            q.gives(f"role {quote(role_name)}", f"{preposition.upper()} {quote(receiver)}")
    for role in roles.values():
        _need_role(q, role)
        for user in {name.text: name for name in x.to_users}.values():
            _assign(q, role, q.find_user(user), revoke=x.revoke)
        for name in {name.text: name for name in x.to_roles}.values():
            senior = q.find_role(name)
            _need_role(q, senior)
            _inherit(q, role, senior, revoke=x.revoke)
    return Result(f"{given} {verb} {preposition} {whom}")


def _assign(q: Request, role: r.Role, user: r.User, *, revoke: bool) -> None:
    row = r.Membership(user.name, role.name)
    if revoke:
        if q.state.memberships.get(*row.key) is None:
            raise Conflict(f"user {quote(user.name)} does not have role {quote(role.name)}")
        q.state.memberships.remove(row)
    else:
        q.state.memberships.put(row)
        q.duties.check_users([user.name])


def _inherit(q: Request, junior: r.Role, senior: r.Role, *, revoke: bool) -> None:
    row = r.Inheritance(senior.name, junior.name)
    if revoke:
        if q.state.inheritances.get(*row.key) is None:
            raise Conflict(f"role {quote(senior.name)} does not inherit role {quote(junior.name)}")
        q.state.inheritances.remove(row)
        return
    if senior.name in q.authorizer.inherited(junior.name):
        raise Conflict(f"role {quote(senior.name)} would inherit itself")
    q.state.inheritances.put(row)
    q.duties.check_users(sorted(q.duties.users_of(senior.name)))


def _separate(q: Request, x: s.CreateSeparation) -> Result:
    q.about(f"separation {quote(x.name.text)}")
    q.need_system(Permission.CHANGE_SYSTEM)
    if q.state.separations.get(x.name.text):
        raise Conflict(f"there is already a separation `{x.name.text}`", position=x.name.position)
    roles = sorted({q.find_role(name).name for name in x.roles})
    if not 1 <= x.at_most < len(roles):
        raise Conflict("a separation allows at least one role, and fewer than it names")
    q.state.separations.put(r.Separation(x.name.text, x.dynamic, tuple(roles), x.at_most))
    if not x.dynamic:
        q.duties.check_users(sorted({user for role in roles for user in q.duties.users_of(role)}))
    return Result(f"separation {quote(x.name.text)} created")


def _unite(q: Request, x: s.DropSeparation) -> Result:
    q.about(f"separation {quote(x.name.text)}")
    q.need_system(Permission.CHANGE_SYSTEM)
    found = q.state.separations.get(x.name.text)
    if found is None:
        raise NotFound(f"there is no separation `{x.name.text}`", position=x.name.position)
    q.state.separations.remove(found)
    return Result(f"separation {quote(found.name)} dropped")


HANDLERS: dict[type[s.Statement], Handler] = {
    s.CreateRole: _create,
    s.AlterRole: _alter,
    s.DropRole: _drop,
    s.GrantRoles: _grant,
    s.CreateSeparation: _separate,
    s.DropSeparation: _unite,
}
