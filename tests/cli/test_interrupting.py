"""Runs that are interrupted, as processes of their own: what they say, how they end, and how they go on."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from test_cli import Terminal, terminal

__all__ = ["terminal"]

HEADGATE = Path(sys.executable).parent / "headgate"
FILES = 20
MANY = "CREATE STREAM many (x INT) SOURCE json (path = '{folder}', maxFilesPerTrigger = '1')"


@pytest.fixture
def many(terminal: Terminal, tmp_path: Path) -> Terminal:
    """A source that takes seconds to read: every file is a batch."""
    folder = tmp_path / "many"
    folder.mkdir()
    for number in range(FILES):
        (folder / f"{number:02}.json").write_text(json.dumps({"x": number}))
    assert terminal.run(MANY.format(folder=folder)).exit_code == 0
    return terminal


@contextmanager
def running(terminal: Terminal, *words: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [HEADGATE, "--home", str(terminal.home), "run", *words],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "HEADGATE_PASSWORD": "correct horse"},
        start_new_session=True,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def said(process: subprocess.Popen[str], pattern: str) -> str:
    """The first line on standard error with this in it."""
    assert process.stderr is not None
    seen = []
    for line in process.stderr:
        seen.append(line)
        if re.search(pattern, line):
            return line
    raise AssertionError("".join(seen))


def numbers(out: Path) -> list[int]:
    (file,) = (out / "joe").glob("joe.many*.jsonl")
    return [json.loads(line)["values"]["x"] for line in file.read_text().splitlines()]


def test_ctrl_c_before_the_end_says_what_is_kept_and_the_same_command_goes_on(many: Terminal, tmp_path: Path) -> None:
    script, out = tmp_path / "mine.cql", tmp_path / "out"
    script.write_text("SUBSCRIBE TO many")
    with running(many, str(script), "--everyone", "--out", str(out)) as process:
        said(process, r"^20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ ready$")
        said(process, r"Z \d+ tuples? in \d+ batch(es)?, \d+ results?$")
        process.send_signal(signal.SIGINT)
        shown, errors = process.communicate(timeout=180)
    assert process.returncode == 130
    assert errors.splitlines()[-1] == (
        "interrupted: the results so far are written and do not come again; "
        "the same command continues after them, with --fresh from the beginning"
    )
    first = numbers(out)
    assert 0 < len(first) < FILES and f"joe         joe.many  {len(first)}" in shown
    with running(many, "--everyone", "--follow", "--out", str(out)) as process:
        said(process, "ready$")
        said(process, f"Z [0-9]+ tuples? in [0-9]+ batch(es)?, {FILES - len(first)} results?$")
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=180)
    assert process.returncode == 0
    assert sorted(numbers(out)) == list(range(FILES))


@pytest.mark.long
def test_a_signal_to_the_whole_group_ends_the_run_without_a_traceback(many: Terminal, tmp_path: Path) -> None:
    """It ends Spark too; the sources are not to blame for that, and no query ends."""
    out = tmp_path / "out"
    assert many.type("run", "-", "--statements-only", text="SUBSCRIBE TO many").exit_code == 0
    with running(many, "--everyone", "--out", str(out)) as process:
        said(process, r"Z \d+ tuples? in \d+ batch(es)?, \d+ results?$")
        os.killpg(process.pid, signal.SIGTERM)
        _, errors = process.communicate(timeout=180)
    assert process.returncode == 143
    assert errors.splitlines()[-1].startswith("interrupted: ") and "Traceback" not in errors and "java" not in errors
    with running(many, "--everyone", "--out", str(out)) as process:
        _, errors = process.communicate(timeout=180)
    assert process.returncode == 0, errors
    assert sorted(numbers(out)) == list(range(FILES))


def test_ctrl_c_outside_of_a_run_says_so_in_one_line(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("headgate.service.Headgate.execute", interrupted)
    result = terminal.type("show")
    assert (result.exit_code, result.output) == (130, "interrupted\n")
