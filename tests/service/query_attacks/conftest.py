"""The ward that attacks on continuous queries begin in, and a doctor in it."""

from __future__ import annotations

import pytest
from conftest import System

from .wards import STREAMS


@pytest.fixture
def ward(sqlite_system: System) -> System:
    sqlite_system.run(STREAMS + "CREATE LEVEL S; GRANT ADD ON SYSTEM TO PUBLIC")
    return sqlite_system


@pytest.fixture
def ann(ward: System) -> str:
    """A doctor who may read vitals, and not even see the other stream."""
    token = ward.new_user("ann", "doctor")
    ward.run("GRANT VIEW OBJECT, READ TUPLE ON STREAM vitals TO doctor")
    return token
