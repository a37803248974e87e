"""Headgate, the facade: every exit (command line, server, library) asks here, and every answer is on the audit trail.

A request runs in one transaction: it sees the latest rights, changes everything it names or nothing, and leaves
its audit records with its changes. A refused request changes nothing and leaves a record of the refusal.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from headgate.access import bootstrap
from headgate.access import rows as r
from headgate.access.audit import Event, Head, Seal, load_key, verify
from headgate.access.authorizer import SYSTEM_ID, Authorizer, Decision, Principal, shown, source_name
from headgate.access.catalog import Catalog
from headgate.access.duties import Duties
from headgate.access.passwords import Passwords
from headgate.access.permissions import APPLIES, Kind, Permission
from headgate.access.request import Request, Result
from headgate.access.sessions import REFUSED, Sessions
from headgate.access.state import State
from headgate.access.statements import HANDLERS
from headgate.access.store import Store, StoreJournal, Transaction
from headgate.clock import Clock, SystemClock
from headgate.cql import parse_script
from headgate.cql.statements import Statement, Target
from headgate.errors import AccessDenied, AuthenticationFailed, Conflict, HeadgateError, NotFound, StoreError
from headgate.labels import LEAST, Clearance, Level, Rules

T = TypeVar("T")
# The tables that decide who may administer and which sessions may live.
_RIGHTS = ("users", "roles", "memberships", "inheritances", "separations", "levels", "grants")


@dataclass(frozen=True)
class Explanation:
    """A decision and everything it looked at."""

    decision: Decision
    details: tuple[str, ...]


@dataclass(frozen=True)
class Streams:
    """Some streams, their names as sources in labels, and the rules that decide about their tuples."""

    objects: tuple[r.Object, ...]
    sources: tuple[str, ...]
    rules: Rules


class Headgate:
    def __init__(
        self, url: str, audit_key: bytes, *, clock: Clock | None = None, passwords: Passwords | None = None
    ) -> None:
        self._clock = clock or SystemClock()
        self._passwords = passwords or Passwords()
        self._seal = Seal(audit_key)
        self._store = Store(url, self._seal, self._clock)
        self._state = State()
        self._lock = threading.RLock()
        self._authorizer = Authorizer(self._state)
        self._catalog = Catalog(self._state, self._authorizer)
        self._duties = Duties(self._state, self._authorizer)
        self._sessions = Sessions(self._state, self._authorizer, self._duties, self._passwords, self._clock)
        self._store.migrate()

    @classmethod
    def at_home(cls, home: Path, url: str | None = None, *, create: bool = False) -> Headgate:
        """Headgate with its files in one folder; `url` places the store elsewhere."""
        key_file = home / "audit.key"
        if not key_file.exists() and not create:
            raise StoreError(f"there is no Headgate in `{home}`", hint="run `headgate init` first")
        key = load_key(key_file, create=not key_file.exists())
        return cls(url or f"sqlite:///{home / 'headgate.db'}", key)

    def close(self) -> None:
        self._store.close()

    # Beginning and ending -------------------------------------------------------------------------------------------

    def initialise(self, admin: str, password: str) -> None:
        """Fills an empty store and names its first administrator."""
        with self._lock, self._store.transaction(self._state) as work:
            bootstrap.fill(self._state, work, self._passwords, admin, password)
            work.events.append(Event(admin, "", str(LEAST), "INITIALISE", "system", True, "the store was empty"))

    def login(
        self, user: str, password: str, *, roles: frozenset[str] | None = None, level: Level | None = None
    ) -> str:
        """A session's token. The roles default to all one has, the level to the clearance."""
        with self._lock:
            self._store.refresh(self._state)
        proved = self._sessions.password_ok(user, password)
        with self._lock:
            refusal = self._admit(user, proved)
            if refusal is not None:
                raise AuthenticationFailed(REFUSED)
            return self._recorded(user, "", LEAST, "LOGIN", lambda _: self._sessions.open(user, roles, level)[0])

    def _admit(self, user: str, proved: bool) -> str | None:
        with self._store.transaction(self._state) as work:
            refusal = self._sessions.admit(user, proved)
            if refusal is not None:
                work.events.append(Event(user, "", str(LEAST), "LOGIN", "session", False, refusal))
            return refusal

    def logout(self, token: str) -> None:
        with self._lock:
            self._store.refresh(self._state)
            session = self._sessions.find(token)
            self._recorded(
                session.user,
                session.id,
                self._authorizer.level(session.level),
                "LOGOUT",
                lambda _: self._sessions.end(session),
            )

    def _recorded(
        self,
        user: str,
        session: str,
        level: Level,
        action: str,
        act: Callable[[Transaction], T],
        about: str = "session",
    ) -> T:
        """Runs something in a transaction of its own and records how it ended."""
        try:
            with self._store.transaction(self._state) as work:
                value = act(work)
                work.events.append(Event(user, session, str(level), action, about, True, ""))
                return value
        except StoreError:
            raise
        except HeadgateError as error:
            self._record(Event(user, session, str(level), action, about, False, error.message))
            raise

    def _record(self, event: Event) -> None:
        with self._store.transaction(self._state) as work:
            work.events.append(event)

    # Requests -------------------------------------------------------------------------------------------------------

    def execute(self, token: str, script: str) -> list[Result]:
        """Runs a script, as a whole or not at all."""
        statements = parse_script(script)
        with self._lock:
            current = _Current()
            try:
                with self._store.transaction(self._state) as work:
                    return self._run(token, statements, work, current)
            except StoreError:
                raise
            except HeadgateError as error:
                self._record(current.refused(error))
                raise

    def _run(self, token: str, statements: tuple[Statement, ...], work: Transaction, current: _Current) -> list[Result]:
        session = self._sessions.find(token)
        current.session = session
        self._sessions.touch(session)
        request = self._request(session, work)
        before = self._rights_version()
        results = []
        for statement in statements:
            request.subject, request.decisions = "", []
            current.statement, current.request = statement, request
            try:
                results.append(HANDLERS[type(statement)](request, statement))
            except HeadgateError as error:
                raise error.at(statement.position) from None
            reasons = "; ".join(dict.fromkeys(decision.reason for decision in request.decisions))
            work.events.append(current.event(granted=True, reason=reasons))
        if self._rights_version() != before:
            self._settle(work)
        return results

    def _rights_version(self) -> int:
        return sum(self._state.changed[table] for table in _RIGHTS)

    def _request(self, session: r.Session, work: Transaction) -> Request:
        return Request(
            self._state,
            self._authorizer,
            self._catalog,
            self._duties,
            self._sessions,
            self._passwords,
            work,
            session,
        )

    def _settle(self, work: Transaction) -> None:
        """What must hold after every script: somebody can administer, and no session exceeds its user's rights."""
        granted = self._state.grants.peek("right", (SYSTEM_ID, Permission.CHANGE_SYSTEM.value))
        holders = {user for grant in granted for user in self._duties.users_of(grant.role)}
        if not any((user := self._state.users.get(name)) and not user.locked for name in holders):
            raise Conflict("nobody would be left who may change the system")
        for session in self._sessions.settle():
            event = Event(session.user, session.id, session.level, "END SESSION", "session", True, "rights changed")
            work.events.append(event)

    # Checks ---------------------------------------------------------------------------------------------------------

    def principal(self, token: str) -> Principal:
        """Who this session is at this moment."""
        with self._lock:
            self._store.refresh(self._state)
            return self._authorizer.principal(self._sessions.find(token))

    def check(self, token: str, permission: Permission, kind: Kind, name: str, owner: str | None = None) -> Decision:
        """One decision on the rights of this moment; what cannot be seen is denied like what does not exist."""
        with self._lock:
            principal = self.principal(token)
            try:
                thing = self._catalog.find(principal, kind, name, owner)
            except NotFound as error:
                return Decision(False, permission, f"{kind.lower()} {name}", error.message)
            return self._authorizer.decide(principal, permission, thing)

    def streams(self, token: str, names: list[str]) -> Streams:
        """The streams a session means by these names, with what decisions about their tuples need."""
        with self._lock:
            principal = self.principal(token)
            found = [self._catalog.find(principal, Kind.STREAM, name) for name in names]
            return Streams(tuple(found), tuple(map(source_name, found)), self._authorizer.rules(found))

    def clearance(self, token: str, streams: Streams) -> Clearance:
        """What a session can show to the labels of these streams at this moment."""
        with self._lock:
            return self._authorizer.clearance(self.principal(token), list(streams.objects))

    def why(self, token: str, user: str, permission: Permission, target: Target) -> Explanation:
        """Why a user, with all its roles and at its clearance, is granted or denied something."""
        with self._lock:
            self._store.refresh(self._state)
            session = self._sessions.find(token)
            principal = self._authorizer.principal(session)
            action = f"EXPLAIN {permission} FOR USER {user}"
            return self._recorded(
                session.user,
                session.id,
                principal.level,
                action,
                lambda work: self._why(self._request(session, work), user, permission, target),
                about=f"{target.kind.lower()} {target.name}",
            )

    def _why(self, q: Request, user: str, permission: Permission, target: Target) -> Explanation:
        thing = q.find(target)
        auditor = q.may(Permission.VIEW_AUDIT, self._catalog.system)
        owner = thing.owner == q.user
        found = self._state.users.get(user)
        if permission not in APPLIES[Kind(thing.kind)]:
            raise Conflict(f"{permission} does not apply to {shown(thing)}")
        if found is None and (auditor or owner):
            raise NotFound(f"there is no user `{user}`")
        if found is None or (user != q.user and not auditor and not owner):
            raise AccessDenied(f"you may ask this for yourself, or as the owner of {shown(thing)}, or with VIEW AUDIT")
        principal = self._authorizer.potential(found)
        decision = self._authorizer.decide(principal, permission, thing)
        details = self._authorizer.explain(principal, permission, thing) if auditor or owner else []
        return Explanation(decision, tuple(details))

    # Audit and numbers ----------------------------------------------------------------------------------------------

    def audit_head(self) -> Head:
        return self._store.audit_head()

    def verify_audit(self, expect: str = "") -> list[str]:
        """What is wrong with the audit trail; empty if nothing is."""
        return verify(self._seal, self._store.audit_trail(), self._store.audit_head(), expect)

    def journal(self, space: str) -> StoreJournal:
        """Stable numbers, for labels.LabelTable and labels.SourceNumbers."""
        return self._store.journal(space)


@dataclass
class _Current:
    """Which statement of which session is running, for the audit trail."""

    session: r.Session | None = None
    statement: Statement | None = None
    request: Request | None = None

    def event(self, *, granted: bool, reason: str) -> Event:
        session, subject = self.session, self.request.subject if self.request else ""
        return Event(
            session.user if session else "",
            session.id if session else "",
            session.level if session else str(LEAST),
            _action(self.statement),
            subject,
            granted,
            reason,
        )

    def refused(self, error: HeadgateError) -> Event:
        return self.event(granted=False, reason=error.message)


def _action(statement: Statement | None) -> str:
    """`CreateUser` is recorded as CREATE USER, grants with what they grant; never any value."""
    name = type(statement).__name__ if statement else "Session"
    words = "".join(f" {c}" if c.isupper() else c for c in name).strip().upper()
    if getattr(statement, "revoke", False):
        words = words.replace("GRANT", "REVOKE")
    what = getattr(statement, "permissions", None) or getattr(statement, "what", "")
    return f"{words} {', '.join(what) if isinstance(what, tuple) else what}".strip()
