"""Roles, separations, levels and compartments of the model: who may change them, and what must hold of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from .model_decisions import Decisions
from .model_values import BOTTOM, EVERYONE, LEAST, Caller, Level, Role, Separation, once, refuse_if


class Roles(Decisions):
    """What administrators and owners of roles do."""

    # Roles and separations ------------------------------------------------------------------------------------------

    def _need_role(self, me: Caller, name: str) -> None:
        """PUBLIC is everyone's, always; other roles are governed by owners and administrators, at level U."""
        refuse_if(name == EVERYONE, "Conflict")
        if self.roles[name].owner == me.user:
            refuse_if(me.session.level != BOTTOM, "AccessDenied")
        else:
            self.need(me, "CHANGE SYSTEM")

    def create_role(self, me: Caller, name: str, **limits: Any) -> None:
        self.need(me, "CHANGE SYSTEM")
        refuse_if(name in self.roles, "Conflict")
        self.roles[name] = replace(Role(me.user), **limits)

    def limit_role(self, me: Caller, name: str, **limits: Any) -> None:
        role = self.find_role(name)
        self._need_role(me, name)
        self.need(me, "CHANGE SYSTEM")
        self.roles[name] = replace(role, **limits)

    def give_role(self, me: Caller, name: str, owner: str) -> None:
        role = self.find_role(name)
        self._need_role(me, name)
        self.need(me, "CHANGE SYSTEM")
        self.find_user(owner)
        self.roles[name] = replace(role, owner=owner)

    def drop_role(self, me: Caller, name: str) -> None:
        self.find_role(name)
        self._need_role(me, name)
        self.members = {(user, role) for user, role in self.members if role != name}
        self.juniors = {edge for edge in self.juniors if name not in edge}
        self.grants = {key: limits for key, limits in self.grants.items() if key[2] != name}
        rest = {key: replace(x, roles=x.roles - {name}) for key, x in self.separations.items()}
        self.separations = {key: x for key, x in rest.items() if len(x.roles) > x.at_most}
        self.sessions = {token: replace(x, roles=x.roles - {name}) for token, x in self.sessions.items()}
        del self.roles[name]

    def grant_roles(self, me: Caller, roles: Sequence[str], users: Sequence[str], seniors: Sequence[str]) -> None:
        for name, senior, user in self._ends(me, roles, users, seniors):
            if senior is None:
                self.members.add((user, name))
            else:
                refuse_if(senior in self.inherited({name}), "Conflict")
                self.juniors.add((senior, name))
            self._check_static()

    def revoke_roles(self, me: Caller, roles: Sequence[str], users: Sequence[str], seniors: Sequence[str]) -> None:
        for name, senior, user in self._ends(me, roles, users, seniors):
            held, edge = (self.members, (user, name)) if senior is None else (self.juniors, (senior, name))
            refuse_if(edge not in held, "Conflict")
            held.remove(edge)

    def _ends(
        self, me: Caller, roles: Sequence[str], users: Sequence[str], seniors: Sequence[str]
    ) -> Iterable[tuple[str, str | None, str]]:
        """Each role with each user or senior role, after the rights at both ends were checked."""
        for name in roles:
            self.find_role(name)
        for name in once(roles):
            self._need_role(me, name)
            for user in once(users):
                self.find_user(user)
                yield name, None, user
            for senior in once(seniors):
                self.find_role(senior)
                self._need_role(me, senior)
                yield name, senior, ""

    def _check_static(self) -> None:
        refuse_if(any(self.broken(self.authorised(user), dynamic=False) for user in self.users), "Conflict")

    def create_separation(self, me: Caller, name: str, dynamic: bool, roles: Sequence[str], at_most: int) -> None:
        self.need(me, "CHANGE SYSTEM")
        refuse_if(name in self.separations, "Conflict")
        for role in roles:
            self.find_role(role)
        refuse_if(not 1 <= at_most < len(set(roles)), "Conflict")
        self.separations[name] = Separation(dynamic, frozenset(roles), at_most)
        self._check_static()

    def drop_separation(self, me: Caller, name: str) -> None:
        self.need(me, "CHANGE SYSTEM")
        refuse_if(name not in self.separations, "NotFound")
        del self.separations[name]

    # Levels and compartments ----------------------------------------------------------------------------------------

    def _levels_in_use(self) -> list[Level]:
        return [user.clearance for user in self.users.values()] + [thing.level for thing in self.things.values()]

    def _check_levels(self, names: Sequence[str]) -> None:
        refuse_if(not {*names} <= {LEAST, *self.levels}, "NotFound")

    def create_level(self, me: Caller, name: str, above: Sequence[str]) -> None:
        self.need(me, "CHANGE SYSTEM")
        refuse_if(name in {LEAST, *self.levels}, "Conflict")
        self._check_levels(above)
        self.levels[name] = frozenset(above) - {LEAST}
        refuse_if(not self.retired.pop(name, frozenset()) <= self.below(name), "Conflict")

    def raise_level(self, me: Caller, name: str, above: Sequence[str]) -> None:
        self.need(me, "CHANGE SYSTEM")
        refuse_if(name == LEAST, "Conflict")
        self._check_levels([name, *above])
        refuse_if(any(name in self.below(lower) for lower in above), "Conflict")
        self.levels[name] |= {*above} - {LEAST}

    def drop_level(self, me: Caller, name: str) -> None:
        self.need(me, "CHANGE SYSTEM")
        refuse_if(name == LEAST, "Conflict")
        self._check_levels([name])
        refuse_if(any(name in above for above in self.levels.values()), "Conflict")
        refuse_if(any(level.name == name for level in self._levels_in_use()), "Conflict")
        self.retired[name] = self.below(name) - {name, LEAST}
        del self.levels[name]

    def create_compartment(self, me: Caller, name: str) -> None:
        self.need(me, "CHANGE SYSTEM")
        refuse_if(name in self.compartments, "Conflict")
        self.compartments.add(name)

    def drop_compartment(self, me: Caller, name: str) -> None:
        self.need(me, "CHANGE SYSTEM")
        refuse_if(name not in self.compartments, "NotFound")
        refuse_if(any(name in level.compartments for level in self._levels_in_use()), "Conflict")
        self.compartments.remove(name)
