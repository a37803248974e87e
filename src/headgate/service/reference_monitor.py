"""The reference monitor: the rights in memory, and everything that decides about requests.

A request runs in one transaction: it sees the latest rights, changes everything it names or nothing, and writes its
audit records with its changes. A refused request changes nothing and leaves a record of the refusal.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar

from headgate.access import rows as r
from headgate.access.audit import Event, Seal
from headgate.access.authorizer import Authorizer, Principal
from headgate.access.catalog import Catalog
from headgate.access.duties import Duties
from headgate.access.events import session_event
from headgate.access.passwords import Passwords
from headgate.access.policies import Policies
from headgate.access.request import Request
from headgate.access.sessions import Sessions
from headgate.access.state import State
from headgate.access.store import Store, Transaction
from headgate.access.subscriptions import Subscriptions
from headgate.clock import Clock
from headgate.errors import HeadgateError, StoreError

if TYPE_CHECKING:
    from headgate.access.running import Running
    from headgate.plan.analysis import LiveEngine
    from headgate.service.snapshots import SnapshotBuilder

T = TypeVar("T")


class ReferenceMonitor:
    """`lock` lets one request at a time use it; `engine` runs queries in this process."""

    def __init__(self, url: str, seal: Seal, clock: Clock, passwords: Passwords) -> None:
        self.clock = clock
        self.passwords = passwords
        self.store = Store(url, seal, clock)
        self.state = State()
        self.lock = threading.RLock()
        self.engine: LiveEngine | None = None
        self.policies = Policies(self.state, clock)
        self.authorizer = Authorizer(self.state, self.policies)
        self.catalog = Catalog(self.state, self.authorizer)
        self.duties = Duties(self.state, self.authorizer)
        self.sessions = Sessions(self.state, self.authorizer, self.duties, passwords, clock)
        self.subscriptions = Subscriptions(self.state, self.authorizer, self.duties)

    @cached_property
    def running(self) -> Running:
        """The plans of running queries. A process that never asks for one, as most commands, plans nothing."""
        from headgate.access.running import Running

        return Running(self.state)

    @cached_property
    def snapshots(self) -> SnapshotBuilder:
        from headgate.service.snapshots import SnapshotBuilder  # requests without an engine start without its libraries

        return SnapshotBuilder(self.state, self.authorizer, self.running, self.subscriptions)

    # Rights of this moment --------------------------------------------------------------------------------------------

    def refresh(self) -> None:
        self.store.refresh(self.state)
        self.prepare()

    def prepare(self) -> None:
        """Recomputes everything that depends on the changes now, at the cost of the request that made them."""
        self.policies.catch_up()
        self.authorizer.prepare()
        if "running" in vars(self):
            self.running.catch_up()

    def principal(self, token: str) -> Principal:
        """The user, roles and level of this session at this moment."""
        with self.lock:
            self.refresh()
            return self.authorizer.principal(self.sessions.find(token))

    # Requests ---------------------------------------------------------------------------------------------------------

    @contextmanager
    def transaction(self) -> Iterator[Transaction]:
        before = self.state.changed["objects"]
        try:
            with self.store.transaction(self.state) as work:
                yield work
        finally:
            if self.state.changed["objects"] != before:
                self.running.catch_up()  # later requests must not take longer for queries that they may not see
            self.prepare()

    def request(self, session: r.Session, work: Transaction) -> Request:
        return Request(
            self.state,
            self.authorizer,
            self.catalog,
            self.duties,
            self.sessions,
            self.subscriptions,
            self.passwords,
            lambda: self.running,
            self.policies,
            work,
            session,
            self.clock.now(),
            self.engine,
        )

    def act(self, token: str, action: str, about: list[str], act: Callable[[Transaction, r.Session], T]) -> T:
        """Runs an action for a session, in one transaction. If it is refused, records the refusal, with the object it
        was about as far as that was known."""
        with self.lock:
            session = None
            try:
                with self.transaction() as work:
                    session = self.sessions.find(token)
                    return act(work, session)
            except StoreError:
                raise
            except HeadgateError as error:
                self.record(session, session_event(session, action, about[0], reason=error.message))
                raise

    def record(self, session: r.Session | None, *events: Event) -> None:
        """Records refusals. A refused request is a request too, so the session is not idle."""
        with self.transaction() as work:
            work.events.extend(events)
            if session is not None:
                self.sessions.touch(session)
