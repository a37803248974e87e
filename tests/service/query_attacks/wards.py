"""The streams that attacks on continuous queries are aimed at, and what shows of queries: refusals, plans, records."""

from __future__ import annotations

import json
from typing import Any

import pytest
from conftest import System

from headgate.access.definitions import write_definition
from headgate.access.request import Result
from headgate.access.rows import Object
from headgate.errors import HeadgateError
from headgate.plan.nodes import Node
from headgate.service import Headgate

STREAMS = """
CREATE STREAM vitals (sid INT, bp INT, awake BOOLEAN, name STRING);
CREATE STREAM secret (sid INT, codename STRING, doses INT);
"""


def refused(system: System, script: str, token: str = "") -> HeadgateError:
    with pytest.raises(HeadgateError) as caught:
        system.run(script, token)
    return caught.value


def explained(system: System, what: str, token: str = "") -> Result:
    return system.run(f"EXPLAIN {what}", token)[-1]


def named(system: System, kind: str, name: str) -> Object:
    return next(x for x in system.headgate.monitor.state.objects if x.kind == kind and x.name == name)


def definition(system: System, kind: str, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(write_definition(named(system, kind, name).definition))
    return found


def planned(system: System) -> set[str]:
    """The numbers of the queries that there are for the engine."""
    return set(roots(system.headgate))


def roots(headgate: Headgate) -> dict[str, Node]:
    """The queries that there are for the engine, by their numbers."""
    headgate.snapshot()
    return {str(number): found.root for number, found in headgate.monitor.running._planned.items()}


def records(system: System, newest: int = 1) -> list[tuple[str, ...]]:
    """The newest audit records without time and session, as root reads them."""
    return [(user, *rest) for _, user, _, *rest in system.rows(f"SHOW AUDIT LIMIT {newest}")]
