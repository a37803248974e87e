"""The store: SQLite by default, PostgreSQL by URL. One transaction holds a script's changes and their audit records.

Writers take turns (SQLite's write lock, PostgreSQL's lock on the row `head`), first catch up with what others
committed, and only then decide. INVARIANT: every decision is made on the latest rights, in whichever process it is
made.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

from sqlalchemy import (
    Connection,
    Engine,
    and_,
    delete,
    func,
    insert,
    inspect,
    or_,
    select,
    text,
    update,
)
from sqlalchemy.exc import SQLAlchemyError

from headgate.access import database, leases
from headgate.access import tables as t
from headgate.access.audit import START, AuditRecord, Event, Head, Seal
from headgate.access.state import Change, State
from headgate.clock import Clock
from headgate.errors import LeaseLost, StoreError

T = TypeVar("T")
NEWEST = "0008"
"""The newest migration."""
_KEPT_VERSIONS = 10_000
_NEW_CHANGE = insert(t.change_log)  # made once, so that SQLAlchemy finds its compiled form fast
_HEAD = t.head.c.one == 1
_MIGRATION_LOCK = 0x48454144
_TRIES = 3
"""How often a read is tried, each time with a new connection, if the server ends connections."""
_HEADLESS = "the store has lost its head: it was damaged, or somebody removed it"


class Transaction:
    """The work of a writer: audit events to append, numbers for new objects; the state itself logs what changed."""

    def __init__(self, connection: Connection, next_object: int, audit_count: int) -> None:
        self._connection = connection
        self._audit_count = audit_count
        self.events: list[Event] = []
        self.next_object = next_object

    def new_object_id(self) -> int:
        self.next_object += 1
        return self.next_object - 1

    def audit_count(self) -> int:
        """The number of audit records, including those of this transaction."""
        return self._audit_count + len(self.events)

    def keep_proof(self, digest: str, content: str) -> None:
        """Keeps a text that audit records name by its digest; nothing if it is kept already."""
        known = self._connection.execute(select(t.proofs.c.digest).where(t.proofs.c.digest == digest)).scalar()
        if known is None:
            self._connection.execute(insert(t.proofs).values(digest=digest, text=content))

    def proof(self, prefix: str) -> list[tuple[str, str]]:
        """The kept texts whose digest begins like this, at most two."""
        p = t.proofs.c
        found = self._connection.execute(select(p.digest, p.text).where(p.digest.startswith(prefix)).limit(2))
        return [(row[0], row[1]) for row in found]

    def audit_levels(self) -> list[str]:
        return list(self._connection.execute(select(t.audit.c.level).distinct()).scalars())

    def audit_records(
        self,
        newest: int,
        levels: list[str],
        user: str | None,
        objects: list[str],
        since: int,
        *,
        by: str | None = None,
        about: list[str] | None = None,
    ) -> list[AuditRecord]:
        """The newest records of these levels, oldest first: all of them, or those of a user and about its objects. Of
        these, only what was done `by` a user, or is `about` one of some objects."""
        a = t.audit.c
        query = select(t.audit).where(a.level.in_(levels), a.number > since)
        if user is not None:
            query = query.where(or_(a.user == user, and_(a.object.in_(objects), t.BY_OTHERS)))
        if by is not None:
            query = query.where(a.user == by)
        if about is not None:
            query = query.where(a.object.in_(about))
        query = query.order_by(a.number.desc()).limit(newest)
        return [_record(dict(row)) for row in self._connection.execute(query).mappings()][::-1]


class Store:
    def __init__(self, url: str, seal: Seal, clock: Clock) -> None:
        self._engine = database.open_engine(url)
        self._server = self._engine.dialect.name == "postgresql"
        self._file = database.StoreFile.of(url)
        self._lease: leases.Lease | None = None
        self._seal = seal
        self._clock = clock
        self._lock = threading.RLock()
        self._version = -1
        self._reader: Any = None
        self._new_record, self._new_head = _written_by_all(self._engine)
        dbapi = self._engine.dialect.loaded_dbapi
        self._errors: tuple[type[Exception], ...] = (SQLAlchemyError, dbapi.Error)

    # Opening ----------------------------------------------------------------------------------------------------------

    def migrate(self, *, create: bool) -> None:
        """Migrates the tables to this version, and creates them if `create` is set.

        Only a store that had no tables gets a head: one that lost its head must not get a new one.
        """
        with self._reachable(), self._engine.begin() as connection:
            if self._server:  # several processes may open a new store at the same time
                connection.execute(text(f"SELECT pg_advisory_xact_lock({_MIGRATION_LOCK})"))
            new = not inspect(connection).has_table(t.head.name)
            if new and not create:
                raise StoreError("there is no Headgate in this store", hint="run `headgate init` first")
            if new or not _is_newest(connection):
                _migrate(connection)
            if new:
                seal = self._seal.head(0, START).seal
                row = {"one": 1, "version": 0, "next_object": 1, "audit_count": 0, "audit_mac": START}
                connection.execute(insert(t.head).values(audit_seal=seal, **row))

    def close(self) -> None:
        self._close_reader()
        self._engine.dispose()

    def _close_reader(self) -> None:
        if self._reader is not None:
            self._reader.invalidate()
            self._reader = None

    # Reading --------------------------------------------------------------------------------------------------------

    def refresh(self, state: State) -> None:
        """Brings the state to what is committed now; nearly free when nothing changed."""
        with self._lock, self._reachable():
            self._tried(lambda: self._refresh(state))

    def _refresh(self, state: State) -> None:
        self._file.check()
        if self._read_version() != self._version:
            with self._snapshot() as connection:
                self._catch_up(connection, state)

    def _tried(self, act: Callable[[], T]) -> T:
        """Repeats an action that changes no rights, if the server has ended the connection."""
        for left in reversed(range(_TRIES)):
            try:
                return act()
            except self._errors:
                self._close_reader()
                if not left:
                    raise
        raise AssertionError("there is a last try")

    def _read_version(self) -> int:
        found = self._asked("SELECT version FROM head")
        if found is None:
            raise StoreError(_HEADLESS)
        return int(found[0])

    def _asked(self, statement: str, *values: str) -> Any:
        """Directly through the driver, on a connection that is kept open: this runs before every check."""
        if self._reader is None:
            self._reader = self._engine.raw_connection()
            if self._server:
                self._reader.driver_connection.autocommit = True
                self._reader.driver_connection.execute("SET synchronous_commit = off")  # for releasing leases
        cursor = self._reader.driver_connection.cursor()
        try:
            cursor.execute(statement, values)
            return cursor.fetchone() if cursor.description else None
        finally:
            cursor.close()

    @contextmanager
    def _snapshot(self) -> Iterator[Connection]:
        """A consistent snapshot of the store, which keeps no writer waiting."""
        options: dict[str, Any] = {"headgate_reading": True}
        if self._server:
            options = {"isolation_level": "REPEATABLE READ"}
        with self._engine.connect().execution_options(**options) as connection, connection.begin():
            yield connection

    def _catch_up(self, connection: Connection, state: State) -> None:
        version = connection.execute(select(t.head.c.version)).scalar()
        if version is None:
            raise StoreError(_HEADLESS)
        if version == self._version:
            return
        log = t.change_log
        oldest = connection.execute(select(func.min(log.c.version))).scalar()
        put_back = version < self._version
        if self._version < 0 or put_back or oldest is None or oldest > self._version + 1:
            self._load(connection, state)
        else:
            query = select(log).where(log.c.version > self._version).order_by(log.c.version, log.c.item)
            for change in connection.execute(query).mappings():
                kind = t.ROW_TYPES[change["table"]]
                row = t.from_columns(kind, json.loads(change["row"])) if change["row"] else None
                state.apply(change["table"], tuple(json.loads(change["key"])), row)
        self._version = version

    def _load(self, connection: Connection, state: State) -> None:
        state.clear()
        for name, kind in t.ROW_TYPES.items():
            for columns in connection.execute(select(t.metadata.tables[name])).mappings():
                row = t.from_columns(kind, dict(columns))
                state.apply(name, row.key, row)

    # Writing --------------------------------------------------------------------------------------------------------

    @contextmanager
    def transaction(self, state: State) -> Iterator[Transaction]:
        """Commits everything, changes and audit records, or nothing."""
        with self._lock, self._reachable():
            try:
                self._file.check()
                with self._engine.begin() as connection:
                    found = connection.execute(select(t.head).where(_HEAD).with_for_update()).mappings().first()
                    if found is None:
                        raise StoreError(_HEADLESS)
                    self._file.check()
                    self._catch_up(connection, state)
                    work = Transaction(connection, found["next_object"], found["audit_count"])
                    yield work
                    version = self._write(connection, state, work, dict(found))
            except BaseException as error:
                state.rollback()
                if isinstance(error, self._errors):
                    self._version = -1  # unknown whether it was committed: read everything again
                raise
            state.commit()
            self._version = version

    def _write(self, connection: Connection, state: State, work: Transaction, found: dict[str, Any]) -> int:
        version = int(found["version"])
        changes = state.changes()
        if changes:
            version += 1
            if self._server:
                leases.wait(connection)
            self._write_changes(connection, changes)
            self._write_log(connection, version, changes)
        head, records = self._sealed(Head(found["audit_count"], found["audit_mac"], found["audit_seal"]), work.events)
        cursor = connection.connection.cursor()  # the driver's own cursor, for speed: every request passes here
        if records:
            cursor.executemany(self._new_record, records)
        cursor.execute(self._new_head, (version, work.next_object, head.count, head.mac, head.seal))
        cursor.close()
        return version

    @staticmethod
    def _write_changes(connection: Connection, changes: list[Change]) -> None:
        """Deletes first: a name may be used again in the same script."""
        inserts: dict[str, list[dict[str, Any]]] = {}
        for name, key, old, new in sorted(changes, key=lambda change: change[3] is not None):
            table = t.metadata.tables[name]
            where = [table.c[field] == value for field, value in zip(t.ROW_TYPES[name].key_fields, key, strict=True)]
            if new is None:
                connection.execute(delete(table).where(*where))
            elif old is None:
                inserts.setdefault(name, []).append(t.to_columns(new))
            else:
                connection.execute(update(table).where(*where).values(t.to_columns(new)))
        for name, rows in inserts.items():
            connection.execute(insert(t.metadata.tables[name]), rows)

    @staticmethod
    def _write_log(connection: Connection, version: int, changes: list[Change]) -> None:
        rows = [
            {
                "version": version,
                "item": item,
                "table": name,
                "key": json.dumps(key),
                "row": json.dumps(t.to_columns(new)) if new else None,
            }
            for item, (name, key, _, new) in enumerate(changes)
        ]
        connection.execute(_NEW_CHANGE, rows)
        if version % 1000 == 0:
            connection.execute(delete(t.change_log).where(t.change_log.c.version < version - _KEPT_VERSIONS))

    @contextmanager
    def held(self, state: State) -> Iterator[None]:
        """Brings the state up to date, and nobody changes anything until the context ends, or until `verify` fails. A
        file's lock is this process's own, and nobody else can end it; a server may end the lock it holds for us, hence
        the lease."""
        if not self._server:
            with self.locked() as connection:
                self._catch_up(connection, state)
                yield
            return
        with self._lock:
            with self._reachable():
                self._lease = self._tried(lambda: self._leased(state))
            try:
                yield
            finally:
                lease, self._lease = self._lease, None
                with suppress(*self._errors):  # if this fails, the lease expires
                    self._tried(lambda: self._asked("DELETE FROM leases WHERE holder = %s", lease.holder))

    def _leased(self, state: State) -> leases.Lease:
        with self._engine.begin() as connection:
            connection.execute(select(t.head).where(_HEAD).with_for_update())
            self._catch_up(connection, state)
            return leases.take(connection)

    def verify(self) -> None:
        """Raises LeaseLost if anybody can have changed anything since `held` began."""
        self._file.check()
        if not self._server:
            return
        lease = self._lease
        if lease is None:
            raise LeaseLost("nobody holds a lease on rights")
        lease.check_time()
        if lease.fresh():
            return
        try:
            found = self._tried(lambda: self._asked("SELECT 1 FROM leases WHERE holder = %s", lease.holder))
        except self._errors:
            found = None
        if found is None:
            raise LeaseLost("the lease on rights is gone")
        lease.check_time()
        lease.confirm()

    # Audit ----------------------------------------------------------------------------------------------------------

    def _sealed(self, head: Head, events: list[Event]) -> tuple[Head, list[tuple[Any, ...]]]:
        """The trail's new head, and its new records as rows of the store."""
        if not events:
            return head, []
        count, mac, now = head.count, head.mac, self._clock.now()
        rows = []
        for given in events:
            clean = given.clean()
            count += 1
            mac = self._seal.record(mac, count, now, clean)
            rows.append((count, now, *clean, mac))
        return self._seal.head(count, mac), rows

    def audit_head(self) -> Head:
        with self._lock, self._reachable(), self._snapshot() as connection:
            return _head(connection)

    @contextmanager
    def audit_trail(self) -> Iterator[tuple[Iterator[AuditRecord], Head]]:
        """The whole trail, read in pieces, and the head it had at that moment."""
        with self._reachable(), self._snapshot() as connection:
            head = _head(connection)
            query = select(t.audit).order_by(t.audit.c.number)
            rows = connection.execution_options(yield_per=1000).execute(query).mappings()
            yield (_record(dict(row)) for row in rows), head

    @contextmanager
    def locked(self) -> Iterator[Connection]:
        """A write transaction on the bare tables."""
        with self._lock, self._reachable(), self._engine.begin() as connection:
            connection.execute(select(t.head).where(_HEAD).with_for_update())
            self._file.check()
            yield connection

    @contextmanager
    def _reachable(self) -> Iterator[None]:
        """Turns a driver's error into ours, without its text, which may hold values."""
        try:
            yield
        except self._errors as error:
            raise database.unreachable(self._engine.url, error) from None


