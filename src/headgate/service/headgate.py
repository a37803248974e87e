"""Headgate, the facade: every interface (command line, server, library) calls it, and every answer is on the audit
trail. The reference monitor decides."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from headgate.access import bootstrap
from headgate.access import rows as r
from headgate.access.audit import Event, Head, Seal, load_key, verify
from headgate.access.authorizer import Decision, Principal
from headgate.access.evidence import Evidence
from headgate.access.explanations import Explanation
from headgate.access.passwords import Passwords
from headgate.access.permissions import Kind, Permission
from headgate.access.request import Result
from headgate.clock import Clock, SystemClock
from headgate.cql.names import Target
from headgate.errors import StoreError
from headgate.labels import LEAST, Clearance, Level
from headgate.service.access_decisions import AccessDecisions, Streams
from headgate.service.logins import Logins
from headgate.service.publishers import Publishers, PublishingSession
from headgate.service.reference_monitor import ReferenceMonitor

if TYPE_CHECKING:
    from headgate.model.snapshot import CatalogSnapshot
    from headgate.plan.analysis import LiveEngine
    from headgate.service.snapshots import SnapshotBuilder

__all__ = ["Headgate", "PublishingSession", "ResultReader"]


@dataclass(frozen=True)
class ResultReader:
    """Who reads results over a connection: the user, level and roles of its session at this moment."""

    user: str
    level: str
    roles: frozenset[str]


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
        self._seal = Seal(audit_key)
        self.monitor = ReferenceMonitor(url, self._seal, clock or SystemClock(), passwords or Passwords())
        self._logins = Logins(self.monitor)
        self._decisions = AccessDecisions(self.monitor)
        self._publishers = Publishers(self.monitor)
        try:
            self.monitor.store.migrate(create=create)
        except BaseException:
            self.close()
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
        self.monitor.store.close()

    @property
    def engine(self) -> LiveEngine | None:
        """The engine that runs queries in this process."""
        return self.monitor.engine

    @engine.setter
    def engine(self, engine: LiveEngine | None) -> None:
        self.monitor.engine = engine

    # Sessions ---------------------------------------------------------------------------------------------------------

    def initialise(self, admin: str, password: str) -> None:
        """Fills an empty store and creates its first administrator."""
        with self.monitor.lock, self.monitor.transaction() as work:
            bootstrap.fill(self.monitor.state, work, self.monitor.passwords, admin, password)
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
        return self._logins.login(user, password, roles, level, source)

    def login_certified(
        self, user: str, *, roles: frozenset[str] | None = None, level: Level | None = None, proof: str
    ) -> str:
        """A login of a user whom the caller has recognised by itself; `proof` says how, for the audit trail. Wrong
        passwords of others do not delay it, and a locked user is refused."""
        return self._logins.login_certified(user, roles, level, proof)

    def logout(self, token: str) -> None:
        self._logins.logout(token)

    def use(self, token: str) -> None:
        """Marks a session that fetches its subscriptions' results as not idle. No audit record: nothing is requested
        that was not requested before."""
        self._logins.use(token)

    def use_all(self, tokens: Iterable[str]) -> set[str]:
        """As `use`, for many sessions at once; returns the tokens whose session has ended."""
        return self._logins.use_all(tokens)

    def principal(self, token: str) -> Principal:
        """The user, roles and level of this session at this moment."""
        return self.monitor.principal(token)

    def chosen_roles(self, token: str) -> frozenset[str]:
        """The roles that a session was opened with or has set, and those they inherit, whether currently held or
        not."""
        with self.monitor.lock:
            self.monitor.refresh()
            return self.monitor.authorizer.effective(frozenset(self.monitor.sessions.find(token).roles))

    def assigned_roles(self, user: str) -> frozenset[str]:
        with self.monitor.lock:
            self.monitor.refresh()
            return self.monitor.authorizer.assigned(user)

    # Requests ---------------------------------------------------------------------------------------------------------

    def execute(self, token: str, script: str) -> list[Result]:
        """Runs a script, as a whole or not at all. A caller without a session is refused before the script is
        parsed."""
        from headgate.service.scripts import Scripts  # with the parser and all statements, which a login does without

        return Scripts(self.monitor).execute(token, script)

    def check(self, token: str, permission: Permission, kind: Kind, name: str, owner: str | None = None) -> Decision:
        """One decision on the current rights; an object that the session cannot see is denied like one that does not
        exist."""
        return self._decisions.check(token, permission, kind, name, owner)

    def dominates_all(self, token: str) -> bool:
        """Whether a session's level stands above all others, with all compartments."""
        return self._decisions.dominates_all(token)

    def streams(self, token: str, names: list[str]) -> Streams:
        """The streams that a session means by these names, with the rules for decisions about their tuples."""
        return self._decisions.streams(token, names)

    def clearance(self, token: str, streams: Streams) -> Clearance:
        """The clearance that a session has at this moment for the labels of these streams."""
        return self._decisions.clearance(token, streams)

    def why(self, token: str, user: str, permission: Permission, target: Target) -> Explanation:
        """Why a user, with all its roles and at its clearance, is granted or denied a permission."""
        return self._decisions.why(token, user, permission, target)

    def proof(self, token: str, name: str) -> Evidence:
        """The proof that an audit record names, with every signature checked again: for auditors."""
        return self._decisions.proof(token, name)

    # Readers and senders ----------------------------------------------------------------------------------------------

    def reader(self, token: str) -> ResultReader:
        """Who reads with this session. The store is not asked: a caller that holds the catalog `open` has its newest
        state."""
        with self.monitor.lock:
            session = self.monitor.sessions.find(token)
            roles = self.monitor.authorizer.effective(frozenset(session.roles))
            return ResultReader(session.user, session.level, roles)

    def stream(self, token: str, name: str, owner: str | None = None) -> r.Object:
        """The stream that a session means by a name."""
        with self.monitor.lock:
            return self.monitor.catalog.find(self.principal(token), Kind.STREAM, name, owner)

    def sender(self, token: str, name: str, owner: str | None = None, *, record: bool = True) -> PublishingSession:
        """The right to publish to a stream at this moment; a refusal is always recorded, a permission if `record` is
        set."""
        if not record and self.check(token, Permission.PUBLISH, Kind.STREAM, name, owner):
            return self._publishers.session(token, self.stream(token, name, owner))
        return self._publishers.sender(token, name, owner)

    def published(self) -> frozenset[str]:
        """All streams that take published tuples, by their names as sources."""
        return self._publishers.streams()

    def record_refusal(self, token: str, action: str, about: str, reason: str) -> None:
        """Records that something a session sent was refused, for a reason that is not one of its rights."""
        self._publishers.record_refusal(token, action, about, reason)

    # Catalog snapshots ------------------------------------------------------------------------------------------------

    def has_subscriptions(self) -> bool:
        """Whether anybody has subscribed to anything."""
        with self.monitor.lock:
            self.monitor.refresh()
            return bool(self.monitor.state.subscriptions)

    def snapshot(self) -> CatalogSnapshot:
        """The catalog snapshot of this moment."""
        with self.monitor.lock:
            self.monitor.refresh()
            return self.monitor.snapshots.now()

    @contextmanager
    def open(self) -> Iterator[CatalogSnapshot]:
        """The catalog snapshot of this moment, and no right changes until the context ends, or `verify` fails: for
        publishing results. Inside it nothing outside this process may be waited for, because every change of rights
        waits."""
        with self.monitor.lock, self.monitor.store.held(self.monitor.state):
            self.monitor.prepare()
            yield self.monitor.snapshots.now()

    def verify(self) -> None:
        """Raises LeaseLost unless the snapshot that `open` gave still holds."""
        self.monitor.store.verify()

    @property
    def snapshots(self) -> SnapshotBuilder:
        return self.monitor.snapshots

    # Audit ------------------------------------------------------------------------------------------------------------

    def audit_head(self) -> Head:
        return self.monitor.store.audit_head()

    def verify_audit(self, expect: str = "") -> list[str]:
        """The faults of the audit trail; empty if there are none."""
        with self.monitor.store.audit_trail() as (records, head):
            faults = verify(self._seal, records, head, expect)
        return faults or ([] if head.count else ["the trail is empty: every store begins with a record"])
