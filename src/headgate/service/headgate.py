"""Headgate, the facade: every interface (command line, server, library) calls it, and every answer is on the audit
trail.

A request runs in one transaction: it sees the latest rights, changes everything it names or nothing, and writes its
audit records with its changes. A refused request changes nothing and leaves a record of the refusal.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from headgate.access import bootstrap
from headgate.access import rows as r
from headgate.access.administrators import has_administrator
from headgate.access.audit import Event, Head, Seal, load_key, verify
from headgate.access.authorizer import Authorizer, Decision, Principal, named, shown, source_name
from headgate.access.catalog import Catalog
from headgate.access.consequences import consequences
from headgate.access.definitions import PUBLISH, StreamDefinition
from headgate.access.duties import Duties
from headgate.access.events import session_event, statement_events, undone
from headgate.access.evidence import Evidence, read_proof
from headgate.access.explanations import Explanation, explained
from headgate.access.passwords import Passwords
from headgate.access.permissions import Kind, Permission
from headgate.access.policies import Policies
from headgate.access.request import Request, Result
from headgate.access.sessions import NOBODY, REFUSED, WAIT, Sessions
from headgate.access.state import State
from headgate.access.statements import HANDLERS
from headgate.access.store import Store, Transaction
from headgate.access.subscriptions import Subscriptions
from headgate.access.tries import Tries
from headgate.clock import Clock, SystemClock
from headgate.cql import parse_script
from headgate.cql.statements import Statement, Target
from headgate.errors import AccessDenied, AuthenticationFailed, Conflict, HeadgateError, NotFound, StoreError, TextError
from headgate.labels import LEAST, Clearance, Level, Rules
from headgate.lexing import quote

if TYPE_CHECKING:
    from headgate.access.running import Running
    from headgate.model.snapshot import CatalogSnapshot
    from headgate.plan.analysis import LiveEngine
    from headgate.service.snapshots import SnapshotBuilder

T = TypeVar("T")
MOST_ROWS = 10_000
_SHORTEST = 8
"""How much of a proof's name must be given."""
# The tables that decide who may administer and which sessions may continue.
_RIGHTS = (
    "users",
    "roles",
    "memberships",
    "inheritances",
    "separations",
    "levels",
    "grants",
    "policies",
    "policy_statements",
)


@dataclass(frozen=True)
class Streams:
    """Some streams, their names as sources in labels, and the rules that decide about their tuples."""

    objects: tuple[r.Object, ...]
    sources: tuple[str, ...]
    rules: Rules


@dataclass(frozen=True)
class ResultReader:
    """Who reads results over a connection: the user, level and roles of its session at this moment."""

    user: str
    level: str
    roles: frozenset[str]


@dataclass(frozen=True)
class PublishingSession:
    """Who publishes to a stream: the session's user and level, the user's public keys, and the stream."""

    user: str
    session: str
    level: Level
    keys: tuple[str, ...]
    stream: r.Object
    rules: Rules


