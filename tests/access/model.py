"""A second OxRBAC, written from SPEC.md section 3 and from nothing else, to hold the real one against.

Plain sets and dictionaries, every answer by brute force: no index, no cache, no undo log. A script runs on a copy of
everything, which is kept if all of it succeeds. Where SPEC.md says what is refused but not with which error, the order
is: who may ask; then what exists for the asker; then which rule of the catalog would be broken.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple

Limit = int | float | tuple[str, ...]
Limits = Mapping[str, Limit]
Refusal = Literal["AccessDenied", "AuthenticationFailed", "Conflict", "LabelError", "NotFound"]

EVERYONE, ADMIN, LEAST = "PUBLIC", "ADMIN", "U"
SYSTEM = 0
APPLIES: Mapping[str, tuple[str, ...]] = {
    "SYSTEM": ("VIEW CATALOG", "VIEW AUDIT", "ADD", "CHANGE PERM", "CHANGE SYSTEM"),
    "SCHEMA": ("VIEW OBJECT", "CHANGE PERM"),
    "STREAM": ("VIEW OBJECT", "SUBSCRIBE", "READ TUPLE", "AGGREGATE READ", "PUBLISH", "CHANGE PERM"),
    "QUERY": ("VIEW OBJECT", "SET QUERY STATUS", "CHANGE PERM"),
    "OPERATOR": ("USE",),
}
WRITES = ("SET QUERY STATUS", "PUBLISH", "CHANGE PERM", "CHANGE SYSTEM")
# Operators with their parameters, and whether those are numbers or strings.
OPERATORS: Mapping[str, Mapping[str, str]] = {
    "select": {},
    "project": {},
    "union": {},
    "distinct": {},
    "join": {"streams": "number"},
    "aggregate": {"functions": "strings", "groups": "number"},
    "window": {"rows": "number", "seconds": "number", "kinds": "strings"},
}
PARAMETERS = {
    "session_minutes": "480",
    "idle_minutes": "30",
    "lockout_failures": "5",
    "lockout_minutes": "15",
    "default_rights": "OWNER",
}


class Refused(Exception):
    def __init__(self, kind: Refusal) -> None:
        super().__init__(kind)
        self.kind = kind


def refuse_if(wrong: bool, kind: Refusal) -> None:
    if wrong:
        raise Refused(kind)


class Level(NamedTuple):
    name: str = LEAST
    compartments: frozenset[str] = frozenset()

    def __str__(self) -> str:
        return self.name + (f"{{{', '.join(sorted(self.compartments))}}}" if self.compartments else "")


BOTTOM = Level()


class Label(NamedTuple):
    """A label in canonical form, and the one level it names."""

    text: str
    level: Level = BOTTOM


@dataclass(frozen=True)
class User:
    password: str
    clearance: Level = BOTTOM
    locked: bool = False
    failures: int = 0
    locked_until: float = 0.0


@dataclass(frozen=True)
class Role:
    owner: str
    max_queries: int | None = None
    max_state: int | None = None
    max_results: int | None = None


@dataclass(frozen=True)
class Separation:
    dynamic: bool
    roles: frozenset[str]
    at_most: int


@dataclass(frozen=True)
class Thing:
    """Any object; each kind uses some of the fields."""

    kind: str
    owner: str
    level: Level
    name: str
    columns: tuple[str, ...] = ()
    label: str = "TRUE"
    semantics: str = "STRONG"
    inputs: tuple[int, ...] = ()
    operators: tuple[tuple[str, Limits], ...] = ()
    roles: frozenset[str] = frozenset()  # those it was created with
    output: int = -1
    running: bool = False
    broken: bool = False

    @property
    def key(self) -> tuple[str, str, str, str]:
        return self.kind, self.owner, str(self.level), self.name


@dataclass(frozen=True)
class Session:
    user: str
    roles: frozenset[str]
    level: Level
    last_used: float
    expires: float


class Target(NamedTuple):
    """How a statement names an object."""

    kind: str
    name: str
    owner: str | None = None

    def __str__(self) -> str:
        return f"{self.owner}.{self.name}" if self.owner else self.name


@dataclass
class Caller:
    """Who runs a script: the session as the script sees it, which may end before the script does."""

    token: str
    session: Session

    @property
    def user(self) -> str:
        return self.session.user


Change = tuple[str, str | Level | None]
Action = Callable[["Model", Caller], None]


@dataclass
class Model:
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

    def _new(self, thing: Thing) -> int:
        self.things[self.next_thing] = thing
        self.next_thing += 1
        return self.next_thing - 1

    # Scripts (3) ----------------------------------------------------------------------------------------------------

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
            if covered and not self.broken(roles, dynamic=True):
                self.sessions[token] = replace(session, roles=roles)
            else:
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

    def check(self, token: str, permission: str, target: Target) -> bool | Refusal:
        """A decision as a user of the library gets it: what is hidden is denied."""
        try:
            return self.allowed(self.session(token), permission, self.find(self.session(token), target))
        except Refused as refused:
            return False if refused.kind == "NotFound" else refused.kind

    def need(self, me: Caller, permission: str, thing: int = SYSTEM, parameters: Limits | None = None) -> None:
        refuse_if(not self.allowed(me.session, permission, thing, parameters), "AccessDenied")

    def need_owner(self, me: Caller, thing: Thing) -> None:
        refuse_if((thing.owner, thing.level) != (me.user, me.session.level), "AccessDenied")

    # Sessions (3.4) -------------------------------------------------------------------------------------------------

    def session(self, token: str) -> Session:
        refuse_if(token not in self.sessions, "AuthenticationFailed")
        return self.sessions[token]

    def login(
        self, token: str, user: str, password: str, roles: frozenset[str] | None, level: Level | None
    ) -> Refusal | None:
        """`token` is what the session will be called if it begins."""
        try:
            found = self._admit(user, password)
            roles = self.assigned(user) if roles is None else roles
            self._check_roles(user, roles)
            level = level or found.clearance
            refuse_if(not self.dominates(found.clearance, level), "AccessDenied")
        except Refused as refused:
            return refused.kind
        self.users[user] = replace(found, failures=0, locked_until=0.0)
        expires = self.now + 60 * int(self.parameters["session_minutes"])
        self.sessions[token] = Session(user, roles, level, self.now, expires)
        return None

    def _admit(self, name: str, password: str) -> User:
        """What is refused during a lockout is not counted."""
        user = self.users.get(name)
        if user is None or user.locked or self.now < user.locked_until:
            raise Refused("AuthenticationFailed")
        if user.password == password:
            return user
        self.users[name] = replace(user, failures=user.failures + 1)
        if user.failures + 1 >= int(self.parameters["lockout_failures"]):
            until = self.now + 60 * int(self.parameters["lockout_minutes"])
            self.users[name] = replace(user, failures=0, locked_until=until)
        raise Refused("AuthenticationFailed")

    def _check_roles(self, user: str, roles: frozenset[str]) -> None:
        refuse_if(not roles <= self.authorised(user), "AccessDenied")
        refuse_if(self.broken(roles, dynamic=True), "Conflict")

    def logout(self, token: str) -> Refusal | None:
        return None if self.sessions.pop(token, None) else "AuthenticationFailed"

    def advance(self, seconds: float) -> None:
        self.now += seconds
        self._expire()

    def _expire(self) -> None:
        """Whoever is late once is gone, whatever the parameters become later."""
        idle = 60 * int(self.parameters["idle_minutes"])
        for token, session in list(self.sessions.items()):
            if self.now >= session.expires or self.now - session.last_used >= idle:
                del self.sessions[token]

    def set_roles(self, me: Caller, roles: frozenset[str] | None) -> None:
        roles = self.assigned(me.user) if roles is None else roles
        self._check_roles(me.user, roles)
        me.session = replace(me.session, roles=roles)
        if me.token in self.sessions:  # this very script may have ended it
            self.sessions[me.token] = me.session

    def set_system(self, me: Caller, name: str, value: str) -> None:
        self.need(me, "CHANGE SYSTEM")
        refuse_if(name not in PARAMETERS, "NotFound")
        valid = value in ("OWNER", "ROLE") if name == "default_rights" else value.isdigit() and int(value) > 0
        refuse_if(not valid, "Conflict")
        self.parameters[name] = value

    # Users ----------------------------------------------------------------------------------------------------------

    def find_user(self, name: str) -> User:
        refuse_if(name not in self.users, "NotFound")
        return self.users[name]

    def create_user(self, me: Caller, name: str, password: str, clearance: Level) -> None:
        self.need(me, "CHANGE SYSTEM")
        refuse_if(name in self.users, "Conflict")
        self.known(clearance)
        self.users[name] = User(password, clearance)

    def alter_user(self, me: Caller, name: str, changes: Sequence[Change]) -> None:
        """Users change their own password and end their own sessions; everything else is administration."""
        if name == me.user and all(what in ("PASSWORD", "END SESSIONS") for what, _ in changes):
            refuse_if(me.session.level != BOTTOM, "AccessDenied")
        else:
            self.need(me, "CHANGE SYSTEM")
        self.find_user(name)
        for what, value in changes:
            self.users[name] = self._changed(me, name, what, value)

    def _changed(self, me: Caller, name: str, what: str, value: str | Level | None) -> User:
        user = self.users[name]
        if what == "PASSWORD":
            self._end_sessions(name, but=me.token)
            return replace(user, password=str(value), failures=0)
        if what == "CLEARANCE" and isinstance(value, Level):
            self.known(value)
            return replace(user, clearance=value)
        if what == "LOCK":
            return replace(user, locked=True)
        if what == "UNLOCK":
            return replace(user, locked=False, failures=0, locked_until=0.0)
        self._end_sessions(name)
        return user

    def _end_sessions(self, user: str, but: str = "") -> None:
        self.sessions = {token: s for token, s in self.sessions.items() if s.user != user or token == but}

    def drop_user(self, me: Caller, name: str, heir: str | None, cascade: bool) -> None:
        self.need(me, "CHANGE SYSTEM")
        self.find_user(name)
        refuse_if(name == me.user, "Conflict")
        if heir is not None:
            self.find_user(heir)
            refuse_if(heir == name, "Conflict")
        owned = [i for i, thing in self.things.items() if thing.owner == name]
        refuse_if(bool(owned) and heir is None and not cascade, "Conflict")
        for i in owned:
            if heir is not None:
                inherited = replace(self.things[i], owner=heir)
                self._check_free(inherited)
                self.things[i] = inherited
            else:
                self._drop(i)
        for role, found in self.roles.items():
            if found.owner == name:
                self.roles[role] = replace(found, owner=heir or me.user)
        self.members = {(user, role) for user, role in self.members if user != name}
        self._end_sessions(name)
        del self.users[name]
        if heir is not None:
            self._pass_on(heir, [i for i in sorted(owned) if self.things[i].running])

    def _pass_on(self, heir: str, running: list[int]) -> None:
        """What ran goes on only if the heir could start it, at its level."""
        for i in running:
            self.things[i] = replace(self.things[i], running=False)
        for i in running:
            query = self.things[i]
            with suppress(Refused):
                refuse_if(not self.dominates(self.users[heir].clearance, query.level), "AccessDenied")
                self._check_start(query.level, query)
                self.things[i] = replace(query, running=True)

    # Roles and separations ------------------------------------------------------------------------------------------

    def find_role(self, name: str) -> Role:
        refuse_if(name not in self.roles, "NotFound")
        return self.roles[name]

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

    # Schemas, streams, queries --------------------------------------------------------------------------------------

    def _check_free(self, thing: Thing) -> None:
        refuse_if(any(other.key == thing.key for other in self.things.values()), "Conflict")

    def _add(self, me: Caller, thing: Thing) -> int:
        self._check_free(thing)
        new = self._new(thing)
        if self.parameters["default_rights"] == "ROLE":
            rights = ("VIEW OBJECT", "SUBSCRIBE", "READ TUPLE") if thing.kind == "STREAM" else ("VIEW OBJECT",)
            self.grants.update({(new, right, role): {} for right in rights for role in self.active(me.session)})
        return new

    def create_schema(self, me: Caller, name: str, columns: Sequence[str]) -> None:
        self.need(me, "ADD")
        refuse_if(len(set(columns)) < len(columns), "Conflict")
        self._add(me, Thing("SCHEMA", me.user, me.session.level, name, tuple(columns)))

    def add_column(self, me: Caller, target: Target, column: str) -> None:
        i = self.find(me.session, target)
        self.need_owner(me, self.things[i])
        refuse_if(column in self.things[i].columns, "Conflict")
        self.things[i] = replace(self.things[i], columns=(*self.things[i].columns, column))

    def drop_column(self, me: Caller, target: Target, column: str) -> None:
        i = self.find(me.session, target)
        self.need_owner(me, self.things[i])
        refuse_if(column not in self.things[i].columns, "NotFound")
        refuse_if(len(self.things[i].columns) == 1, "Conflict")
        rest = tuple(name for name in self.things[i].columns if name != column)
        self.things[i] = replace(self.things[i], columns=rest)

    def create_stream(
        self, me: Caller, name: str, columns: Sequence[str] | Target, label: Label | None, semantics: str
    ) -> None:
        self.need(me, "ADD")
        if isinstance(columns, Target):
            columns = self.things[self.find(me.session, columns)].columns
        refuse_if(len(set(columns)) < len(columns), "Conflict")
        if label:
            self.known(label.level)
        text = label.text if label else "TRUE"
        self._add(me, Thing("STREAM", me.user, me.session.level, name, tuple(columns), text, semantics))

    def label_stream(self, me: Caller, target: Target, label: Label) -> None:
        i = self.find(me.session, target)
        self.need_owner(me, self.things[i])
        self.known(label.level)
        self.things[i] = replace(self.things[i], label=label.text)

    def set_semantics(self, me: Caller, target: Target, semantics: str) -> None:
        i = self.find(me.session, target)
        self.need_owner(me, self.things[i])
        self.things[i] = replace(self.things[i], semantics=semantics)

    def create_query(
        self, me: Caller, name: str, inputs: Sequence[Target], operators: Sequence[tuple[str, Limits]], output: str
    ) -> None:
        self.need(me, "ADD")
        found = []
        for target in inputs:
            found.append(self.find(me.session, target))
            refuse_if(not self.readable(me.session, found[-1]), "AccessDenied")
        for operator, parameters in operators:
            self.need(me, "USE", self.find(me.session, Target("OPERATOR", operator)), parameters)
        level = me.session.level
        filled = self._add(me, Thing("STREAM", me.user, level, output))
        query = Thing("QUERY", me.user, level, name, inputs=tuple(found), operators=tuple(operators), output=filled)
        self._add(me, replace(query, roles=self.active(me.session)))

    def readable(self, who: Session, stream: int) -> bool:
        return self.allowed(who, "VIEW OBJECT", stream) and any(
            self.allowed(who, right, stream) for right in ("READ TUPLE", "AGGREGATE READ")
        )

    def set_status(self, me: Caller, target: Target, running: bool) -> None:
        i = self.find(me.session, target)
        self.need(me, "SET QUERY STATUS", i)
        query = self.things[i]
        if running and not query.running:
            self._check_start(me.session.level, query)
        self.things[i] = replace(query, running=running)

    def _check_start(self, level: Level, query: Thing) -> None:
        """The owner may run one more, and with what is left of the roles the query was created with, run this one."""
        refuse_if(query.broken, "Conflict")
        owner = Session(query.owner, query.roles, query.level, 0, 0)
        for i in query.inputs:
            refuse_if(not self.readable(owner, i), "AccessDenied")
        for name, parameters in query.operators:
            operator = self.find(owner, Target("OPERATOR", name))
            refuse_if(not self.allowed(owner, "USE", operator, parameters), "AccessDenied")
        running = [t for t in self.things.values() if t.owner == query.owner and t.running]
        seen = [t for t in running if self.dominates(level, t.level)]
        roles = self.authorised(query.owner)
        limits = [limit for role in roles if (limit := self.roles[role].max_queries) is not None]
        refuse_if(bool(limits) and len(seen) >= max(limits), "AccessDenied")

    def drop_object(self, me: Caller, target: Target) -> None:
        """A query's output goes with the query and not before."""
        i = self.find(me.session, target)
        self.need_owner(me, self.things[i])
        refuse_if(any(thing.output == i for thing in self.things.values()), "Conflict")
        self._drop(i)

    def _drop(self, i: int) -> None:
        """With its grants and, for a query, its output; queries that read it stop for good."""
        dropped = self.things.pop(i, None)
        self.grants = {key: limits for key, limits in self.grants.items() if key[0] != i}
        for j, thing in self.things.items():
            if i in thing.inputs:
                rest = tuple(k for k in thing.inputs if k != i)
                self.things[j] = replace(thing, inputs=rest, running=False, broken=True)
        if dropped and dropped.kind == "QUERY":
            self._drop(dropped.output)

    # Rights ---------------------------------------------------------------------------------------------------------

    def _governed(self, me: Caller, permissions: Sequence[str], target: Target, roles: Sequence[str]) -> int:
        i = self.find(me.session, target)
        self.need(me, "CHANGE PERM", i if self.things[i].owner else SYSTEM)
        for role in roles:
            self.find_role(role)
        refuse_if(not {*permissions} <= {*APPLIES[target.kind]}, "Conflict")
        return i

    def grant(
        self, me: Caller, permissions: Sequence[str], target: Target, roles: Sequence[str], limits: Limits
    ) -> None:
        i = self._governed(me, permissions, target, roles)
        known = OPERATORS[target.name] if target.kind == "OPERATOR" else {}
        for name, limit in limits.items():
            refuse_if(known.get(name) != ("strings" if isinstance(limit, tuple) else "number"), "Conflict")
        self.grants.update({(i, permission, role): limits for role in roles for permission in permissions})

    def revoke(self, me: Caller, permissions: Sequence[str], target: Target, roles: Sequence[str]) -> None:
        i = self._governed(me, permissions, target, roles)
        for role in once(roles):
            for permission in once(permissions):
                refuse_if((i, permission, role) not in self.grants, "Conflict")
                del self.grants[i, permission, role]

    def show_catalog(self, me: Caller) -> None:
        self.need(me, "VIEW CATALOG")


def once(names: Sequence[str]) -> Sequence[str]:
    return list(dict.fromkeys(names))


def within(limits: Limits, parameters: Limits) -> bool:
    """Every limited parameter is given, and is no more, or nothing else, than the limit."""
    for name, limit in limits.items():
        given = parameters.get(name)
        if isinstance(limit, tuple):
            if not isinstance(given, tuple) or not {*given} <= {*limit}:
                return False
        elif given is None or isinstance(given, tuple) or given > limit:
            return False
    return True