def _is_newest(connection: Connection) -> bool:
    if not inspect(connection).has_table("alembic_version"):
        return False
    return connection.execute(text("SELECT version_num FROM alembic_version")).scalar() == NEWEST


def _migrate(connection: Connection) -> None:
    from alembic import command  # a store that is up to date is opened without it, in half the time
    from alembic.config import Config
    from alembic.util import CommandError

    config = Config()
    config.set_main_option("script_location", "headgate.access:migrations")
    config.attributes["connection"] = connection
    try:
        command.upgrade(config, "head")
    except CommandError:
        raise StoreError("this store was made by another version of Headgate", hint="use that one") from None


def _head(connection: Connection) -> Head:
    row = connection.execute(select(t.head)).mappings().first()
    if row is None:
        raise StoreError(_HEADLESS)
    return Head(row["audit_count"], row["audit_mac"], row["audit_seal"])


def _record(row: dict[str, Any]) -> AuditRecord:
    number, time, mac = row.pop("number"), row.pop("time"), row.pop("mac")
    if row["granted"] in (0, 1):
        row["granted"] = bool(row["granted"])
    return AuditRecord(number, time, Event(**row), mac)


def _written_by_all(engine: Engine) -> tuple[str, str]:
    """The SQL that inserts an audit record and updates the head, in the driver's parameter style: every request uses
    both."""
    mark = "?" if engine.dialect.paramstyle == "qmark" else "%s"
    names = [f'"{name}"' for name in ("number", "time", *Event._fields, "mac")]
    record = f"INSERT INTO audit ({', '.join(names)}) VALUES ({', '.join([mark] * len(names))})"  # noqa: S608
    head = ", ".join(
        f"{name} = {mark}" for name in ("version", "next_object", "audit_count", "audit_mac", "audit_seal")
    )
    return record, f"UPDATE head SET {head} WHERE one = 1"  # noqa: S608
