"""A backlog of many small files is read to its end with little memory for Java."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from headgate.cli import main

pytestmark = pytest.mark.long

FILES, EACH = int(os.environ.get("HEADGATE_FILES", "5000")), 20
PASSWORD = "correct horse"
COMMAND = (sys.executable, "-c", "from headgate.cli import main; main()")
SCRIPT = """
CREATE STREAM s (n INT, k INT) SOURCE json (path = '{folder}/in');
CREATE QUERY q AS SELECT n WHERE n % 1000 = 0 FROM s;
CREATE QUERY sums AS SELECT k, COUNT(*) AS n FROM s [UNBOUNDED] GROUP BY k;
START QUERY q; START QUERY sums; SUBSCRIBE TO q; SUBSCRIBE TO sums;
"""


def test_five_thousand_files_with_one_gigabyte_for_java(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for file in range(FILES):
        lines = [json.dumps({"n": n, "k": n % 7}) for n in range(EACH * file, EACH * (file + 1))]
        (tmp_path / "in" / f"{file:05}.json").write_text("\n".join(lines) + "\n")
    words = ["--home", str(tmp_path / "home"), "--session", str(tmp_path / "session")]
    for command in (("init", "--admin", "joe"), ("login", "joe"), ("run", "-", "--statements-only")):
        given = SCRIPT.format(folder=tmp_path)
        done = CliRunner().invoke(main, [*words, *command], input=given, env={"HEADGATE_PASSWORD": PASSWORD})
        assert done.exit_code == 0, done.output
    run = ["run", "--everyone", "--out", str(tmp_path / "out"), "--conf", "spark.driver.memory=1g"]
    ended = subprocess.run(
        [*COMMAND, *words, *run], capture_output=True, text=True, timeout=1200, stdin=subprocess.DEVNULL, check=False
    )
    assert ended.returncode == 0, ended.stderr
    found = [json.loads(x) for x in (tmp_path / "out/joe/joe.q.jsonl").read_text().splitlines()]
    assert sorted(x["values"]["n"] for x in found) == list(range(0, FILES * EACH, 1000))
    counts: dict[int, int] = {}
    for line in (tmp_path / "out/joe/joe.sums.jsonl").read_text().splitlines():
        values = json.loads(line)["values"]
        counts[values["k"]] = max(counts.get(values["k"], 0), values["n"])
    assert sum(counts.values()) == FILES * EACH
