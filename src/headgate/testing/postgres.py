"""A temporary PostgreSQL server, because a store behaves differently on a real server than on a fake.

The server belongs to one test run: its data is in a temporary directory, it listens only on 127.0.0.1, and only a
client with the random password can log in. Its durability settings are PostgreSQL's own (`fsync` is on), so that a test
of commits and crashes tests what a user would have.
"""

from __future__ import annotations

import os
import pwd
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Self

import psycopg
from sqlalchemy import NullPool, create_engine, make_url, text
from sqlalchemy.engine import URL

from headgate.errors import StoreError

DEBIAN_VERSIONS = Path("/usr/lib/postgresql")
_HOST = "127.0.0.1"
_USER = "headgate"
_START_ATTEMPTS = 5
_START_SECONDS = 60.0
_STOP_SECONDS = 30.0


class PostgresServer:
    """One server process and its directory; `start` returns when the server answers, `stop` when both are gone."""

    def __init__(self) -> None:
        self._binaries = _find_binaries()
        self._account = _account()
        self._password = secrets.token_urlsafe(24)
        self._directory: Path | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._port = 0

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def url(self) -> str:
        """The URL of the server's maintenance database; `fresh_database` makes others from it."""
        url = URL.create("postgresql+psycopg", _USER, self._password, _HOST, self._port, "postgres")
        return url.render_as_string(hide_password=False)

    @property
    def port(self) -> int:
        return self._port

    @property
    def directory(self) -> Path:
        if self._directory is None:
            raise StoreError("the PostgreSQL server is not running")
        return self._directory

    @property
    def pid(self) -> int:
        if self._process is None:
            raise StoreError("the PostgreSQL server is not running")
        return self._process.pid

    def start(self) -> None:
        """Make the data directory and start on a free port.

        Between finding a free port and binding it another process may take it, hence the attempts.
        """
        if self._directory is not None:
            raise StoreError("the PostgreSQL server is already running")
        self._directory = Path(tempfile.mkdtemp(prefix="headgate-postgres-"))
        self._initialise()
        for _ in range(_START_ATTEMPTS):
            self._port = _free_port()
            self._process = self._launch()
            if self._answers():
                return
        raise StoreError(f"the PostgreSQL server did not start: {self._last_log_line()}")

    def stop(self) -> int | None:
        """Shut down, first gracefully, and remove the directory; returns the exit code, 0 if the shutdown was clean.

        Signals go to the process that `start` made: a machine may run other servers of the same name.
        """
        code = None
        if self._process is not None:
            code = _shut_down(self._process)
            self._process = None
        if self._directory is not None:
            shutil.rmtree(self._directory)
            self._directory = None
        return code

    def _initialise(self) -> None:
        password_file = self.directory / "password"
        password_file.touch(mode=0o600)
        password_file.write_text(self._password + "\n")
        if self._account is not None:
            for path in (self.directory, password_file):
                os.chown(path, self._account.pw_uid, self._account.pw_gid)
        # The C locale: every machine has it, and sorting does not depend on where the tests run.
        command = [
            str(self._binaries / "initdb"),
            f"--pgdata={self.directory / 'data'}",
            f"--username={_USER}",
            f"--pwfile={password_file}",
            "--auth=scram-sha-256",
            "--encoding=UTF8",
            "--no-locale",
        ]
        with self._log_file() as log:
            code = self._spawn(command, log).wait()
        password_file.unlink()
        if code != 0:
            raise StoreError(f"`initdb` failed: {self._last_log_line()}")

    def _launch(self) -> subprocess.Popen[bytes]:
        settings = {
            "listen_addresses": _HOST,
            "port": str(self._port),
            "unix_socket_directories": "",  # no second way in, and no limit on the length of the directory's path
        }
        command = [str(self._binaries / "postgres"), "-D", str(self.directory / "data")]
        for name, value in settings.items():
            command += ["-c", f"{name}={value}"]
        with self._log_file() as log:
            return self._spawn(command, log)

    def _spawn(self, command: list[str], log: int) -> subprocess.Popen[bytes]:
        """Run as the chosen account, in the server's directory, with a log.

        In a session of its own: Ctrl-C in the terminal then reaches the tests, which stop the server in their order.
        """
        account = self._account
        return subprocess.Popen(  # noqa: S603 - a list, made of our own paths and settings
            command,
            cwd=self.directory,
            env={"PATH": os.defpath, "LC_ALL": "C", "TZ": "UTC"},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            user=None if account is None else account.pw_uid,
            group=None if account is None else account.pw_gid,
            extra_groups=None if account is None else [],
        )

    @contextmanager
    def _log_file(self) -> Iterator[int]:
        descriptor = os.open(self.directory / "log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    def _last_log_line(self) -> str:
        lines = (self.directory / "log").read_text(errors="replace").split("\n")
        return next((line.strip() for line in reversed(lines) if line.strip()), "it wrote no log")

    def _answers(self) -> bool:
        """Wait until the server accepts a login; false if it ended instead.

        Logging in also proves that this is our server on that port: no other can check the password.
        """
        assert self._process is not None  # noqa: S101 - called only by start
        deadline = time.monotonic() + _START_SECONDS
        while self._process.poll() is None:
            with suppress(psycopg.OperationalError):
                psycopg.connect(_libpq_url(self.url), connect_timeout=5).close()
                return True
            if time.monotonic() > deadline:
                raise StoreError(f"the PostgreSQL server did not answer: {self._last_log_line()}")
            time.sleep(0.05)
        return False


@contextmanager
def running_postgres() -> Iterator[str]:
    """A server for the duration of a `with`; yields its SQLAlchemy URL."""
    with PostgresServer() as server:
        yield server.url


def fresh_database(url: str) -> str:
    """Create an empty database on the server of `url` and return its URL, so that tests share a server but no data.

    From `template0`: unlike `template1` nobody can have put anything into it, and nobody can be connected to it.
    """
    name = f"test_{secrets.token_hex(8)}"
    engine = create_engine(url, isolation_level="AUTOCOMMIT", poolclass=NullPool)
    with engine.connect() as connection:
        connection.execute(text(f"CREATE DATABASE {name} TEMPLATE template0"))
    return make_url(url).set(database=name).render_as_string(hide_password=False)


def _libpq_url(url: str) -> str:
    return make_url(url).set(drivername="postgresql").render_as_string(hide_password=False)


def _find_binaries() -> Path:
    """The directory of `initdb` and `postgres`: from PATH, else Debian's newest, which Debian keeps out of PATH."""
    in_path = shutil.which("initdb")
    debian = sorted(DEBIAN_VERSIONS.glob("*/bin/initdb"), key=_version, reverse=True)
    for initdb in [*([Path(in_path)] if in_path else []), *debian]:
        directory = initdb.resolve().parent
        if os.access(directory / "postgres", os.X_OK):
            return directory
    raise StoreError("no PostgreSQL server was found on this machine", hint="run `scripts/ensure-postgres.sh`")


def _version(initdb: Path) -> int:
    name = initdb.parents[1].name
    return int(name) if name.isdecimal() else 0


def _account() -> pwd.struct_passwd | None:
    """The account that runs the server: our own, unless we are root, as which PostgreSQL refuses to run."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        with suppress(KeyError):
            return pwd.getpwnam(name)
    raise StoreError("PostgreSQL does not run as root, and there is no user `postgres` or `nobody`")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((_HOST, 0))
        port: int = probe.getsockname()[1]
        return port


def _shut_down(process: subprocess.Popen[bytes]) -> int:
    """SIGINT is PostgreSQL's fast shutdown, SIGQUIT its immediate one; SIGKILL only if it obeys neither."""
    for order in (signal.SIGINT, signal.SIGQUIT):
        process.send_signal(order)
        with suppress(subprocess.TimeoutExpired):
            return process.wait(_STOP_SECONDS)
    process.kill()
    return process.wait()
