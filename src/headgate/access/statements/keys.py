"""CREATE and DROP API KEY: sessions for programs, shown once and revocable by name."""

from __future__ import annotations

from datetime import UTC, datetime

from headgate.access import rows as r
from headgate.access.permissions import Permission
from headgate.access.request import Handler, Request, Result
from headgate.cql import statements as s
from headgate.cql.names import Name
from headgate.errors import AccessDenied, Conflict, NotFound
from headgate.labels import LEAST, Level
from headgate.lexing import quote

LONGEST = 366 * 86_400_000
"""Milliseconds that an API key can be valid."""


def _whose(q: Request, user: Name | None, level: Level | None) -> tuple[r.User, Level]:
    """Whose key, and of which level. One's own has the level of the session: whoever has a session at one level must
    not come to another one by a key. Administrators, who can set passwords, make keys for others at any level."""
    if user is not None:
        q.need_system(Permission.CHANGE_SYSTEM)
        level = level or LEAST
        q.check_level(level)
        return q.find_user(user), level
    here = q.principal.level
    if level is not None and level != here:
        raise AccessDenied(f"your own API keys have the level of your session, {here}", hint="log in at that level")
    found = q.state.users.get(q.user)
    if found is None:
        raise NotFound(f"there is no user `{q.user}`")
    return found, here


def _create(q: Request, x: s.CreateApiKey) -> Result:
    q.about(f"API key {quote(x.name.text)}")
    q.need_person("make API keys")
    user, level = _whose(q, x.user, x.level)
    q.about(f"API key {quote(x.name.text)} of user {quote(user.name)} at level {level}")
    if x.valid > LONGEST:
        raise Conflict("an API key can be valid for 366 days at most", hint="make another one before it ends")
    roles = q.authorizer.assigned(user.name) if x.roles is None else frozenset(role.text for role in x.roles)
    secret = q.sessions.open_key(x.name.text, user, roles, level, x.valid / 1000)
    until = datetime.fromtimestamp(q.now + x.valid / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
    columns = ("API key", "user", "roles", "level", "until", "secret")
    row = (x.name.text, user.name, ", ".join(map(quote, sorted(roles))), str(level), until, secret)
    return Result("API key created; its secret is shown only now", columns, (row,))


def _drop(q: Request, x: s.DropApiKey) -> Result:
    q.about(f"API key {quote(x.name.text)}")
    q.need_person("drop API keys")
    user, level = _whose(q, x.user, x.level)
    q.about(f"API key {quote(x.name.text)} of user {quote(user.name)} at level {level}")
    found = [k for k in q.state.sessions.find("user", user.name) if (k.name, k.level) == (x.name.text, str(level))]
    if not found:
        raise NotFound(f"there is no API key {quote(x.name.text)}", position=x.name.position)
    q.sessions.end(found[0])
    return Result(f"API key {quote(x.name.text)} dropped")


HANDLERS: dict[type[s.Statement], Handler] = {s.CreateApiKey: _create, s.DropApiKey: _drop}
