"""Opening a database by its URL: SQLite by default, PostgreSQL."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event, text
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, NoSuchModuleError
from sqlalchemy.pool import StaticPool

from headgate.errors import StoreError


def open_engine(url: str) -> Engine:
    try:
        parsed = make_url(url)
        if parsed.get_backend_name() == "sqlite":
            return _sqlite(url, memory=parsed.database in (None, "", ":memory:"))
        if parsed.get_backend_name() == "postgresql":
            return create_engine(parsed.set(drivername="postgresql+psycopg"), pool_pre_ping=True)
    except (ArgumentError, NoSuchModuleError, ValueError):
        pass
    raise StoreError("this is not the URL of a store", hint="sqlite:///FILE or postgresql://USER@HOST/DATABASE")


def _sqlite(url: str, *, memory: bool) -> Engine:
    pool = {"poolclass": StaticPool} if memory else {}
    if not memory:
        _create_private(Path(make_url(url).database or ""))
    engine = create_engine(url, connect_args={"timeout": 30, "check_same_thread": False}, **pool)

    @event.listens_for(engine, "connect")
    def _connect(connection: Any, _: object) -> None:
        connection.isolation_level = None  # we say BEGIN ourselves: at once for writing, so that nobody deadlocks
        for pragma in ("journal_mode = WAL", "synchronous = FULL", "foreign_keys = ON"):
            connection.execute(f"PRAGMA {pragma}")

    @event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        reading = connection.get_execution_options().get("headgate_reading")
        connection.execute(text("BEGIN" if reading else "BEGIN IMMEDIATE"))

    return engine


def _create_private(file: Path) -> None:
    """The file holds password hashes; SQLite gives its companions the same permissions."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        os.close(os.open(file, os.O_RDWR | os.O_CREAT, 0o600))
    except OSError as error:
        raise StoreError(f"the store `{file}` cannot be opened ({error.strerror})") from None
    except ValueError:
        raise StoreError("this is not the name of a file") from None
