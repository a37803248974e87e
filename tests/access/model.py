"""A second OxRBAC, written from SPEC.md section 3 and from nothing else, to hold the real one against.

Plain sets and dictionaries, every answer by brute force: no index, no cache, no undo log. A script runs on a copy of
everything, which is kept if all of it succeeds. Where SPEC.md says what is refused but not with which error, the order
is: who may ask; then what exists for the asker; then which rule of the catalog would be broken.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import replace

from .model_people import People
from .model_roles import Roles
from .model_values import (
    ADMIN,
    APPLIES,
    BOTTOM,
    EVERYONE,
    OPERATORS,
    SYSTEM,
    Caller,
    Refusal,
    Refused,
    Role,
    Thing,
    User,
    refuse_if,
)

Action = Callable[["Model", Caller], None]


class Model(Roles, People):
    """The whole of it: how it begins, and what a script does to it (3)."""

    def initialise(self, admin: str, password: str) -> None:
        self.users[admin] = User(password)
        self.roles = {ADMIN: Role(""), EVERYONE: Role("")}
        self.members = {(admin, ADMIN)}
        self.things[SYSTEM] = Thing("SYSTEM", "", BOTTOM, "SYSTEM")
        self.grants = {(SYSTEM, permission, ADMIN): {} for permission in APPLIES["SYSTEM"]}
        self.grants[SYSTEM, "VIEW CATALOG", EVERYONE] = {}
        for name in OPERATORS:
            self.grants[self._new(Thing("OPERATOR", "", BOTTOM, name)), "USE", EVERYONE] = {}

    def copy(self) -> Model:
        """Values are never changed, only replaced, so copying the collections is enough."""
        other = copy(self)
        for name, value in vars(self).items():
            setattr(other, name, copy(value))
        return other

    def run(self, token: str, actions: Sequence[Action]) -> Refusal | None:
        """All of it or none of it; why it was refused, if it was."""
        trial = self.copy()
        self.tried = 0
        try:
            trial.sessions[token] = replace(trial.session(token), last_used=self.now)
            caller = Caller(token, trial.sessions[token])
            for action in actions:
                self.tried += 1
                action(trial, caller)
            trial.settle()
        except Refused as refused:
            if token in self.sessions:  # a refused request is a request too
                self.sessions[token] = replace(self.sessions[token], last_used=self.now)
            return refused.kind
        vars(self).update(vars(trial) | {"tried": self.tried})
        return None

    def settle(self) -> None:
        """What must hold after every script."""
        refuse_if(not self.administrators(), "Conflict")
        for token, session in list(self.sessions.items()):
            user = self.users.get(session.user)
            roles = session.roles & self.authorised(session.user)
            covered = user and not user.locked and self.dominates(user.clearance, session.level)
            if not covered or self.broken(roles, dynamic=True):
                del self.sessions[token]
        self._expire()

    def administrators(self) -> dict[str, frozenset[str]]:
        """The unlocked users who may change the system, and what they activate to do so."""
        holding = [role for thing, permission, role in self.grants if (thing, permission) == (SYSTEM, "CHANGE SYSTEM")]
        return {
            name: frozenset({role}) - {EVERYONE}
            for name, user in self.users.items()
            for role in holding
            if not user.locked
            and role in self.authorised(name) | {EVERYONE}
            and not self.broken(frozenset({role}), dynamic=True)
        }
