"""Attacks on the moment in which results go out, on a server that ends connections as it likes: once REVOKE has
returned, nothing that needed the right goes out, whatever became of the connection of whoever was letting it out.
"""

from __future__ import annotations

import datetime as dt
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from random import Random
from typing import TypeVar

import pyarrow as pa
import pytest
from conftest import KEY, PASSWORD, cheap_passwords
from sqlalchemy import Engine, NullPool, create_engine, text

from headgate.access import leases
from headgate.clock import SystemClock
from headgate.egress.parquet import ParquetSink
from headgate.egress.sinks import FileSink
from headgate.errors import Conflict, LeaseLost, NotFound, StoreError
from headgate.execution.executors import LocalExecutor
from headgate.expressions.duck import evaluate
from headgate.recovery.pipeline import Pipeline
from headgate.service import Headgate
from headgate.service.folders import Folders
from headgate.testing.postgres import fresh_database

T = TypeVar("T")
SETUP = f"""
CREATE ROLE nurse; CREATE USER ned PASSWORD '{PASSWORD}'; GRANT ROLE nurse TO USER ned;
CREATE STREAM hr (at TIMESTAMP, pat INT, note STRING, policy STRING) EVENT TIME at ROLES FROM policy;
GRANT VIEW OBJECT, READ TUPLE, SUBSCRIBE ON STREAM hr TO nurse;
"""
TAKEN, GIVEN = "REVOKE READ TUPLE ON STREAM hr FROM nurse", "GRANT READ TUPLE ON STREAM hr TO nurse"
ROWS = 20_000
TERMINATE = """
SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()
"""


def again(act: Callable[[], T]) -> T:
    """A server that ends transactions ends those of whoever is slow; on a machine with much to do that is anybody."""
    for _ in range(50):
        with suppress(StoreError):
            return act()
    return act()


class Server:
    """A store on PostgreSQL, whoever revokes, and whoever ends connections."""

    def __init__(self, url: str, *settings: str) -> None:
        self.url = url
        self.outsider: Engine = create_engine(url, poolclass=NullPool, isolation_level="AUTOCOMMIT")
        self.revoker = self.opened()
        self.revoker.initialise("joe", PASSWORD)
        self.joe = self.revoker.login("joe", PASSWORD)
        self.revoker.execute(self.joe, SETUP)
        self.revoker.execute(self.revoker.login("ned", PASSWORD), "SUBSCRIBE TO joe.hr")
        for setting in settings:
            self.sql(f"ALTER DATABASE {url.rpartition('/')[2]} SET {setting}")

    def opened(self) -> Headgate:
        return again(lambda: Headgate(self.url, KEY, passwords=cheap_passwords()))

    def take(self) -> None:
        """The server may end this as well: then whether it is revoked is not known, and it is asked for once more."""
        with suppress(NotFound, Conflict):
            again(lambda: self.revoker.execute(self.joe, TAKEN))

    def give(self) -> None:
        again(lambda: self.revoker.execute(self.joe, GIVEN))

    def sql(self, statement: str) -> None:
        with self.outsider.connect() as connection:
            connection.execute(text(statement))

    def close(self) -> None:
        self.revoker.close()
        self.outsider.dispose()


@pytest.fixture(scope="module")
def server(postgres_url: str) -> Iterator[Server]:
    found = Server(fresh_database(postgres_url))
    yield found
    found.close()


@pytest.fixture(scope="module")
def impatient(postgres_url: str) -> Iterator[Server]:
    """It ends transactions that are idle for a moment."""
    found = Server(fresh_database(postgres_url), "idle_in_transaction_session_timeout = '80ms'")
    yield found
    found.close()


class Working:
    """An engine of its own on that store, with results in files."""

    def __init__(self, server: Server, folder: Path, kind: str) -> None:
        self.headgate = server.opened()
        self.out = folder / "out"
        make = {"jsonl": FileSink, "parquet": ParquetSink}[kind]
        self.pipeline = Pipeline(
            folder / "engine",
            self.headgate,
            lambda _, program, schema: LocalExecutor(program, schema, evaluate),
            [make(self.out, Folders(self.headgate))],
            SystemClock(),
        )
        self.error: BaseException | None = None
        self.begun = threading.Event()
        self.thread = threading.Thread(target=self._work)

    def _work(self) -> None:
        try:
            for number in range(1, 4):
                self.begun.set()
                self.pipeline.take("joe.hr", number, batch(number))
        except BaseException as error:
            self.error = error

    def size(self) -> int:
        """How many bytes of results lie where ned looks; that the subscription is suspended is no result."""
        files = [x for x in (self.out / "ned").rglob("*") if x.is_file()]
        notices = [x for file in files for x in file.read_bytes().splitlines(True) if x.startswith(b'{"suspended": ')]
        return sum(x.stat().st_size for x in files) - sum(map(len, notices))

    def close(self) -> None:
        self.thread.join(60)
        self.pipeline.close()
        self.headgate.close()


@contextmanager
def working(server: Server, folder: Path, kind: str = "jsonl") -> Iterator[Working]:
    """The first batch is out; others come."""
    engine = again(lambda: Working(server, folder, kind))
    try:
        engine.pipeline.take("joe.hr", 0, batch(0, rows=10))
        assert engine.size() > 0, engine.error
        engine.thread.start()
        yield engine
    finally:
        engine.close()


