"""Whether a right that a policy derives counts: only while the policy's owner could grant it.

Each kind of fact is judged by what the statement that gives the same right needs (GRANT ROLE, GRANT, ALTER USER), by
the rights in the store alone. What would let somebody give rights that outlive the policy, or govern the system, is
given by no policy.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from headgate.access import rows as r
from headgate.access.authorizer import EVERYONE, Authorizer, Principal, known_level, shown
from headgate.access.catalog import Catalog
from headgate.access.duties import Duties
from headgate.access.permissions import APPLIES, Kind, Permission
from headgate.access.state import State
from headgate.cql.reading import target
from headgate.labels import LEAST, Level, parse_level
from headgate.lexing import Cursor, quote

P = Permission
# Rights that somebody could use to give others rights that outlive the policy, or to read everybody's records.
_GOVERN = frozenset({P.CHANGE_SYSTEM, P.CHANGE_PERM, P.VIEW_AUDIT})
JUDGED_BY = (
    "users",
    "roles",
    "memberships",
    "inheritances",
    "separations",
    "levels",
    "compartments",
    "grants",
    "objects",
)
"""The tables on which it depends what counts."""
MOST_REMEMBERED = 100_000


class Basis(NamedTuple):
    """The derived fact that a right rests on: `plays(bob, partner)` of a policy. `about` is what the audit trail calls
    the object of the right."""

    policy: str
    name: str
    row: tuple[str, ...]
    about: str = ""


@dataclass(frozen=True)
class Right:
    """What a fact gives: a role to a user, a level to a user, or a grant."""

    basis: Basis
    user: str = ""
    role: str = ""
    level: Level | None = None
    grant: r.Grant | None = None


class Judge:
    """Remembers its answers for as long as nothing changes that they depend on: statements come and go more often."""

    def __init__(self, state: State, stored: Authorizer) -> None:
        self._state = state
        self._stored = stored
        self._catalog = Catalog(state, stored)
        self._duties = Duties(state, stored)
        self._seen: tuple[int, ...] = ()
        self._known: dict[Basis, Right | None] = {}

    def begin(self) -> None:
        """Forgets what may be judged differently now."""
        seen = tuple([self._state.changed[table] for table in ("policies", *JUDGED_BY)])
        if seen != self._seen or len(self._known) > MOST_REMEMBERED:
            self._seen, self._known = seen, {}

    def right(self, policy: r.Policy, fact: Basis) -> Right | None:
        """What a derived fact gives; None if it gives nothing. What cannot be judged gives nothing. INVARIANT: `begin`
        was called since the state last changed."""
        if fact not in self._known:
            try:
                self._known[fact] = self._judged(policy, fact)
            except Exception:  # most often a level, permission or object that there is none of
                self._known[fact] = None
        return self._known[fact]

    def apart(self, user: str, given: frozenset[str]) -> bool:
        """Whether a user may have these roles beside its own; if a separation forbids it, none of them counts."""
        return self._duties.broken(self._stored.authorised(user) | given, dynamic=False) is None

    def _judged(self, policy: r.Policy, fact: Basis) -> Right | None:
        owner = self._owner(policy)
        if owner is None:
            return None
        match fact.name, fact.row:
            case "plays", (user, role) if self._plays(owner, user, role):
                return Right(fact._replace(about=f"role {quote(role)}"), user=user, role=role)
            case "cleared", (user, text) if self._governs(owner) and self._known_user(user):
                return Right(fact._replace(about=f"user {quote(user)}"), user=user, level=self._level(text))
            case "may_access", (role, permission, text):
                thing = self._grantable(owner, role, Permission(permission), text)
                if thing is not None:
                    grant = _grant(policy, role, permission, thing)
                    return Right(fact._replace(about=shown(thing)), grant=grant)
        return None

    def _owner(self, policy: r.Policy) -> Principal | None:
        user = self._state.users.get(policy.owner)
        if user is None or user.locked:
            return None
        return Principal(user.name, frozenset(policy.roles) & self._stored.authorised(user.name), LEAST)

    def _governs(self, owner: Principal) -> bool:
        return self._stored.allows(owner, P.CHANGE_SYSTEM, self._catalog.system)

    def _known_user(self, name: str) -> bool:
        return bool(name) and self._state.users.get(name) is not None

    def _level(self, text: str) -> Level:
        level = parse_level(text)
        known_level(self._stored.order, frozenset(c.name for c in self._state.compartments), level)
        return level

    def _plays(self, owner: Principal, user: str, role: str) -> bool:
        """As for GRANT ROLE; but no role by which somebody could grant rights, or read all records."""
        found = self._state.roles.get(role)
        if found is None or role == EVERYONE or not self._known_user(user):
            return False
        held = self._stored.effective(frozenset({role})) - {EVERYONE}
        if any(grant.permission in _GOVERN for x in held for grant in self._state.grants.peek("role", x)):
            return False
        return found.owner == owner.user or self._governs(owner)

    def _grantable(self, owner: Principal, role: str, permission: Permission, text: str) -> r.Object | None:
        """As for GRANT, on schemas, streams and queries; but a policy gives nobody the right to grant."""
        cursor = Cursor(text)
        named = target(cursor)
        kind = Kind(named.kind)
        if not cursor.ended or kind in (Kind.SYSTEM, Kind.OPERATOR) or permission in _GOVERN:
            return None
        thing = self._catalog.find(owner, kind, named.name, named.owner)
        if permission not in APPLIES[kind] or self._state.roles.get(role) is None:
            return None
        return thing if self._stored.allows(owner, P.CHANGE_PERM, thing) else None


def _grant(policy: r.Policy, role: str, permission: str, thing: r.Object) -> r.Grant:
    return r.Grant(thing.id, permission, role, thing.kind, thing.name, thing.level, (), policy.owner)
