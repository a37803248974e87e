"""GRANT and REVOKE of permissions; SET for the session and the system."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from headgate.access import parameters
from headgate.access import rows as r
from headgate.access.authorizer import shown
from headgate.access.definitions import PUBLISH, StreamDefinition
from headgate.access.permissions import APPLIES, OPERATORS, Kind, Permission
from headgate.access.request import Handler, Request, Result
from headgate.cql import statements as s
from headgate.cql.names import Limit
from headgate.errors import Conflict
from headgate.lexing import quote


def _grant(q: Request, x: s.GrantPermissions) -> Result:
    """Allowed to the owner and to holders of CHANGE PERM; CHANGE PERM on SYSTEM governs objects of the system. Of
    several objects all are changed, or none."""
    things: dict[int, r.Object] = {}
    for target in x.targets:
        thing = q.find(target)
        q.need(Permission.CHANGE_PERM, thing if thing.owner else q.catalog.system)
        things[thing.id] = thing
    permissions = [Permission(text) for text in dict.fromkeys(x.permissions)]
    roles = list({name.text: q.find_role(name) for name in x.roles}.values())
    for thing in things.values():
        _grant_on(q, x, thing, permissions, roles)
    verb, preposition = ("revoked", "from") if x.revoke else ("granted", "to")
    what, whom = ", ".join(map(shown, things.values())), ", ".join(quote(role.name) for role in roles)
    unpublished = [] if x.revoke or Permission.PUBLISH not in permissions else _unpublished(things.values())
    but = f"; {', '.join(unpublished)} has another source, so nobody can publish there" if unpublished else ""
    return Result(f"{', '.join(permissions)} on {what} {verb} {preposition} {whom}{but}")


def _unpublished(things: Iterable[r.Object]) -> list[str]:
    """The streams of these whose tuples come from elsewhere."""
    streams = [(shown(x), x.definition.input) for x in things if isinstance(x.definition, StreamDefinition)]
    return [name for name, source in streams if source is not None and source.format != PUBLISH]


def _grant_on(
    q: Request, x: s.GrantPermissions, thing: r.Object, permissions: list[Permission], roles: list[r.Role]
) -> None:
    for role in roles:
        q.gives(shown(thing), f"{'FROM' if x.revoke else 'TO'} {quote(role.name)}")
    for permission in permissions:
        if permission not in APPLIES[Kind(thing.kind)]:
            able = ", ".join(sorted(APPLIES[Kind(thing.kind)]))
            raise Conflict(f"{permission} does not apply to a {thing.kind.lower()}", hint=f"there are {able}")
    _check_limits(thing, x.limits)
    for role in roles:
        for permission in permissions:
            if x.revoke:
                _revoke(q, thing, permission, role)
            else:
                limits = tuple(sorted(x.limits.items()))
                row = r.Grant(thing.id, permission, role.name, thing.kind, thing.name, thing.level, limits, q.user)
                q.state.grants.put(row)


def _revoke(q: Request, thing: r.Object, permission: Permission, role: r.Role) -> None:
    found = q.state.grants.get(thing.id, permission, role.name)
    if found is None:
        raise Conflict(f"role {quote(role.name)} does not hold {permission} on {shown(thing)}")
    q.state.grants.remove(found)


def _check_limits(thing: r.Object, limits: Mapping[str, Limit]) -> None:
    if limits and thing.kind != Kind.OPERATOR:
        raise Conflict("only the right to USE an operator can have limits")
    known = OPERATORS.get(thing.name, {})
    for key, value in limits.items():
        if key not in known:
            able = f"there are {', '.join(known)}" if known else "it has none"
            raise Conflict(f"operator {quote(thing.name)} has no parameter `{key}`", hint=able)
        if isinstance(value, tuple) != (known[key] is str):
            raise Conflict(f"the limit `{key}` is {'a list of strings' if known[key] is str else 'a number'}")


def _set_roles(q: Request, x: s.SetRoles) -> Result:
    q.about(f"session {q.session.id}")
    q.need_person("change its roles")
    roles = q.authorizer.assigned(q.user) if x.roles is None else frozenset(name.text for name in x.roles)
    q.sessions.check_roles(q.user, roles)
    q.session = replace(q.session, roles=tuple(sorted(roles)))
    if q.state.sessions.get(q.session.token_hash):  # this same script may have ended it
        q.state.sessions.put(q.session)
    return Result(f"active roles: {', '.join(map(quote, sorted(roles))) or 'none'}")


def _set_system(q: Request, x: s.SetSystem) -> Result:
    q.about(f"system parameter {quote(x.name.text)}")
    q.need_system(Permission.CHANGE_SYSTEM)
    q.sessions.forget_dead()  # a longer limit must not revive expired sessions
    parameters.write(q.state, x.name.text, x.value)
    return Result(f"system parameter {x.name.text} set")


HANDLERS: dict[type[s.Statement], Handler] = {
    s.GrantPermissions: _grant,
    s.SetRoles: _set_roles,
    s.SetSystem: _set_system,
}
