"""All that is stored in the model, and every decision that follows from it (SPEC.md 2.1, 3.1 to 3.3), by brute force.

Everything else in the model changes what is stored here, after it asked here whether it may.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from .model_values import (
    EVERYONE,
    LEAST,
    PARAMETERS,
    SYSTEM,
    WRITES,
    Caller,
    Level,
    Limits,
    Role,
    Separation,
    Session,
    Target,
    Thing,
    User,
    refuse_if,
    within,
)


@dataclass
class Decisions:
    """What is so, and what may be done."""

    now: float
    users: dict[str, User] = field(default_factory=dict)
    roles: dict[str, Role] = field(default_factory=dict)
    members: set[tuple[str, str]] = field(default_factory=set)  # user, role
    juniors: set[tuple[str, str]] = field(default_factory=set)  # senior, junior
    separations: dict[str, Separation] = field(default_factory=dict)
    levels: dict[str, frozenset[str]] = field(default_factory=dict)  # those it stands directly above
    retired: dict[str, frozenset[str]] = field(default_factory=dict)  # dropped levels, with all they stood above
    compartments: set[str] = field(default_factory=set)
    things: dict[int, Thing] = field(default_factory=dict)
    grants: dict[tuple[int, str, str], Limits] = field(default_factory=dict)  # object, permission, role
    sessions: dict[str, Session] = field(default_factory=dict)
    parameters: dict[str, str] = field(default_factory=lambda: dict(PARAMETERS))
    next_thing: int = 1
    tried: int = 0  # how many statements of the last script were begun

    # Roles and levels (2.1, 3.3) ------------------------------------------------------------------------------------

    def inherited(self, roles: Iterable[str]) -> frozenset[str]:
        found = set(roles)
        while more := {junior for senior, junior in self.juniors if senior in found} - found:
            found |= more
        return frozenset(found)

    def assigned(self, user: str) -> frozenset[str]:
        return frozenset(role for member, role in self.members if member == user)

    def authorised(self, user: str) -> frozenset[str]:
        return self.inherited(self.assigned(user))

    def broken(self, roles: frozenset[str], *, dynamic: bool) -> bool:
        held = self.inherited(roles | {EVERYONE})
        return any(s.dynamic == dynamic and len(held & s.roles) > s.at_most for s in self.separations.values())

    def below(self, name: str) -> frozenset[str]:
        """All that a level dominates, itself and U included."""
        found = {name, LEAST}
        while more := {lower for level in found for lower in self.levels.get(level, ())} - found:
            found |= more
        return frozenset(found)

    def dominates(self, high: Level, low: Level) -> bool:
        return low.name in self.below(high.name) and low.compartments <= high.compartments

    def known(self, level: Level) -> None:
        refuse_if(level.name not in {LEAST, *self.levels} or not level.compartments <= self.compartments, "LabelError")

    # Decisions (3.2) ------------------------------------------------------------------------------------------------

    def active(self, who: Session) -> frozenset[str]:
        """A role that was taken away is not active any more."""
        return who.roles & self.authorised(who.user)

    def allowed(self, who: Session, permission: str, thing_id: int, parameters: Limits | None = None) -> bool:
        thing = self.things[thing_id]
        if not (who.level == thing.level if permission in WRITES else self.dominates(who.level, thing.level)):
            return False
        roles = self.inherited(self.active(who) | {EVERYONE})
        return thing.owner == who.user or any(
            (thing_id, permission, role) in self.grants
            and within(self.grants[thing_id, permission, role], parameters or {})
            for role in roles
        )

    def visible(self, who: Session) -> set[int]:
        return {
            i
            for i, thing in self.things.items()
            if thing.kind in ("SCHEMA", "STREAM", "QUERY") and self.allowed(who, "VIEW OBJECT", i)
        }

    # What exists for whom (3.1) -------------------------------------------------------------------------------------

    def find(self, who: Session, target: Target) -> int:
        """One's own before others', of one owner's that of one's own level before the highest lower one (3.1)."""
        named = {i: t for i, t in self.things.items() if (t.kind, t.name) == (target.kind, target.name)}
        if target.kind not in ("SYSTEM", "OPERATOR"):  # public words
            named = {i: t for i, t in named.items() if self.allowed(who, "VIEW OBJECT", i)}
        if target.owner is not None:
            named = {i: t for i, t in named.items() if t.owner == target.owner}
        named = {i: t for i, t in named.items() if t.owner == who.user} or named
        refuse_if(not named, "NotFound")
        refuse_if(len({t.owner for t in named.values()}) > 1, "Conflict")
        here = [i for i, t in named.items() if t.level == who.level]
        highest = [
            i
            for i, t in named.items()
            if not any(t.level != x.level and self.dominates(x.level, t.level) for x in named.values())
        ]
        refuse_if(not here and len(highest) > 1, "Conflict")
        return (here or highest)[0]

    def find_user(self, name: str) -> User:
        refuse_if(name not in self.users, "NotFound")
        return self.users[name]

    def find_role(self, name: str) -> Role:
        refuse_if(name not in self.roles, "NotFound")
        return self.roles[name]

    # What a statement needs -----------------------------------------------------------------------------------------

    def need(self, me: Caller, permission: str, thing: int = SYSTEM, parameters: Limits | None = None) -> None:
        refuse_if(not self.allowed(me.session, permission, thing, parameters), "AccessDenied")

    def need_owner(self, me: Caller, thing: Thing) -> None:
        refuse_if((thing.owner, thing.level) != (me.user, me.session.level), "AccessDenied")