class Headgate:
    def __init__(
        self,
        url: str,
        audit_key: bytes,
        *,
        clock: Clock | None = None,
        passwords: Passwords | None = None,
        create: bool = True,
    ) -> None:
        self._clock = clock or SystemClock()
        self._passwords = passwords or Passwords()
        self._seal = Seal(audit_key)
        self._store = Store(url, self._seal, self._clock)
        self._state = State()
        self._lock = threading.RLock()
        self.engine: LiveEngine | None = None
        """The engine that runs queries in this process."""
        self._policies = Policies(self._state, self._clock)
        self._authorizer = Authorizer(self._state, self._policies)
        self._catalog = Catalog(self._state, self._authorizer)
        self._duties = Duties(self._state, self._authorizer)
        self._sessions = Sessions(self._state, self._authorizer, self._duties, self._passwords, self._clock)
        self._tries = Tries(self._state, self._clock)
        self._subscriptions = Subscriptions(self._state, self._authorizer, self._duties)
        try:
            self._store.migrate(create=create)
        except BaseException:
            self._store.close()
            raise

    @classmethod
    def at_home(cls, home: Path, url: str | None = None, *, create: bool = False) -> Headgate:
        """Headgate with its files in one folder; `url` places the store elsewhere."""
        key_file = home / "audit.key"
        if not key_file.exists() and not create:
            raise StoreError(f"there is no Headgate in `{home}`", hint="run `headgate init` first")
        key = load_key(key_file, create=not key_file.exists())
        return cls(url or f"sqlite:///{home / 'headgate.db'}", key, create=create)

    def close(self) -> None:
        self._store.close()

    @contextmanager
    def _transaction(self) -> Iterator[Transaction]:
        before = self._state.changed["objects"]
        try:
            with self._store.transaction(self._state) as work:
                yield work
        finally:
            if self._state.changed["objects"] != before:
                self._running.catch_up()  # later requests must not take longer for queries that they may not see
            self._prepare()

    def _refresh(self) -> None:
        self._store.refresh(self._state)
        self._prepare()

    def _prepare(self) -> None:
        """Recomputes everything that depends on the changes now, at the cost of the request that made them."""
        self._policies.catch_up()
        self._authorizer.prepare()
        if "_running" in vars(self):
            self._running.catch_up()

    @cached_property
    def _running(self) -> Running:
        """The plans of running queries. A process that never asks for one, as most commands, plans nothing."""
        from headgate.access.running import Running

        return Running(self._state)

    # Start and sessions -----------------------------------------------------------------------------------------------

    def initialise(self, admin: str, password: str) -> None:
        """Fills an empty store and creates its first administrator."""
        with self._lock, self._transaction() as work:
            bootstrap.fill(self._state, work, self._passwords, admin, password)
            work.events.append(Event(admin, "", str(LEAST), "INITIALISE", "system", True, "the store was empty"))

    def login(
        self,
        user: str,
        password: str,
        *,
        roles: frozenset[str] | None = None,
        level: Level | None = None,
        source: str = "",
    ) -> str:
        """Returns a session's token. The roles default to all of the user's roles, the level to the clearance. `source`
        is where the attempt comes from, such as an address: wrong passwords from elsewhere do not lock out a user who
        comes from an address that it used before."""
        with self._lock:
            self._refresh()
            stored = self._sessions.stored_password(user)
        proved = self._sessions.proves(stored, password)
        event = Event(user, "", str(LEAST), "LOGIN", "session", False, "")
        with self._lock:
            try:
                with self._transaction() as work:
                    refusal = self._tries.admit(user, source, stored, proved)
                    if refusal is None:
                        return self._opened(work, event, roles, level)
                    work.events.append(event._replace(reason=f"{refusal}, from {source}" if source else refusal))
            except (AccessDenied, Conflict) as error:
                self._record(None, event._replace(reason=error.message))
                raise
            raise AuthenticationFailed(REFUSED, hint=WAIT)

    def login_certified(
        self, user: str, *, roles: frozenset[str] | None = None, level: Level | None = None, proof: str
    ) -> str:
        """A login of a user whom the caller has recognised by itself; `proof` says how, for the audit trail. Wrong
        passwords of others do not delay it, and a locked user is refused."""
        event = Event(user, "", str(LEAST), "LOGIN", "session", False, "")
        with self._lock:
            try:
                with self._transaction() as work:
                    found = self._state.users.get(user) if user != NOBODY else None
                    if found is not None and not found.locked:
                        return self._opened(work, event, roles, level, proof)
                    why = "the account is locked" if found is not None else "no such user"
                    work.events.append(event._replace(reason=f"{why}, {proof}"))
            except (AccessDenied, Conflict) as error:
                self._record(None, event._replace(reason=error.message))
                raise
            raise AuthenticationFailed(REFUSED, hint=WAIT)

    def _opened(
        self, work: Transaction, event: Event, roles: frozenset[str] | None, level: Level | None, *reasons: str
    ) -> str:
        token, session = self._sessions.open(event.user, roles, level)
        request = self._request(session, work)
        owed = map(request.proved, self._authorizer.session_bases(request.principal))
        work.events.append(event._replace(session=session.id, granted=True, reason="; ".join([*reasons, *owed])))
        self._authorizer.prepare(self._authorizer.level(session.level))
        return token

    def logout(self, token: str) -> None:
        def end(work: Transaction, session: r.Session) -> None:
            if session.name:
                raise Conflict("cannot log out: this is an API key", hint="DROP API KEY ends it")
            self._sessions.end(session)
            work.events.append(session_event(session, "LOGOUT", "session", granted=True))

        self._asked(token, "LOGOUT", ["session"], end)

    def _asked(self, token: str, action: str, about: list[str], act: Callable[[Transaction, r.Session], T]) -> T:
        """Runs an action for a session, in one transaction. If it is refused, records the refusal, with the object it
        was about as far as that was known."""
        with self._lock:
            session = None
            try:
                with self._transaction() as work:
                    session = self._sessions.find(token)
                    return act(work, session)
            except StoreError:
                raise
            except HeadgateError as error:
                self._record(session, session_event(session, action, about[0], reason=error.message))
                raise

    def _record(self, session: r.Session | None, *events: Event) -> None:
        """Records refusals. A refused request is a request too, so the session is not idle."""
        with self._transaction() as work:
            work.events.extend(events)
            if session is not None:
                self._sessions.touch(session)

    # Requests -------------------------------------------------------------------------------------------------------

    def execute(self, token: str, script: str) -> list[Result]:
        """Runs a script, as a whole or not at all. A caller without a session is refused before the script is
        parsed."""
        session = self._familiar(token) or self._recognised(token)
        try:
            statements = parse_script(script)
        except TextError as error:
            session = self._recognised(token)
            with self._lock:
                where = f"line {error.position.line}, column {error.position.column}" if error.position else ""
                self._record(session, session_event(session, "EXECUTE", "script", reason=f"not understood, {where}"))
            raise
        with self._lock:
            tried: list[Event] = []
            try:
                with self._transaction() as work:
                    session = self._sessions.touch(self._sessions.current(session.token_hash))
                    results = self._run(session, statements, work, tried)
            except StoreError:
                raise
            except HeadgateError as error:
                failed = [undone(event) if event.granted else event for event in tried]
                self._record(session, *(failed or [session_event(session, "EXECUTE", "script", reason=error.message)]))
                raise
        return [result.finished() for result in results]

    def _familiar(self, token: str) -> r.Session | None:
        """The session, if it was valid when the store was last read; a caller that acts on it must check again."""
        with self._lock:
            try:
                return self._sessions.find(token)
            except AuthenticationFailed:
                return None

    def _recognised(self, token: str) -> r.Session:
        with self._lock:
            self._refresh()
            try:
                return self._sessions.find(token)
            except AuthenticationFailed as error:
                self._record(None, session_event(None, "EXECUTE", "script", reason=error.message))
                raise

    def _run(
        self, session: r.Session, statements: tuple[Statement, ...], work: Transaction, tried: list[Event]
    ) -> list[Result]:
        """`tried` collects what was done and what failed, to be recorded if all of it is undone."""
        request = self._request(session, work)
        before, results, rows = self._rights_version(), [], 0
        given = self._policies.version, self._policies.bases()
        for statement in statements:
            request.subject, request.given, request.reasons = "", [], {}
            try:
                results.append(HANDLERS[type(statement)](request, statement))
                rows += len(results[-1].rows)
                if len(statements) > 1 and rows > MOST_ROWS:
                    raise Conflict(f"the answers of a script must not have more than {MOST_ROWS} rows")
                if statement is statements[-1] and self._rights_version() != before:
                    self._settle(work)
            except HeadgateError as error:
                tried += statement_events(session, statement, request, granted=False, reason=error.message)
                raise error.at(statement.position) from None
            done = statement_events(session, statement, request, granted=True, reason="; ".join(request.reasons))
            if self._policies.version != given[0]:
                current = self._policies.version, self._policies.bases()
                done += consequences(request, given[1], current[1])
                given = current
            work.events += done
            tried += done
        if not statements:
            work.events.append(session_event(session, "EXECUTE", "", granted=True, reason="an empty script"))
        return results

    def _rights_version(self) -> int:
        return sum(map(self._state.changed.__getitem__, _RIGHTS))

    def _request(self, session: r.Session, work: Transaction) -> Request:
        return Request(
            self._state,
            self._authorizer,
            self._catalog,
            self._duties,
            self._sessions,
            self._subscriptions,
            self._passwords,
            lambda: self._running,
            self._policies,
            work,
            session,
            self._clock.now(),
            self.engine,
        )

    def _settle(self, work: Transaction) -> None:
        """INVARIANT, after every script: somebody can administer, and no session exceeds its user's rights."""
        if not has_administrator(self._state, self._authorizer, self._duties):
            raise Conflict("nobody would be left who may change the system")
        for session in self._sessions.settle():
            work.events.append(session_event(session, "END SESSION", "session", granted=True, reason="rights changed"))

    # Checks ---------------------------------------------------------------------------------------------------------

    def principal(self, token: str) -> Principal:
        """The user, roles and level of this session at this moment."""
        with self._lock:
            self._refresh()
            return self._authorizer.principal(self._sessions.find(token))

    def chosen_roles(self, token: str) -> frozenset[str]:
        """The roles that a session was opened with or has set, and those they inherit, whether currently held or
        not."""
        with self._lock:
            self._refresh()
            return self._authorizer.effective(frozenset(self._sessions.find(token).roles))

    def assigned_roles(self, user: str) -> frozenset[str]:
        with self._lock:
            self._refresh()
            return self._authorizer.assigned(user)

    def use(self, token: str) -> None:
        """Marks a session that fetches its subscriptions' results as not idle. No audit record: nothing is requested
        that was not requested before."""
        with self._lock, self._transaction():
            self._sessions.touch(self._sessions.find(token))

    def use_all(self, tokens: Iterable[str]) -> set[str]:
        """As `use`, for many sessions at once; returns the tokens whose session has ended."""
        ended = set[str]()
        with self._lock, self._transaction():
            for token in tokens:
                try:
                    self._sessions.touch(self._sessions.find(token))
                except AuthenticationFailed:
                    ended.add(token)
        return ended

    def session_of(self, token: str) -> str:
        """The name of this session for people and in the audit trail."""
        with self._lock:
            self._refresh()
            return self._sessions.find(token).id

    def check(self, token: str, permission: Permission, kind: Kind, name: str, owner: str | None = None) -> Decision:
        """One decision on the current rights; an object that the session cannot see is denied like one that does not
        exist."""
        with self._lock:
            principal = self.principal(token)
            try:
                thing = self._catalog.find(principal, kind, name, owner)
            except NotFound as error:
                return Decision(False, permission, f"{kind.lower()} {name}", error.message)
            return self._authorizer.decide(principal, permission, thing)

    def dominates_all(self, token: str) -> bool:
        """Whether a session's level stands above all others, with all compartments: what is told there tells nobody
        of something above its level."""
        with self._lock:
            level, order = self.principal(token).level, self._authorizer.order
            every = frozenset(x.name for x in self._state.compartments)
            return all(order.dominates(level, Level(name, every)) for name in (*order.above, level.name))

    def streams(self, token: str, names: list[str]) -> Streams:
        """The streams that a session means by these names, with the rules for decisions about their tuples."""
        with self._lock:
            principal = self.principal(token)
            found = [self._catalog.find(principal, Kind.STREAM, name) for name in names]
            return Streams(tuple(found), tuple(map(source_name, found)), self._authorizer.rules(found))

    def clearance(self, token: str, streams: Streams) -> Clearance:
        """The clearance that a session has at this moment for the labels of these streams."""
        with self._lock:
            principal = self.principal(token)
            current = (self._state.objects.get(thing.id) for thing in streams.objects)
            return self._authorizer.clearance(principal, [thing for thing in current if thing is not None])

    def why(self, token: str, user: str, permission: Permission, target: Target) -> Explanation:
        """Why a user, with all its roles and at its clearance, is granted or denied a permission."""
        action = f"EXPLAIN {permission} FOR USER {quote(user)}"
        about = [named(Kind(target.kind), target.name, target.owner)]

        def explain(work: Transaction, session: r.Session) -> Explanation:
            request = self._request(session, work)
            about[:] = [shown(request.find(target))]
            found = explained(request, user, permission, target)
            work.events.append(session_event(session, action, request.subject, granted=True))
            return found

        return self._asked(token, action, about, explain)

    def proof(self, token: str, name: str) -> Evidence:
        """The proof that an audit record names, with every signature checked again: for auditors."""
        about = [f"proof {name}"]

        def read(work: Transaction, session: r.Session) -> Evidence:
            request = self._request(session, work)
            request.need_system(Permission.VIEW_AUDIT)
            found = work.proof(name) if len(name) >= _SHORTEST and name.isalnum() else []
            if len(found) != 1:
                raise NotFound(f"there is no proof `{name}`", hint="audit records name proofs after the word `proof`")
            tree, content = read_proof(*found[0])
            rules = dict(work.proof(str(content["rules"]))).get(str(content["rules"]), "")
            work.events.append(session_event(session, "EXPLAIN PROOF", about[0], granted=True))
            return Evidence(str(content["policy"]), tree, rules)

        return self._asked(token, "EXPLAIN PROOF", about, read)

    # Readers and senders ----------------------------------------------------------------------------------------------

    def reader(self, token: str) -> ResultReader:
        """Who reads with this session. The store is not asked: a caller that holds the catalog `open` has its newest
        state."""
        with self._lock:
            session = self._sessions.find(token)
            return ResultReader(session.user, session.level, self._authorizer.effective(frozenset(session.roles)))

    def stream(self, token: str, name: str, owner: str | None = None) -> r.Object:
        """The stream that a session means by a name."""
        with self._lock:
            return self._catalog.find(self.principal(token), Kind.STREAM, name, owner)

    def sender(self, token: str, name: str, owner: str | None = None, *, record: bool = True) -> PublishingSession:
        """The right to publish to a stream at this moment; a refusal is always recorded, a permission if `record` is
        set."""
        if not record and self.check(token, Permission.PUBLISH, Kind.STREAM, name, owner):
            return self._sender(token, self.stream(token, name, owner))
        about = [named(Kind.STREAM, name, owner)]

        def ask(work: Transaction, session: r.Session) -> r.Object:
            request = self._request(session, work)
            thing = self._catalog.find(request.principal, Kind.STREAM, name, owner)
            about[:] = [shown(thing)]
            request.need(Permission.PUBLISH, thing)
            work.events.append(
                session_event(session, "PUBLISH", shown(thing), granted=True, reason="; ".join(request.reasons))
            )
            return thing

        return self._sender(token, self._asked(token, "PUBLISH", about, ask))

    def published(self) -> frozenset[str]:
        """All streams that take published tuples, by their names as sources."""
        with self._lock:
            self._refresh()
            streams = self._state.objects.peek("kind", Kind.STREAM.value)
            known = [(x, x.definition) for x in streams if isinstance(x.definition, StreamDefinition)]
            return frozenset(source_name(x) for x, d in known if d.input is not None and d.input.format == PUBLISH)

    def _sender(self, token: str, stream: r.Object) -> PublishingSession:
        with self._lock:
            session = self._sessions.find(token)
            user = self._state.users.get(session.user)
            level, rules = self._authorizer.level(session.level), self._authorizer.rules([stream])
            return PublishingSession(session.user, session.id, level, user.keys if user else (), stream, rules)

    def record_refusal(self, token: str, action: str, about: str, reason: str) -> None:
        """Records that something a session sent was refused, for a reason that is not one of its rights."""
        with self._lock:
            self._refresh()
            session = self._sessions.find(token)
            self._record(session, session_event(session, action, about, reason=reason))

    def has_subscriptions(self) -> bool:
        """Whether anybody has subscribed to anything."""
        with self._lock:
            self._refresh()
            return bool(self._state.subscriptions)

    def snapshot(self) -> CatalogSnapshot:
        """The catalog snapshot of this moment."""
        with self._lock:
            self._refresh()
            return self._snapshots.now()

    @contextmanager
    def open(self) -> Iterator[CatalogSnapshot]:
        """The catalog snapshot of this moment, and no right changes until the context ends, or `verify` fails: for
        publishing results. Inside it nothing outside this process may be waited for, because every change of rights
        waits."""
        with self._lock, self._store.held(self._state):
            self._prepare()
            yield self._snapshots.now()

    def verify(self) -> None:
        """Raises LeaseLost unless the snapshot that `open` gave still holds."""
        self._store.verify()

    @property
    def snapshots(self) -> SnapshotBuilder:
        return self._snapshots

    @cached_property
    def _snapshots(self) -> SnapshotBuilder:
        from headgate.service.snapshots import SnapshotBuilder  # requests without an engine start without its libraries

        return SnapshotBuilder(self._state, self._authorizer, self._running, self._subscriptions)

    # Audit ----------------------------------------------------------------------------------------------------------

    def audit_head(self) -> Head:
        return self._store.audit_head()

    def verify_audit(self, expect: str = "") -> list[str]:
        """The faults of the audit trail; empty if there are none."""
        with self._store.audit_trail() as (records, head):
            faults = verify(self._seal, records, head, expect)
        return faults or ([] if head.count else ["the trail is empty: every store begins with a record"])
