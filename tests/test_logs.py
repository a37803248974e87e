"""Logs: one line for each event, as text or JSON, and never a value of a tuple."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from worlds.harness import Bench, stream

from headgate import logs
from headgate.cli import main
from headgate.execution import executors
from headgate.service.run_client import RunClient


@pytest.fixture(autouse=True)
def quiet_afterwards() -> Iterator[None]:
    root = logging.getLogger("headgate")
    before = root.handlers, root.level, root.propagate
    yield
    root.handlers, root.level, root.propagate = before


def test_an_event_is_one_line_of_text_or_json() -> None:
    text, lines = io.StringIO(), io.StringIO()
    logs.configure("info", "text", text)
    logs.event("pipeline", "batch done", stream="joe.HR", batch=3)
    logs.configure("info", "json", lines)
    logs.event("pipeline", "batch done", stream="joe.\x1b[31m", batch=3)
    logs.event("pipeline", "too fine", level=logging.DEBUG)
    assert text.getvalue().endswith("INFO headgate.pipeline: batch done stream=joe.HR batch=3\n")
    (line,) = lines.getvalue().splitlines()
    found = json.loads(line)
    assert found.pop("time") and "\x1b" not in line
    assert found == {"level": "info", "logger": "headgate.pipeline", "event": "batch done"} | {
        "stream": "joe.\x1b[31m",
        "batch": 3,
    }


@pytest.mark.parametrize("form", logs.FORMATS)
def test_a_failure_is_logged_with_its_place_and_without_any_value(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    """The attack: an error whose text repeats a tuple that the operator may not see."""

    def fails(*given: object, **_: object) -> object:
        raise ValueError(f"cannot compute {given} of patient CANARY-77")

    written = io.StringIO()
    logs.configure("debug", form, written)
    bench = Bench(tmp_path, stream("s", "a INT, w STRING"))
    bench.query("q", "SELECT a, w FROM s")
    bench.subscribed(ann=("q", "doctor"))
    bench.begin()
    monkeypatch.setattr(executors, "packed", fails)
    bench.take("s", ("doctor", 1, "CANARY-42"))
    found = written.getvalue()
    assert "ValueError" in found and "test_logs.py" in found and "batch done" in found
    assert "CANARY" not in found and "doctor" not in found


@pytest.mark.parametrize("everyone", [False, True])
def test_only_who_runs_the_queries_of_everyone_sees_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, everyone: bool
) -> None:
    """A reader's own run would tell of streams and of tuples that are hidden from the reader."""
    monkeypatch.setenv("HEADGATE_PASSWORD", "correct horse")
    monkeypatch.setattr(RunClient, "has_work", lambda _: False)
    words = ["--home", str(tmp_path), "--log-level", "debug"]
    script = tmp_path / "s.cql"
    script.write_text("SHOW STREAMS")
    run = ["run", str(script), *(["--everyone", "--out", str(tmp_path / "out")] if everyone else [])]
    for command in (["init", "--admin", "joe"], ["login", "joe"], run):
        assert CliRunner().invoke(main, [*words, *command]).exit_code == 0
    assert logging.getLogger("headgate").isEnabledFor(logging.ERROR) == everyone
