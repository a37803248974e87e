"""`kill -9` in the middle of a thousand changes: what was acknowledged is there, and nothing is there by half.

A subprocess makes changes of three statements each and acknowledges each after `execute` has returned. It is killed at
a random moment, or the PostgreSQL server under it is. Then the store must hold every acknowledged change wholly, at
most one more, that one wholly too, and an audit trail that tells the same.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import psycopg
import pytest
from conftest import System
from sqlalchemy import make_url

from headgate.errors import StoreError
from headgate.testing.postgres import PostgresServer, fresh_database

WRITER = Path(__file__).with_name("crash_writer.py")
CHANGES = 1_000
PATIENCE = 60.0


@contextmanager
def writing(url: str, prefix: str, first: int, last: int) -> Iterator[subprocess.Popen[str]]:
    """A writer, that is gone afterwards in any case."""
    command = [sys.executable, str(WRITER), url, prefix, str(first), str(last)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def _rest(process: subprocess.Popen[str]) -> tuple[str, str]:
    """What a process that ends has still written. `communicate` would leave out lines that were read ahead."""
    assert process.stdout is not None and process.stderr is not None
    found = process.stdout.read(), process.stderr.read()
    process.wait(PATIENCE)
    return found


@dataclass
class Rounds:
    """Rounds of writing and killing on one store; every round adds to what the ones before left."""

    system: System
    random: Random
    most: int
    total: Counter[str] = field(default_factory=Counter)

    def prepare(self) -> None:
        self.system.initialise()
        self.system.run("CREATE ROLE worker")

    def kill_a_writer(self, number: int) -> None:
        """Kills after some acknowledgments and a fraction of the time that one change takes."""
        with writing(self.system.url, f"r{number}", 0, CHANGES) as process:
            acknowledged = self._read_some(process)
            with suppress(subprocess.TimeoutExpired):
                process.wait(self.random.uniform(0.0, 0.006))
            process.send_signal(signal.SIGKILL)
            rest, said = _rest(process)
            assert process.returncode == -signal.SIGKILL, said
        acknowledged += [int(line) for line in rest.split("\n")[:-1]]
        self.judge(f"r{number}", acknowledged)

    def _read_some(self, process: subprocess.Popen[str]) -> list[int]:
        assert process.stdout is not None and process.stderr is not None
        acknowledged: list[int] = []
        for _ in range(self.random.randint(1, self.most)):
            line = process.stdout.readline()
            assert line, process.stderr.read()
            acknowledged.append(int(line))
        return acknowledged

    def judge(self, prefix: str, acknowledged: list[int]) -> None:
        """Opens the store anew, as after a restart, and looks at everything that this round wrote."""
        count = len(acknowledged)
        assert acknowledged == list(range(count))
        headgate = self.system.reopen()
        assert headgate.verify_audit() == []
        like = f"LIKE '{prefix}\\_%' ESCAPE '\\'"
        users = {name for (name,) in self.system.sql(f"SELECT name FROM users WHERE name {like}")}
        workers = {name for (name,) in self.system.sql(f"""SELECT "user" FROM memberships WHERE "user" {like}""")}
        streams = {name for (name,) in self.system.sql(f"SELECT name FROM objects WHERE name {like}")}
        assert users == workers == streams, "a change is there by half"
        wanted = {f"{prefix}_{number}" for number in range(count)}
        assert wanted <= users, f"lost: {sorted(wanted - users)}"
        assert users <= wanted | {f"{prefix}_{count}"}, "more than one change that nobody heard of"
        self._judge_trail(prefix, users)
        assert {row.name for row in headgate.monitor.state.users if row.name.startswith(f"{prefix}_")} <= users
        self.total += Counter(rounds=1, acknowledged=count, unheard=len(users) - count)

    def _judge_trail(self, prefix: str, users: set[str]) -> None:
        """As many records as changes: a change and its records are one."""
        created = self.system.sql("SELECT object FROM audit WHERE action = 'CREATE USER' AND granted")
        assert {str(about)[5:] for (about,) in created if str(about).startswith(f"user {prefix}_")} == users
        streams = self.system.sql("SELECT object FROM audit WHERE action = 'CREATE STREAM' AND granted")
        names = {str(about).removeprefix("stream root.") for (about,) in streams}
        assert {name for name in names if name.startswith(f"{prefix}_")} == users
        (granted,) = self.system.sql("SELECT count(*) FROM audit WHERE action LIKE 'GRANT ROLES TO %' AND granted")
        (workers,) = self.system.sql("SELECT count(*) FROM memberships WHERE role = 'worker'")
        assert granted == workers

    def go_on(self) -> None:
        """A fresh writer works on the store as if nothing had happened."""
        with writing(self.system.url, "after", 0, 3) as process:
            out, said = process.communicate(timeout=PATIENCE)
            assert (process.returncode, out.split()) == (0, ["0", "1", "2"]), said
        assert self.system.reopen().verify_audit() == []
        if self.system.url.startswith("sqlite"):
            assert self.system.sql("PRAGMA integrity_check") == [("ok",)]

    def report(self, what: str) -> None:
        counts = ", ".join(f"{value} {name}" for name, value in sorted(self.total.items()))
        print(f"\n{what}: {counts}", flush=True)


def _kill_writers(url: str, seed: str, rounds: int, most: int) -> None:
    kill = Rounds(System(url), Random(seed), most)
    try:
        kill.prepare()
        for number in range(rounds):
            kill.kill_a_writer(number)
        kill.go_on()
        kill.report(f"writers killed, {url.split(':')[0]}, seed {seed!r}")
        assert kill.total["acknowledged"] >= rounds
    finally:
        kill.system.close()


def test_a_killed_writer_leaves_whole_changes_in_a_file(tmp_path: Path) -> None:
    _kill_writers(f"sqlite:///{tmp_path / 'headgate.db'}", "file", rounds=3, most=250)


def test_a_killed_writer_leaves_whole_changes_on_a_server(postgres_url: str) -> None:
    _kill_writers(fresh_database(postgres_url), "server", rounds=1, most=250)


@pytest.mark.long
@pytest.mark.parametrize("stage", range(5))
def test_many_killed_writers_leave_whole_changes_in_a_file(tmp_path: Path, stage: int) -> None:
    _kill_writers(f"sqlite:///{tmp_path / 'headgate.db'}", f"files {stage}", rounds=10, most=CHANGES)


@pytest.mark.long
def test_many_killed_writers_leave_whole_changes_on_a_server(postgres_url: str) -> None:
    _kill_writers(fresh_database(postgres_url), "servers", rounds=10, most=CHANGES)


# The server itself


class Breakable(PostgresServer):
    """A server that can be killed and started again on the same files and port."""

    def kill(self) -> None:
        """The postmaster; its children see that it is gone and go too."""
        assert self._process is not None
        os.kill(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def start_again(self) -> None:
        """Until the last child is gone a new server refuses to start, so it is tried again."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            self._process = self._launch()
            if self._answers():
                return
        raise StoreError("the PostgreSQL server did not start again")


