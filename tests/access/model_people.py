"""Sessions and users of the model: who is let in, as what and for how long, and what becomes of all that a user had."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

from .model_objects import Objects
from .model_values import BOTTOM, PARAMETERS, Caller, Change, Level, Refusal, Refused, Session, Target, User, refuse_if


class People(Objects):
    """What users do about themselves, and administrators about users: whose objects go with them or to an heir."""

    # Sessions (3.4) -------------------------------------------------------------------------------------------------

    def session(self, token: str) -> Session:
        refuse_if(token not in self.sessions, "AuthenticationFailed")
        return self.sessions[token]

    def check(self, token: str, permission: str, target: Target) -> bool | Refusal:
        """A decision as a user of the library gets it: what is hidden is denied."""
        try:
            return self.allowed(self.session(token), permission, self.find(self.session(token), target))
        except Refused as refused:
            return False if refused.kind == "NotFound" else refused.kind

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
            mine = [x for x in self.sessions.values() if x.user == user and self.dominates(level, x.level)]
            refuse_if(len(mine) >= int(self.parameters["max_sessions"]), "Conflict")
        except Refused as refused:
            return refused.kind
        self.users[user] = replace(found, failures=0, locked_until=0.0)
        expires = self.now + 60 * int(self.parameters["session_minutes"])
        self.sessions[token] = Session(user, roles, level, self.now, expires)
        return None

    def _admit(self, name: str, password: str) -> User:
        """After some wrong passwords each makes the next try wait twice as long, up to a limit; what comes too early is
        not counted; after as long as the limit again all is forgotten."""
        user = self.users.get(name)
        if user is None or user.locked or self.now < user.locked_until:
            raise Refused("AuthenticationFailed")
        if user.password == password:
            return user
        longest = 60 * int(self.parameters["lockout_minutes"])
        forgotten = user.locked_until > 0 and self.now >= user.locked_until + longest
        failures = 1 if forgotten else user.failures + 1
        beyond = failures - int(self.parameters["lockout_failures"])
        until = self.now + min(2**beyond, longest) if beyond >= 0 else 0.0
        self.users[name] = replace(user, failures=failures, locked_until=until)
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
