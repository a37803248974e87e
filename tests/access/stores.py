"""A store with something of everything in it, what is known of it, and how it refuses."""

from __future__ import annotations

import gc
import traceback
from collections.abc import Callable
from typing import Any

import pytest
from conftest import ADMIN, KEY, System, cheap_passwords

from headgate.access.audit import Seal
from headgate.access.permissions import Kind, Permission
from headgate.access.state import State
from headgate.access.store import Store
from headgate.errors import StoreError
from headgate.service import Headgate
from headgate.testing import ManualClock

EVERYTHING = """
    CREATE LEVEL C; CREATE LEVEL S ABOVE C; CREATE LEVEL gone ABOVE C; DROP LEVEL gone; CREATE COMPARTMENT NATO;
    CREATE ROLE nurse MAX QUERIES 3 MAX STATE 70 MAX RESULTS 9;
    CREATE ROLE doctor; CREATE ROLE clerk; GRANT ROLE nurse TO ROLE doctor;
    CREATE SEPARATION pay STATIC OF clerk, doctor; CREATE SEPARATION "shift 1" DYNAMIC OF clerk, nurse;
    CREATE USER "head nurse" PASSWORD 'correct horse' CLEARANCE S{NATO}; GRANT ROLE doctor TO USER "head nurse";
    ALTER USER "head nurse" LOCK;
    CREATE SCHEMA vitals (patient STRING LABEL 'doctor AT C', pulse INT);
    CREATE STREAM in1 SCHEMA vitals LABEL 'nurse | (clerk & doctor)' SEMANTICS WEAK;
    CREATE QUERY q READING in1 USING window (rows = 10, seconds = 2.5, kinds = ('SLIDING')) OUTPUT "out 1";
    START QUERY q;
    GRANT VIEW OBJECT, READ TUPLE ON STREAM in1 TO nurse, "doctor";
    GRANT USE ON OPERATOR window TO clerk WITH (rows = 100, kinds = ('SLIDING', 'TUMBLING'));
    CREATE POLICY staff AS $$ plays("head nurse", clerk) :- vip says staff("head nurse").
      may_access(clerk, "VIEW OBJECT", "STREAM in1"). $$;
    REVOKE VIEW CATALOG ON SYSTEM FROM PUBLIC; SET SYSTEM idle_minutes = 60; SET ROLE ADMIN
"""
SHOWN = ["CATALOG", "SCHEMAS", "STREAMS", "QUERIES", "OPERATORS", "USERS", "ROLES", "SEPARATIONS", "LEVELS"]
SHOWN += ["COMPARTMENTS", "GRANTS", "PERMISSIONS", "SESSION", "SESSIONS", "SYSTEM", "POLICIES", "STATEMENTS"]

_LATE = "DEFERRABLE INITIALLY DEFERRED"
BEFORE_KEYS = ("ALTER TABLE sessions DROP COLUMN name", "UPDATE alembic_version SET version_num = '0007'")
"""Back to when there were no API keys."""
BEFORE_POLICIES = (
    *BEFORE_KEYS,
    *(f"DROP TABLE {table}" for table in ("policy_statements", "policy_numbers", "policies", "proofs")),
    "UPDATE alembic_version SET version_num = '0006'",
)
"""Back to when there were no policies."""
AT_SESSIONS = (
    *BEFORE_POLICIES,
    "DROP TABLE login_sources",
    "DROP TABLE subscriptions",
    (
        f"CREATE TABLE subscriptions (session TEXT NOT NULL REFERENCES sessions (token_hash) {_LATE}, "
        f"stream INTEGER NOT NULL REFERENCES objects (id) {_LATE}, PRIMARY KEY (session, stream))"
    ),
    "UPDATE alembic_version SET version_num = '0005'",
)
"""Back to when subscriptions were those of sessions."""

Rows = dict[str, dict[Any, Any]]


def in_memory(headgate: Headgate) -> Rows:
    return {name: dict(table._rows) for name, table in headgate.monitor.state.tables.items()}


def in_store(system: System) -> Rows:
    """What a process that starts now would know."""
    state, store = State(), Store(system.url, Seal(KEY), system.clock)
    try:
        store.refresh(state)
        return {name: dict(table._rows) for name, table in state.tables.items()}
    finally:
        store.close()


def shown(system: System) -> dict[str, tuple[tuple[str, ...], ...]]:
    return {what: system.rows(f"SHOW {what}") for what in SHOWN}


def may(headgate: Headgate, token: str, permission: Permission, stream: str) -> bool:
    return bool(headgate.check(token, permission, Kind.STREAM, stream, ADMIN))


SECRET = "Tr0ub4dor"


def refused(action: Callable[[], object]) -> str:
    """The text of a StoreError, which must be plain, and must not give the password away even in a traceback."""
    said, shown = _refusal(action)
    gc.collect()  # a connection left open is a fault of this test, not of the next one
    assert SECRET not in said + shown
    assert "\n" not in said and said[0].islower()
    return said


def _refusal(action: Callable[[], object]) -> tuple[str, str]:
    with pytest.raises(StoreError) as caught:
        action()
    return str(caught.value), "".join(traceback.format_exception(caught.value))


def opened(url: str) -> None:
    Headgate(url, KEY, clock=ManualClock(), passwords=cheap_passwords()).close()
