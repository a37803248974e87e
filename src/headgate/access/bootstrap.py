"""The content of a new store: the system, its operators, the role of everyone, and one administrator."""

from __future__ import annotations

from headgate.access import rows as r
from headgate.access.authorizer import EVERYONE, SYSTEM_ID
from headgate.access.definitions import Nothing
from headgate.access.passwords import Passwords
from headgate.access.permissions import APPLIES, OPERATORS, Kind, Permission
from headgate.access.request import Work
from headgate.access.sessions import NOBODY
from headgate.access.state import State
from headgate.errors import Conflict
from headgate.labels import LEAST
from headgate.lexing import name_fault

ADMIN = "ADMIN"


def fill(state: State, work: Work, passwords: Passwords, admin: str, password: str) -> None:
    """ADMIN governs the system; everyone may view the catalog as far as it is visible to them and use the operators,
    until revoked."""
    if len(state.users):
        raise Conflict("this store already has users", hint="log in and create more with CREATE USER")
    if fault := name_fault(admin):
        raise Conflict(fault)
    state.users.put(r.User(admin, passwords.hash(password), str(LEAST)))
    state.users.put(r.User(NOBODY, "", str(LEAST)))
    for role in (EVERYONE, ADMIN):
        state.roles.put(r.Role(role, ""))
    state.memberships.put(r.Membership(admin, ADMIN))
    state.objects.put(r.Object(SYSTEM_ID, Kind.SYSTEM, "", str(LEAST), "SYSTEM", Nothing()))
    for permission in sorted(APPLIES[Kind.SYSTEM]):
        state.grants.put(r.Grant(SYSTEM_ID, permission, ADMIN, Kind.SYSTEM, "SYSTEM", str(LEAST), (), ""))
    everyone = r.Grant(SYSTEM_ID, Permission.VIEW_CATALOG, EVERYONE, Kind.SYSTEM, "SYSTEM", str(LEAST), (), "")
    state.grants.put(everyone)
    for name in OPERATORS:
        thing = r.Object(work.new_object_id(), Kind.OPERATOR, "", str(LEAST), name, Nothing())
        state.objects.put(thing)
        state.grants.put(r.Grant(thing.id, Permission.USE, EVERYONE, thing.kind, name, str(LEAST), (), ""))
