"""The authorizer: one question, one readable answer (paper 000, section 2, Figure 2; paper 002, section 2).

A principal may act on an object if the levels allow it and if the principal owns the object or one of its active roles,
or a role that such a role inherits, holds the permission. Roles, permissions and clearances come from the store and,
where an authorizer has policies, from these as well. Anything unknown is denied.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from headgate.access import rows as r
from headgate.access.definitions import StreamDefinition
from headgate.access.limits import exceeded
from headgate.access.permissions import WRITES, Kind, Permission
from headgate.access.state import State
from headgate.cql.names import Limit
from headgate.errors import LabelError
from headgate.labels import Clearance, Level, LevelOrder, Rules, parse_level, source_shown
from headgate.lexing import quote

if TYPE_CHECKING:
    from headgate.access.policies import Policies
    from headgate.access.policy_rights import Basis

EVERYONE = "PUBLIC"
SYSTEM_ID = 0
MAX_COMPARTMENTS = 64
MOST_REMEMBERED = 10_000


@dataclass(frozen=True)
class Principal:
    """A logged-in user (or one considered as if): user, active roles, level (paper 002's `JaneDoe.L`)."""

    user: str
    roles: frozenset[str]
    level: Level


@dataclass(frozen=True)
class Decision:
    """Granted or denied, and by which rule. `reason` is only for principals who may see the object."""

    granted: bool
    permission: Permission
    object: str
    reason: str

    def __bool__(self) -> bool:
        return self.granted


@dataclass(frozen=True)
class RoleLimits:
    """How many queries of a user may run, how many tuples one may keep for a view, and how many results it may emit to
    a view in a second; None: no limit of a role."""

    queries: int | None = None
    state: int | None = None
    results: int | None = None


class Authorizer:
    def __init__(self, state: State, policies: Policies | None = None) -> None:
        """Without policies: what the store alone gives."""
        self.state = state
        self.policies = policies
        self._active: Policies | None = None
        self._policies_seen = -1
        self._seen: tuple[int, ...] = ()
        self._inherited: dict[str, frozenset[str]] = {}
        self._authorised: dict[str, frozenset[str]] = {}
        self._effective: dict[frozenset[str], frozenset[str]] = {}
        self._principals: dict[str, tuple[r.Session, Principal]] = {}
        self._levels_seen = -1
        self._order = LevelOrder()
        self._level_texts: dict[str, Level] = {}
        self._visible_seen = (-1, -1)
        self._visible: dict[Level, list[str]] = {}

    # Roles ----------------------------------------------------------------------------------------------------------

    def inherited(self, role: str) -> frozenset[str]:
        """The role and all roles whose permissions it has."""
        self._forget_if_changed()
        known = self._inherited.get(role)
        if known is None:
            found, waiting = {role}, [role]
            while waiting:
                for edge in self.state.inheritances.peek("senior", waiting.pop()):
                    if edge.junior not in found:
                        found.add(edge.junior)
                        waiting.append(edge.junior)
            known = self._inherited[role] = frozenset(found)
        return known

    def assigned(self, user: str) -> frozenset[str]:
        """The roles that a user was given, by GRANT or by a policy."""
        stored = frozenset(m.role for m in self.state.memberships.peek("user", user))
        policies = self._policies()
        return stored.union(policies.roles(user)) if policies is not None else stored

    def authorised(self, user: str) -> frozenset[str]:
        """The roles a user may activate: assigned ones and those they inherit."""
        self._forget_if_changed()
        known = self._authorised.get(user)
        if known is None:
            known = self._authorised[user] = frozenset().union(*map(self.inherited, self.assigned(user)))
        return known

    def effective(self, roles: frozenset[str]) -> frozenset[str]:
        """The roles whose permissions count when these are active."""
        self._forget_if_changed()
        known = self._effective.get(roles)
        if known is None:
            known = self._effective[roles] = frozenset({EVERYONE}).union(*map(self.inherited, roles))
        return known

    def limits(self, user: str) -> RoleLimits:
        """The limits of a user's queries. Of several roles that set a limit the largest counts, active or not, so that
        deactivating a role frees nobody from it."""
        roles = [x for name in self.effective(self.authorised(user)) if (x := self.state.roles.get(name))]
        return RoleLimits(
            max((x.max_queries for x in roles if x.max_queries is not None), default=None),
            max((x.max_state for x in roles if x.max_state is not None), default=None),
            max((x.max_results for x in roles if x.max_results is not None), default=None),
        )

    def _forget_if_changed(self) -> None:
        changed, policies = self.state.changed, self._policies()
        version = policies.version if policies is not None else 0
        now = (changed["roles"], changed["memberships"], changed["inheritances"], version)
        if now != self._seen:
            self._seen = now
            self._inherited, self._authorised, self._effective, self._principals = {}, {}, {}, {}

    def _policies(self) -> Policies | None:
        """Where there is no policy, decisions do without them: they are made all the time."""
        seen = self.state.changed["policies"]
        if seen != self._policies_seen:
            self._policies_seen = seen
            self._active = self.policies if len(self.state.policies) else None
        return self._active

    # Levels ---------------------------------------------------------------------------------------------------------

    @property
    def order(self) -> LevelOrder:
        if self.state.changed["levels"] != self._levels_seen:
            self._levels_seen = self.state.changed["levels"]
            self._order = LevelOrder({x.name: frozenset(x.above) for x in self.state.levels if not x.retired})
        return self._order

    def level(self, text: str) -> Level:
        """The value of a stored level."""
        known = self._level_texts.get(text)
        if known is None:
            known = self._level_texts[text] = parse_level(text)
        return known

    def visible_levels(self, principal: Principal) -> list[str]:
        """The levels of objects that a principal may read. They are computed beforehand, so that looking up a name
        takes the same time whether a hidden object has it or none."""
        self.prepare(principal.level)
        return self._visible[principal.level]

    def prepare(self, *more: Level) -> None:
        """Recomputes which levels each level may read if levels came into use or rose: the request that changes levels
        bears the cost."""
        now = (self.state.changed["levels"], self.state.objects.regrouped["level"])
        stale = now != self._visible_seen
        missing = [level for level in more if level not in self._visible]
        if stale or missing:
            used, order = sorted(self.state.objects.keys("level")), self.order
            for level in [*self._visible, *missing] if stale else missing:
                self._visible[level] = [text for text in used if order.dominates(level, self.level(text))]
            self._visible_seen = now

    # Principals -----------------------------------------------------------------------------------------------------

    def principal(self, session: r.Session) -> Principal:
        """A session's principal at this moment: a role that was revoked is no longer active."""
        self._forget_if_changed()
        known = self._principals.get(session.token_hash)
        if known is None or known[0] is not session:
            roles = frozenset(session.roles) & self.authorised(session.user)
            known = session, Principal(session.user, roles, self.level(session.level))
            if len(self._principals) >= MOST_REMEMBERED:
                self._principals.clear()
            self._principals[session.token_hash] = known
        return known[1]

    def potential(self, user: r.User) -> Principal:
        """The most that a user could log in as: every assigned role, at the full clearance; where policies add to that,
        at the level that dominates most."""
        levels = sorted(self.clearances(user), key=str)
        top = max(levels, key=lambda level: sum(self.order.dominates(level, other) for other in levels))
        return Principal(user.name, self.assigned(user.name), top)

    def clearances(self, user: r.User) -> list[Level]:
        """The levels that a user is cleared for, its own first; it may log in at all that they dominate."""
        policies = self._policies()
        return [self.level(user.clearance), *(policies.levels(user.name) if policies is not None else ())]

    def cleared(self, user: r.User, level: Level) -> bool:
        return any(self.order.dominates(clearance, level) for clearance in self.clearances(user))

    def clearance(self, principal: Principal, streams: list[r.Object]) -> Clearance:
        """What the principal can present to labels whose sources are among these streams."""

        def readable(permission: Permission) -> frozenset[str]:
            return frozenset(source_name(s) for s in streams if self.allows(principal, permission, s))

        return Clearance(
            self.effective(principal.roles),
            principal.level,
            readable(Permission.READ_TUPLE),
            readable(Permission.AGGREGATE_READ),
        )

    def rules(self, streams: list[r.Object]) -> Rules:
        """The system's part of decisions about tuples of these streams."""
        chosen = {source_name(s): s.stream.semantics for s in streams}
        return Rules(self.order, chosen)

    # The decision ---------------------------------------------------------------------------------------------------

    def allows(self, principal: Principal, permission: Permission, thing: r.Object) -> bool:
        return self._level_fault(principal, permission, thing) is None and (
            thing.owner == principal.user or self._grant(principal, permission, thing) is not None
        )

    def allows_use(self, principal: Principal, operator: r.Object, parameters: Mapping[str, Limit]) -> bool:
        """Whether some grant covers these parameters: `judge` without a reason."""
        if self._level_fault(principal, Permission.USE, operator) is not None:
            return False
        return operator.owner == principal.user or any(
            not exceeded(grant.limits, parameters) for grant in self._grants(principal, Permission.USE, operator)
        )

    def decide(
        self,
        principal: Principal,
        permission: Permission,
        thing: r.Object,
        parameters: Mapping[str, Limit] | None = None,
    ) -> Decision:
        """The decision with its reason, and for USE with the limits of each grant."""
        granted, reason = self.judge(principal, permission, thing, parameters)
        return Decision(granted, permission, shown(thing), reason)

    def judge(
        self,
        principal: Principal,
        permission: Permission,
        thing: r.Object,
        parameters: Mapping[str, Limit] | None = None,
        roles: str = "no active role",
    ) -> tuple[bool, str]:
        """Whether it is granted, and why; called for every step of every statement. `roles` is how a refusal names the
        roles that were considered."""
        if fault := self._level_fault(principal, permission, thing):
            return False, fault
        if thing.owner == principal.user:
            return True, f"user {quote(principal.user)} owns it"
        reasons = []
        for grant in self._grants(principal, permission, thing):
            faults = exceeded(grant.limits, parameters or {})
            if not faults:
                return True, self._because(principal, grant)
            reasons.append(f"the grant to role {quote(grant.role)} allows {', '.join(faults)}")
        return False, "; ".join(reasons) or f"not the owner, and {roles} holds {permission}"

    def _level_fault(self, principal: Principal, permission: Permission, thing: r.Object) -> str | None:
        level = self.level(thing.level)
        if permission in WRITES and level != principal.level:
            return f"it has level {level}, and level {principal.level} writes only what has exactly that level"
        if not self.order.dominates(principal.level, level):
            return f"level {principal.level} does not dominate its level {level}"
        return None

    def held(self, index: str, key: object) -> Collection[r.Grant]:
        """The grants of the store, then those of policies, by an index of `state.grant_table`."""
        stored, policies = self.state.grants.peek(index, key), self._policies()
        more = policies.grants(index, key) if policies is not None else ()
        return [*stored, *more] if more else stored

    def bases(self, principal: Principal, permission: Permission, thing: r.Object) -> list[Basis]:
        """What a decision that was granted owes to policies: nothing where the store alone grants it."""
        policies = self._policies()
        if policies is None:
            return []
        plain = policies.stored
        stored = replace(principal, roles=principal.roles & plain.authorised(principal.user))
        found = self._level_bases(principal)
        if plain.allows(stored, permission, thing):
            return found
        grant = self._grant(principal, permission, thing)
        if grant is None:
            return found
        basis = policies.basis(grant)
        found += [basis] if basis is not None else []
        if grant.role not in plain.effective(stored.roles):
            given = policies.roles(principal.user)
            found += [given[role] for role in sorted(given) if grant.role in self.inherited(role)][:1]
        return found

    def session_bases(self, principal: Principal) -> list[Basis]:
        """What a session owes to policies: its level, and those of its roles that the store does not give."""
        policies = self._policies()
        if policies is None:
            return []
        given, stored = policies.roles(principal.user), policies.stored.authorised(principal.user)
        needed = sorted(principal.roles - stored)
        ways = ([given[x] for x in sorted(given) if role in self.inherited(x)] for role in needed)
        return list(dict.fromkeys([*self._level_bases(principal), *(way[0] for way in ways if way)]))

    def _level_bases(self, principal: Principal) -> list[Basis]:
        user, policies = self.state.users.get(principal.user), self._policies()
        if policies is None or user is None:
            return []
        if self.order.dominates(self.level(user.clearance), principal.level):
            return []
        levels = policies.levels(user.name)
        return [basis for level, basis in levels.items() if self.order.dominates(level, principal.level)][:1]

    def _grant(self, principal: Principal, permission: Permission, thing: r.Object) -> r.Grant | None:
        return next(iter(self._grants(principal, permission, thing)), None)

    def _grants(self, principal: Principal, permission: Permission, thing: r.Object) -> list[r.Grant]:
        """The grants that apply; searches from the smaller side."""
        roles = self.effective(principal.roles)
        on_object = self.state.grants.peek("right", (thing.id, permission))
        if len(on_object) < len(roles):
            found = [grant for grant in on_object if grant.role in roles]
        else:
            stored = (self.state.grants.get(thing.id, permission, role) for role in roles)
            found = [grant for grant in stored if grant is not None]
        policies = self._active  # `effective` has looked
        if policies is not None:
            given = policies.grants("right", (thing.id, permission))
            found += [grant for grant in given if grant.role in roles]
        return found

    def _because(self, principal: Principal, grant: r.Grant) -> str:
        by = f"granted by {self.grantor(grant)}"
        if grant.role in principal.roles or grant.role == EVERYONE:
            return f"role {quote(grant.role)} holds {grant.permission} ({by})"
        via = sorted(role for role in principal.roles if grant.role in self.inherited(role))
        return f"role {quote(via[0])} inherits role {quote(grant.role)}, which holds {grant.permission} ({by})"

    def grantor(self, grant: r.Grant) -> str:
        """Who gave a right: a user, the system, or a policy."""
        policies = self._policies()
        basis = policies.basis(grant) if policies is not None else None
        if basis is not None:
            return f"policy {quote(basis.policy)}"
        return quote(grant.grantor) if grant.grantor else "the system"

    def explain(self, principal: Principal, permission: Permission, thing: r.Object) -> list[str]:
        """Everything a decision considered, for principals who may know it."""
        active = ", ".join(map(quote, sorted(principal.roles))) or "none"
        also = ", ".join(map(quote, sorted(self.effective(principal.roles) - principal.roles - {EVERYONE}))) or "none"
        held = sorted({grant.role for grant in self.held("right", (thing.id, permission))})
        return [
            f"{shown(thing)} belongs to {quote(thing.owner) if thing.owner else 'the system'}, level {thing.level}",
            f"roles of {quote(principal.user)}: {active}; inherited: {also}; level {principal.level}",
            f"{permission} is held by {', '.join(map(quote, held)) or 'no role'}",
        ]


def shown(thing: r.Object) -> str:
    """An object as texts name it."""
    if thing.kind == Kind.SYSTEM:
        return "system"
    owner = f"{quote(thing.owner)}." if thing.owner else ""
    return f"{kind_word(thing)} {owner}{quote(thing.name)}"


def named(kind: Kind, name: str, owner: str | None) -> str:
    """What was asked for, as `shown` would name it."""
    return f"{kind.lower()} {f'{quote(owner)}.' if owner else ''}{quote(name)}"


def kind_word(thing: r.Object) -> str:
    """A table is a stream with all rights and duties of one, but is called a table."""
    return "table" if is_table(thing) else thing.kind.lower()


def is_table(thing: r.Object) -> bool:
    return isinstance(thing.definition, StreamDefinition) and thing.definition.table


def source_name(stream: r.Object) -> str:
    """The name of a stream as a source in labels: assigned at creation, and never to another stream."""
    return stream.stream.source


def shown_source(stream: r.Object) -> str:
    """The same for people: a stream that was dropped and created again keeps its plain name."""
    return source_shown(source_name(stream))


def known_level(order: LevelOrder, compartments: frozenset[str], level: Level) -> None:
    """Refuses a level or compartment that was never declared."""
    if level.name not in order:
        raise LabelError(f"unknown level `{level.name}`")
    if len(level.compartments) > MAX_COMPARTMENTS:
        raise LabelError(f"a level must not have more than {MAX_COMPARTMENTS} compartments")
    for name in sorted(level.compartments - compartments):
        raise LabelError(f"unknown compartment `{name}`")
