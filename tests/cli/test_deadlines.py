"""`headgate deadlines`: what the engine wrote, as a table and as a picture."""

from __future__ import annotations

import json
from pathlib import Path

from click.testing import CliRunner

from headgate.cli.main import main

PERIOD = {
    "levels": ["U", "S"],
    "submitted": [10, 10],
    "admitted": [9, 5],
    "timely": [9, 4],
    "tardy": [0, 1],
    "misses": [0.0, 20.0],
    "utilisation": [60.0, 25.0],
    "quality": [100.0, 50.0],
    "limit": [75.0, 30.0],
}


def ask(home: Path, *words: str) -> tuple[int, str]:
    found = CliRunner().invoke(main, ["--home", str(home), "deadlines", *words])
    return found.exit_code, found.output


def test_a_home_without_deadlines_says_so(tmp_path: Path) -> None:
    code, said = ask(tmp_path)
    assert code != 0
    assert "cannot show deadlines: no engine of this home folder had any" in said


def test_levels_are_shown_and_drawn(tmp_path: Path) -> None:
    lines = [json.dumps({"time": 5.0 * n, **PERIOD}) for n in (1, 2)]
    (tmp_path / "engine").mkdir()
    (tmp_path / "engine" / "deadlines.jsonl").write_text("\n".join(lines) + "\n")
    code, said = ask(tmp_path, "--svg", str(tmp_path / "p.svg"))
    assert code == 0
    assert [line.split() for line in said.splitlines()[2:4]] == [
        ["U", "20", "18", "0.00", "%", "60.0", "%", "100", "%"],
        ["S", "20", "10", "20.00", "%", "25.0", "%", "50", "%"],
    ]
    assert "utilisation" in (tmp_path / "p.svg").read_text()
