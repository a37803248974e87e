"""What the processors of levels may use of the machine."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner
from conftest import ADMIN, KEY, PASSWORD, cheap_passwords

from headgate.cli import main
from headgate.errors import HeadgateError
from headgate.labels import LevelOrder, parse_level
from headgate.levels.child import Resources
from headgate.server.level_settings import LevelUse, priority, resources
from headgate.server.settings import read_settings
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
    order = headgate.snapshot().rules.order
    assert {x: priority(parse_level(x), order, {}) for x in expected} == expected
    headgate.close()


@pytest.mark.parametrize(
    ("shares", "expected"),
    [
        ({"S": 80, "TS": 41, "TOP": 1}, {"U": 0, "S": 1, "TS": 4, "TOP": 19}),
        ({"S": 10, "TS": 90}, {"S": 10, "TS": 10, "TOP": 19}),  # not above what it dominates
        ({"U": 10}, {"U": 10, "S": 10, "TS": 13}),
        ({"TS{A}": 20}, {"TS": 13, "TS{A}": 13, "TS{A, B}": 19}),
    ],
)
def test_a_share_is_declared_and_never_above_that_of_a_level_below(
    shares: dict[str, int], expected: dict[str, int]
) -> None:
    order = LevelOrder.total("U", "S", "TS", "TOP")
    uses = {level: LevelUse(share) for level, share in shares.items()}
    assert {x: priority(parse_level(x), order, uses) for x in expected} == expected


def test_what_a_level_may_use_is_declared_for_it_alone(tmp_path: Path) -> None:
    (tmp_path / "server.toml").write_text(
        'level_memory = 5\n[levels.S]\nmemory = 7\nbacklog = 0\n[levels."TS{B, A}"]\nshare = 1\n'
    )
    found, order, usual = read_settings(tmp_path, {}), LevelOrder.total("U", "S", "TS"), Resources(memory=5, backlog=9)
    assert found.levels == {"S": LevelUse(memory=7, backlog=0), "TS{A, B}": LevelUse(share=1)}
    assert resources(parse_level("S"), order, usual, found.levels) == Resources(10, 7, 0)
    assert resources(parse_level("TS{A,B}"), order, usual, found.levels) == Resources(19, 5, 9)
    assert resources(parse_level("U"), order, usual, found.levels) == Resources(0, 5, 9)
    shown = CliRunner().invoke(main, ["--home", str(tmp_path), "config"]).output
    assert (
        '[levels."S"]  # server.toml\nmemory = 7\nbacklog = 0\n[levels."TS{A, B}"]  # server.toml\nshare = 1\n' in shown
    )


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("levels = 3", "cannot use the setting `levels`: write a table for each level ([levels.S])"),
        ("[levels]\nS = 3", "cannot use the setting `levels.S`: it must be a table ([levels.S])"),
        ("[levels.S]\ncpu = 3", "there is no setting `levels.S.cpu` (there are share, memory, backlog)"),
        ("[levels.S]\nshare = 0", "cannot use the setting `levels.S.share`: it must be a whole number from 1 to 100"),
        ("[levels.S]\nmemory = true", "cannot use the setting `levels.S.memory`: it must be a whole number"),
        ("[levels.S]\nbacklog = -1", "cannot use the setting `levels.S.backlog`: it must be a whole number"),
        (
            '[levels."S{"]\nshare = 3',
            'cannot use the setting `levels`: `S{` is not a level (for example [levels."TS{A, B}"])',
        ),
    ],
)
def test_what_is_not_understood_is_refused(text: str, fault: str, tmp_path: Path) -> None:
    (tmp_path / "server.toml").write_text(text)
    with pytest.raises(HeadgateError) as refused:
        read_settings(tmp_path, {})
    assert str(refused.value) == fault