def batch(number: int, rows: int = ROWS) -> pa.Table:
    begin = dt.datetime(2024, 3, 1, tzinfo=dt.UTC) + dt.timedelta(seconds=number)
    return pa.table(
        {
            "at": pa.array([begin] * rows, pa.timestamp("us", "UTC")),
            "pat": pa.array(range(rows), pa.int32()),
            "note": pa.array(["x" * 100] * rows),
            "policy": pa.array(["nurse"] * rows),
        }
    )


def trial(server: Server, folder: Path, rng: Random, *, terminate: bool) -> str:
    """What went out after REVOKE had returned. The engine may give up if it loses the store, but not go on blindly."""
    kind = rng.choice(["jsonl", "jsonl", "parquet"])
    with working(server, folder, kind) as engine:
        engine.begun.wait(10)
        threading.Event().wait(rng.uniform(0.05, 0.6))
        if terminate:
            server.sql(TERMINATE)
        server.take()
        before = engine.size()
        engine.thread.join(60)
        after = engine.size()
        assert engine.error is None or isinstance(engine.error, StoreError), engine.error
    server.give()
    return f"{kind}: {after - before} bytes after REVOKE" if after != before else ""


def leaks(server: Server, folder: Path, seeds: range, *, terminate: bool) -> list[str]:
    found = [trial(server, folder / str(seed), Random(seed), terminate=terminate) for seed in seeds]
    return [x for x in found if x]


def test_nothing_goes_out_after_a_revocation_though_connections_are_terminated(server: Server, tmp_path: Path) -> None:
    assert leaks(server, tmp_path, range(6), terminate=True) == []


def test_nothing_goes_out_after_a_revocation_though_idle_transactions_are_ended(
    impatient: Server, tmp_path: Path
) -> None:
    assert leaks(impatient, tmp_path, range(4), terminate=False) == []


@pytest.mark.long
def test_nothing_goes_out_after_a_revocation_in_200_trials(server: Server, impatient: Server, tmp_path: Path) -> None:
    found = leaks(server, tmp_path / "terminated", range(1000, 1120), terminate=True)
    found += leaks(impatient, tmp_path / "idle", range(2000, 2040), terminate=False)
    found += leaks(impatient, tmp_path / "both", range(3000, 3040), terminate=True)
    assert found == []


# One lease at a time --------------------------------------------------------------------------------------------------


def revoked(server: Server) -> tuple[threading.Thread, threading.Event]:
    """Somebody else revokes, and then says so."""
    done = threading.Event()

    def revoke() -> None:
        server.revoker.execute(server.joe, TAKEN)
        done.set()

    thread = threading.Thread(target=revoke)
    thread.start()
    return thread, done


def waits(server: Server, done: threading.Event) -> None:
    """Until the revocation waits for leases: it holds the writers' lock, and has not returned."""
    with server.outsider.connect() as connection:
        while not done.is_set():
            found = connection.execute(text("SELECT 1 FROM pg_stat_activity WHERE query LIKE 'SELECT pg_sleep%'"))
            if found.first():
                return


def test_a_revocation_waits_for_what_goes_out_though_the_connection_is_ended(server: Server) -> None:
    engine = server.opened()
    with engine.open():
        server.sql(TERMINATE)
        thread, done = revoked(server)
        waits(server, done)
        assert not done.is_set()
        engine.verify()
    thread.join(60)
    assert done.is_set()
    server.revoker.execute(server.joe, GIVEN)
    engine.close()


def test_a_revocation_does_not_wait_for_a_stuck_engine_and_fences_it_off(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The holder, when it comes to itself, may not let anything out, whatever its own clock says."""
    monkeypatch.setattr(leases, "LASTS", 0.3)
    engine = server.opened()
    with engine.open() as before:
        engine.verify()
        thread, done = revoked(server)
        thread.join(60)
        assert done.is_set()
        monkeypatch.setattr(leases, "CONFIRMED", 0.0)
        with pytest.raises(LeaseLost):
            engine.verify()
    assert engine.snapshot() is not before
    server.revoker.execute(server.joe, GIVEN)
    engine.close()


def test_a_lease_that_is_used_for_too_long_is_lost(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = server.opened()
    with engine.open():
        engine.verify()
        monkeypatch.setattr(leases, "USED", 0.0)
        with pytest.raises(LeaseLost):
            engine.verify()
    with pytest.raises(LeaseLost):
        engine.verify()
    engine.close()


def test_a_process_that_dies_with_a_lease_holds_nobody_up_for_long(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leases, "LASTS", 0.3)
    engine = server.opened()
    with server.outsider.connect() as connection:
        engine.monitor.store._leased(engine.monitor.state)
        assert connection.execute(text("SELECT count(*) FROM leases")).scalar() == 1
        server.revoker.execute(server.joe, TAKEN)
        assert connection.execute(text("SELECT count(*) FROM leases")).scalar() == 0
    server.revoker.execute(server.joe, GIVEN)
    engine.close()


def test_questions_do_not_wait_for_what_goes_out(server: Server) -> None:
    engine = server.opened()
    with engine.open():
        assert server.revoker.execute(server.joe, "SHOW ROLES")[0].rows
        assert server.revoker.snapshot().subscribers
    engine.close()
