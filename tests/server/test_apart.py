"""What the processors of levels may use of the machine."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import ADMIN, KEY, PASSWORD, cheap_passwords

from headgate.labels import parse_level
from headgate.server.apart import priority
from headgate.service import Headgate

LEVELS = (
    "CREATE LEVEL S ABOVE U; CREATE LEVEL X; CREATE LEVEL TS ABOVE S, X; CREATE LEVEL TOP ABOVE TS;CREATE COMPARTMENT A"
)


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("CREATE LEVEL S ABOVE U", {"U": 0, "S": 19}),
        (LEVELS, {"U": 0, "S": 6, "X": 6, "TS": 13, "TOP": 19, "U{A}": 6, "TOP{A}": 19}),
    ],
)
def test_each_level_has_a_lower_priority_than_those_below_it(
    tmp_path: Path, script: str, expected: dict[str, int]
) -> None:
    """Also the level one step above U, which the catalog need not name."""
    headgate = Headgate(f"sqlite:///{tmp_path / 'headgate.db'}", KEY, passwords=cheap_passwords())
    headgate.initialise(ADMIN, PASSWORD)
    headgate.execute(headgate.login(ADMIN, PASSWORD), script)
    now = headgate.snapshot()
    assert {x: priority(parse_level(x), now) for x in expected} == expected
    headgate.close()
