"""CREATE, ALTER and DROP USER."""

from __future__ import annotations

from dataclasses import replace

from headgate.access import rows as r
from headgate.access.objects import drop, rename_owner
from headgate.access.passwords import read_public_key
from headgate.access.permissions import Permission
from headgate.access.query_rights import pass_on
from headgate.access.request import Handler, Request, Result
from headgate.access.statements.policies import drop_policy, forget_speaker
from headgate.cql import statements as s
from headgate.errors import AccessDenied, Conflict
from headgate.labels import LEAST, Level
from headgate.lexing import quote

_OWN = {"PASSWORD", "ADD KEY", "DROP KEY", "END SESSIONS"}


def _create(q: Request, x: s.CreateUser) -> Result:
    q.about(f"user {quote(x.name.text)}")
    q.need_system(Permission.CHANGE_SYSTEM)
    if q.state.users.get(x.name.text):
        raise Conflict(f"there is already a user `{x.name.text}`", position=x.name.position)
    clearance = x.clearance or LEAST
    q.check_level(clearance)
    password = q.hash_password(x.password) if x.password is not None else ""
    q.state.users.put(r.User(x.name.text, password, str(clearance), since=q.work.audit_count()))
    return Result(f"user {quote(x.name.text)} created")


def _alter(q: Request, x: s.AlterUser) -> Result:
    q.about(f"user {quote(x.name.text)}")
    own = x.name.text == q.user and all(what in _OWN for what, _ in x.changes)
    if not own:
        q.need_system(Permission.CHANGE_SYSTEM)
    elif q.principal.level != LEAST:
        raise AccessDenied("users have level U", hint="log in at level U to change yourself")
    if x.name.text == q.user:
        q.need_person("change its user")
    user = q.find_user(x.name)
    for what, value in x.changes:
        user = _changed(q, user, what, value)
        q.state.users.put(user)
    return Result(f"user {quote(user.name)} altered")


def _changed(q: Request, user: r.User, what: str, value: str | Level | None) -> r.User:
    match what, value:
        case "PASSWORD", str(password):
            _end_sessions(q, user, but=q.session)
            return replace(user, password=q.hash_password(password), failures=0)
        case "CLEARANCE", Level() as clearance:
            q.check_level(clearance)
            return replace(user, clearance=str(clearance))
        case "ADD KEY", str(text):
            return replace(user, keys=tuple(sorted({*user.keys, read_public_key(text)})))
        case "DROP KEY", str(text):
            key = read_public_key(text)
            if key not in user.keys:
                raise Conflict(f"user {quote(user.name)} does not have this key")
            forget_speaker(q, user.name, key)
            return replace(user, keys=tuple(k for k in user.keys if k != key))
        case "LOCK", _:
            return replace(user, locked=True)
        case "UNLOCK", _:
            return replace(user, locked=False, failures=0, locked_until=0.0)
        case _:
            _end_sessions(q, user)
            return user


def _end_sessions(q: Request, user: r.User, but: r.Session | None = None) -> None:
    for session in q.state.sessions.find("user", user.name):
        if but is None or session.token_hash != but.token_hash:
            q.sessions.end(session)


def _drop(q: Request, x: s.DropUser) -> Result:
    q.about(f"user {quote(x.name.text)}")
    q.need_system(Permission.CHANGE_SYSTEM)
    user = q.find_user(x.name)
    if user.name == q.user:
        raise Conflict("you cannot drop yourself", position=x.name.position)
    heir = q.find_user(x.reassign_to) if x.reassign_to else None
    if heir:
        q.about(f"user {quote(user.name)} reassigned to {quote(heir.name)}")
    if heir == user:
        raise Conflict("a dropped user cannot inherit its own objects", position=x.name.position)
    _settle_estate(q, user, heir, cascade=x.cascade)
    for membership in q.state.memberships.find("user", user.name):
        q.state.memberships.remove(membership)
    _end_sessions(q, user)
    for subscription in q.subscriptions.of(user.name):
        q.subscriptions.remove(subscription)
    for source in q.state.login_sources.find("user", user.name):
        q.state.login_sources.remove(source)
    forget_speaker(q, user.name)
    q.state.users.remove(user)
    return Result(f"user {quote(user.name)} dropped")


def _settle_estate(q: Request, user: r.User, heir: r.User | None, *, cascade: bool) -> None:
    """Objects of a dropped user go to an heir, or are dropped; roles always go to someone."""
    owned = q.state.objects.find("owner", user.name)
    policies = q.state.policies.find("owner", user.name)
    if (owned or policies) and not heir and not cascade:
        raise Conflict(
            f"user {quote(user.name)} owns objects", hint="add REASSIGN TO a user, or CASCADE to drop them too"
        )
    for policy in policies:
        if heir:
            q.state.policies.put(replace(policy, owner=heir.name))
        else:
            drop_policy(q, policy)
    for role in q.state.roles.find("owner", user.name):
        q.state.roles.put(replace(role, owner=heir.name if heir else q.user))
    for thing in owned:
        if heir:
            rename_owner(q.state, thing, heir.name)
        elif q.state.objects.get(thing.id):  # a query takes its output along
            drop(q.state, thing)
    if heir:
        pass_on(q, heir, [thing.id for thing in owned])


HANDLERS: dict[type[s.Statement], Handler] = {s.CreateUser: _create, s.AlterUser: _alter, s.DropUser: _drop}
