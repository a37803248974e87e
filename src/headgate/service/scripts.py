"""Scripts: statements of one session that are executed as a whole or not at all."""

from __future__ import annotations

from headgate.access import rows as r
from headgate.access.administrators import has_administrator
from headgate.access.audit import Event
from headgate.access.consequences import consequences
from headgate.access.events import session_event, undone
from headgate.access.request import Result
from headgate.access.statement_events import statement_events
from headgate.access.statements import HANDLERS
from headgate.access.store import Transaction
from headgate.cql.parser import parse_script
from headgate.cql.statements import Statement
from headgate.errors import AuthenticationFailed, Conflict, HeadgateError, StoreError, TextError
from headgate.service.reference_monitor import ReferenceMonitor

MOST_ROWS = 10_000
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


class Scripts:
    def __init__(self, monitor: ReferenceMonitor) -> None:
        self._monitor = monitor

    def execute(self, token: str, script: str) -> list[Result]:
        """Runs a script. A caller without a session is refused before the script is parsed."""
        monitor = self._monitor
        session = self._familiar(token) or self._recognised(token)
        try:
            statements = parse_script(script)
        except TextError as error:
            session = self._recognised(token)
            with monitor.lock:
                where = f"line {error.position.line}, column {error.position.column}" if error.position else ""
                monitor.record(session, session_event(session, "EXECUTE", "script", reason=f"not understood, {where}"))
            raise
        with monitor.lock:
            tried: list[Event] = []
            try:
                with monitor.transaction() as work:
                    session = monitor.sessions.touch(monitor.sessions.current(session.token_hash))
                    results = self._run(session, statements, work, tried)
            except StoreError:
                raise
            except HeadgateError as error:
                failed = [undone(event) if event.granted else event for event in tried]
                reason = session_event(session, "EXECUTE", "script", reason=error.message)
                monitor.record(session, *(failed or [reason]))
                raise
        return [result.finished() for result in results]

    def _familiar(self, token: str) -> r.Session | None:
        """The session, if it was valid when the store was last read; a caller that acts on it must check again."""
        with self._monitor.lock:
            try:
                return self._monitor.sessions.find(token)
            except AuthenticationFailed:
                return None

    def _recognised(self, token: str) -> r.Session:
        with self._monitor.lock:
            self._monitor.refresh()
            try:
                return self._monitor.sessions.find(token)
            except AuthenticationFailed as error:
                self._monitor.record(None, session_event(None, "EXECUTE", "script", reason=error.message))
                raise

    def _run(
        self, session: r.Session, statements: tuple[Statement, ...], work: Transaction, tried: list[Event]
    ) -> list[Result]:
        """`tried` collects what was done and what failed, to be recorded if all of it is undone."""
        request, policies = self._monitor.request(session, work), self._monitor.policies
        before, results, rows = self._rights_version(), [], 0
        given = policies.version, policies.bases()
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
            if policies.version != given[0]:
                current = policies.version, policies.bases()
                done += consequences(request, given[1], current[1])
                given = current
            work.events += done
            tried += done
        if not statements:
            work.events.append(session_event(session, "EXECUTE", "", granted=True, reason="an empty script"))
        return results

    def _rights_version(self) -> int:
        return sum(map(self._monitor.state.changed.__getitem__, _RIGHTS))

    def _settle(self, work: Transaction) -> None:
        """INVARIANT, after every script: somebody can administer, and no session exceeds its user's rights."""
        monitor = self._monitor
        if not has_administrator(monitor.state, monitor.authorizer, monitor.duties):
            raise Conflict("nobody would be left who may change the system")
        for session in monitor.sessions.settle():
            work.events.append(session_event(session, "END SESSION", "session", granted=True, reason="rights changed"))
