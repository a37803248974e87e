"""Opens a database by its URL: SQLite by default, or PostgreSQL."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from sqlalchemy import Connection, Engine, create_engine, event, text
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, NoSuchModuleError
from sqlalchemy.pool import StaticPool

from headgate.errors import StoreError

CONNECT_SECONDS = 10
"""Seconds until an unresponsive server is given up, unless the URL says otherwise."""

_CAUSES = {
    "28P01": "it refused the password",
    "28000": "it refused the user",
    "3D000": "it has no such database",
    "53300": "it has too many connections",
    "57P03": "it is starting or ending",
}
_PHRASES = {
    "password authentication failed": "it refused the password",
    "no password supplied": "it wants a password",
    "no pg_hba.conf entry": "it refused the user or this machine",
    "does not exist": "it has no such user or database",
    "too many clients": "it has too many connections",
    "the database system is": "it is starting or ending",
    "connection refused": "connection refused",
    "timeout expired": "no answer in time",
    "timed out": "no answer in time",
    "resolve": "there is no host of this name",
    "name or service not known": "there is no host of this name",
    "no route to host": "there is no way to this host",
    "network is unreachable": "there is no way to this host",
    "ssl": "it is not agreed about SSL",
    "no such file": "no server listens at this socket",
}
"""Parts of a driver's messages, and what is reported instead: the driver's text may hold anything, so none of it is
repeated."""


def open_engine(url: str) -> Engine:
    try:
        parsed = make_url(url)
        if parsed.get_backend_name() == "sqlite":
            return _sqlite(url, memory=parsed.database in (None, "", ":memory:"))
        if parsed.get_backend_name() == "postgresql":
            waits = {} if "connect_timeout" in parsed.query else {"connect_timeout": CONNECT_SECONDS}
            return create_engine(parsed.set(drivername="postgresql+psycopg"), pool_pre_ping=True, connect_args=waits)
    except (ArgumentError, NoSuchModuleError, ValueError):
        pass
    raise StoreError("this is not the URL of a store", hint="sqlite:///FILE or postgresql://USER@HOST/DATABASE")


def unreachable(url: URL, error: Exception) -> StoreError:
    """The error reported when the driver fails: where, and why if the cause is one of those known here. It repeats
    nothing of the driver's own text, which may hold values and passwords."""
    cause = getattr(error, "orig", None) or error
    known = _CAUSES.get(getattr(cause, "sqlstate", None) or "")
    if url.get_backend_name() != "postgresql":
        return StoreError(f"the store refused or cannot be reached ({type(cause).__name__})")
    told = str(cause).lower() if type(cause).__name__ in ("OperationalError", "ConnectionTimeout") else ""
    known = known or next((words for phrase, words in _PHRASES.items() if phrase in told), None)
    if known is None:
        return StoreError(f"the store at {_where(url)} refused or cannot be reached ({type(cause).__name__})")
    return StoreError(f"cannot reach the store at {_where(url)}: {known}", hint="see to that and try again")


def _where(url: URL) -> str:
    """Host and port; never user or password."""
    host = url.host or next(iter(url.normalized_query.get("host", ())), "") or "the local socket"
    port = url.port or next(iter(url.normalized_query.get("port", ())), "")
    return f"`{host}:{port}`" if port else f"`{host}`"


@dataclass(frozen=True)
class StoreFile:
    """The file of a store, and its identity when it was opened; a server's store has none."""

    path: Path | None
    identity: tuple[int, int] | None

    @classmethod
    def of(cls, url: str) -> Self:
        parsed = make_url(url)
        if parsed.get_backend_name() != "sqlite" or parsed.database in (None, "", ":memory:"):
            return cls(None, None)
        path = Path(parsed.database or "").absolute()
        return cls(path, _identity(path))

    def check(self) -> None:
        """Refuses if the file was replaced, perhaps by a backup: whoever replaced it means the new file, but this
        process knows, writes and locks the old one."""
        if self.path is not None and _identity(self.path) != self.identity:
            raise StoreError(
                f"the store `{self.path}` was replaced or removed while this process used it",
                hint="end all that uses it, see that the right file is there, and start again",
            )


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _sqlite(url: str, *, memory: bool) -> Engine:
    pool = {"poolclass": StaticPool} if memory else {}
    if not memory:
        _create_private(Path(make_url(url).database or ""))
    engine = create_engine(url, connect_args={"timeout": 30, "check_same_thread": False}, **pool)

    @event.listens_for(engine, "connect")
    def _connect(connection: Any, _: object) -> None:
        connection.isolation_level = None  # we send BEGIN ourselves: immediate for writers, against deadlocks
        for pragma in ("journal_mode = WAL", "synchronous = FULL", "foreign_keys = ON"):
            connection.execute(f"PRAGMA {pragma}")

    @event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        reading = connection.get_execution_options().get("headgate_reading")
        connection.execute(text("BEGIN" if reading else "BEGIN IMMEDIATE"))

    return engine


def _create_private(file: Path) -> None:
    """The file holds password hashes; SQLite gives its companion files the same permissions."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        os.close(os.open(file, os.O_RDWR | os.O_CREAT, 0o600))
    except OSError as error:
        raise StoreError(f"cannot open the store `{file}`: {error.strerror}") from None
    except ValueError:
        raise StoreError("this is not the name of a file") from None