@pytest.fixture
def breakable() -> Iterator[Breakable]:
    with Breakable() as server:
        yield server


def _kill_servers(server: Breakable, seed: str, rounds: int, most: int) -> None:
    kill = Rounds(System(fresh_database(server.url)), Random(seed), most)
    try:
        kill.prepare()
        for number in range(rounds):
            kill.system.close()
            with writing(kill.system.url, f"r{number}", 0, CHANGES) as process:
                acknowledged = kill._read_some(process)
                with suppress(subprocess.TimeoutExpired):
                    process.wait(kill.random.uniform(0.0, 0.006))
                server.kill()
                rest, said = _rest(process)
                assert process.returncode == 1, said
                assert "StoreError" in said, said
            server.start_again()
            _reachable(kill.system.url)
            kill.judge(f"r{number}", acknowledged + [int(line) for line in rest.split()])
        kill.go_on()
        kill.report(f"servers killed, seed {seed!r}")
    finally:
        kill.system.close()


def _reachable(url: str) -> None:
    """A server that recovers from a crash answers when it is done."""
    target = make_url(url).set(drivername="postgresql").render_as_string(hide_password=False)
    psycopg.connect(target, connect_timeout=30).close()


@pytest.mark.long
def test_a_killed_server_leaves_whole_changes(breakable: Breakable) -> None:
    _kill_servers(breakable, "postmaster", rounds=5, most=300)
