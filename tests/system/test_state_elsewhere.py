"""State in a shared folder or an object store: a run on one machine, the next one on another, with Spark and all."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from headgate.cli import main
from headgate.testing.object_store import fresh_place, running_store

pytestmark = pytest.mark.long

PASSWORD = "correct horse"
COMMAND = (sys.executable, "-c", "from headgate.cli import main; main()")
SCRIPT = """
CREATE STREAM s (n INT, at TIMESTAMP) EVENT TIME at LATENESS 1 SECONDS SOURCE json (path = '{folder}/in');
CREATE QUERY q AS SELECT n FROM s;
CREATE QUERY held AS SELECT COUNT(*) AS n FROM s [ROWS 100];
START QUERY q; START QUERY held; SUBSCRIBE TO q; SUBSCRIBE TO held;
"""


@pytest.fixture(params=["file", "s3"])
def state(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[list[str]]:
    if request.param == "file":
        yield ["--state", f"file://{tmp_path}/shared"]
        return
    with running_store() as options:
        file = tmp_path / "store.options"
        file.write_text("# of the store\n" + "".join(f"{name}={value}\n" for name, value in options.items()))
        yield ["--state", fresh_place(options).uri, "--state-options", str(file)]


def arrive(folder: Path, number: int) -> None:
    at = f"2024-03-01T08:00:{number:02}Z"
    new = folder / "in" / f".{number}.json"
    new.write_text(json.dumps({"n": number, "at": at}) + "\n")
    new.rename(folder / "in" / f"{number}.json")


def run(folder: Path, machine: str, *more: str) -> str:
    words = ["--home", str(folder / machine), "--store", f"sqlite:///{folder}/a/headgate.db"]
    words += ["--session", str(folder / "session"), "run", "--everyone", "--out", str(folder / "out"), *more]
    done = subprocess.run(
        [*COMMAND, *words], capture_output=True, text=True, timeout=300, stdin=subprocess.DEVNULL, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def results(folder: Path, query: str) -> list[int]:
    lines = (folder / "out" / "joe" / f"joe.{query}.jsonl").read_text().splitlines()
    return [x["values"]["n"] for x in map(json.loads, lines) if "values" in x]


def test_another_machine_goes_on_where_the_last_one_was(tmp_path: Path, state: list[str]) -> None:
    words = ["--home", str(tmp_path / "a"), "--session", str(tmp_path / "session")]
    script = SCRIPT.format(folder=tmp_path)
    (tmp_path / "in").mkdir()
    for command in (("init", "--admin", "joe"), ("login", "joe"), ("run", "-", "--statements-only")):
        done = CliRunner().invoke(main, [*words, *command], input=script, env={"HEADGATE_PASSWORD": PASSWORD})
        assert done.exit_code == 0, done.output
    for machine in ("b", "c"):
        (tmp_path / machine).mkdir(mode=0o700)
        shutil.copy(tmp_path / "a" / "audit.key", tmp_path / machine / "audit.key")
    said = ""
    for number, machine in enumerate(("a", "b", "c", "a")):
        for each in (2 * number, 2 * number + 1):
            arrive(tmp_path, each)
        said += run(tmp_path, machine, *state)
    assert sorted(results(tmp_path, "q")) == list(range(8))
    if len(state) == 4:
        secrets = [x.partition("=")[2] for x in Path(state[3]).read_text().splitlines() if "_key" in x]
        assert len(secrets) == 2
        kept = [x.read_bytes() for machine in "abc" for x in (tmp_path / machine).rglob("*") if x.is_file()]
        assert not [x for x in secrets for text in (said.encode(), *kept) if x.encode() in text]
    assert not os.path.exists(tmp_path / "b" / "engine" / "state")
