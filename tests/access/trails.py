"""The audit trail as somebody with the database reads it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from conftest import System

from headgate.access.audit import Seal

FIELDS = ["number", "time", "user", "session", "level", "action", "object", "granted", "reason", "mac"]
COLUMNS = ", ".join(f'"{field}"' for field in FIELDS)
OTHER_KEY = b"another key".ljust(32)
OTHER_SEAL = Seal(OTHER_KEY)
ROLLED_BACK = "the expected head is not in this trail: it was rolled back or replaced"
Record = dict[str, object]


def trail(system: System) -> list[Record]:
    rows = system.sql(f"SELECT {COLUMNS} FROM audit ORDER BY number")
    return [dict(zip(FIELDS, row, strict=True)) for row in rows]


@contextmanager
def added(system: System) -> Iterator[list[Record]]:
    """The records that are written inside; to be looked at afterwards."""
    before = len(trail(system))
    found: list[Record] = []
    yield found
    found += trail(system)[before:]


def said(record: Record) -> tuple[object, ...]:
    return record["user"], record["action"], record["object"], bool(record["granted"])


def session_of(system: System, token: str) -> str:
    return system.rows("SHOW SESSION", token)[0][0]
