"""Levels apart give the same results as one trusted processor."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from worlds.harness import Bench, stream

from headgate.levels.child import Start
from levels.harness import Levels, ProcessChild, ThreadChild, closing

VITALS = stream("vitals", "pat INT, bp INT")
ROWS = [
    [("TRUE", 1, 80), ("TRUE AT S", 1, 120), ("TRUE AT TS", 2, 90)],
    [("TRUE AT S", 2, 60), ("TRUE", 2, 70), ("TRUE AT C", 1, 100)],
    [("TRUE AT TS", 1, 10), ("TRUE", 1, 20)],
]
WHO = {f"u{level}": (f"q{level}", "", level) for level in ("U", "S", "TS")}


def world(bench: Bench) -> None:
    for level in ("U", "S", "TS"):
        bench.query(
            f"q{level}", "SELECT pat, COUNT(*) AS n, SUM(bp) AS s FROM vitals [ROWS 3] GROUP BY pat", level=level
        )
    bench.subscribed(**WHO)


def trusted(home: Path) -> dict[str, list[object]]:
    bench = Bench(home, VITALS)
    world(bench)
    for rows in ROWS:
        bench.take("vitals", *rows)
    bench.end()
    return {who: list(bench.fetched(who, query)) for who, (query, *_) in WHO.items()}


@pytest.mark.parametrize("architecture", ["replicated", "kernelized"])
@pytest.mark.parametrize("start", [ThreadChild, pytest.param(ProcessChild, marks=pytest.mark.long)])
def test_every_architecture_gives_the_same_results(tmp_path: Path, architecture: str, start: Start) -> None:
    expected = trusted(tmp_path / "trusted")
    with closing(Levels(tmp_path / "apart", VITALS, architecture=architecture, start=start)) as apart:
        world(apart)
        shepherd = apart.open_up()
        for rows in ROWS:
            apart.take("vitals", *rows)
        shepherd.end()
        assert {who: list(apart.received(who, query)) for who, (query, *_) in WHO.items()} == expected
    assert expected["uTS"] != expected["uS"] != expected["uU"]


def test_the_program_of_a_processor_knows_no_store_and_no_server() -> None:
    """What it imports is what could harm a level: nothing of it decides about rights of users or holds keys."""
    script = "import sys, headgate.levels.processor; print(*(x for x in sys.modules if x.startswith('headgate.')))"
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()
    packages = {name.split(".")[1] for name in found}
    assert packages.isdisjoint({"access", "sendlog", "service", "server", "client", "cli"}), sorted(packages)
