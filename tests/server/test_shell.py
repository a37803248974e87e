"""The shell as a person uses it: at a terminal, with keys; and what it prints for programs."""

from __future__ import annotations

import csv
import datetime as dt
import fcntl
import io
import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from conftest import ADMIN, PASSWORD
from rich.console import Console

import headgate
from headgate.cli import main
from headgate.cli.live import draw
from headgate.cli.shell import ShellSession, is_complete
from headgate.client import Received
from headgate.client.local import address
from headgate.home import alone
from server.serving import Server, served

HEADGATE = Path(sys.executable).with_name("headgate")
_ESCAPES = re.compile(r"\x1b(\[[0-9;?]*[a-zA-Z]|[=>]|\][^\x07]*\x07|[()][A-Z0-9])")


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    home = tmp_path_factory.mktemp("home")
    with alone(home), served(home) as server:
        yield server


def _at_its_terminal() -> None:
    """Ctrl-C is a signal, also where whoever runs the tests ignores it, as a shell does for what runs beside it."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    signal.signal(signal.SIGINT, signal.SIG_DFL)


class Terminal:
    """A program at a terminal of 100 columns and 30 lines."""

    def __init__(self, *words: str) -> None:
        self._own, other = pty.openpty()
        environment = {name: x for name, x in os.environ.items() if not name.startswith("HEADGATE_")}
        environment |= {"TERM": "xterm", "COLUMNS": "100", "LINES": "30", "PROMPT_TOOLKIT_NO_CPR": "1"}
        self._process = subprocess.Popen(
            words,
            stdin=other,
            stdout=other,
            stderr=other,
            env=environment,
            start_new_session=True,
            preexec_fn=_at_its_terminal,
        )
        os.close(other)
        self.shown = ""

    def type(self, keys: str) -> None:
        os.write(self._own, keys.encode())

    def wait_for(self, text: str) -> str:
        """What is shown up to this text, without what only moves the cursor; it is not looked at again."""
        until = time.monotonic() + 60
        while text not in self.shown:
            ready, _, _ = select.select([self._own], [], [], 1)
            if ready:
                try:
                    self.shown += _ESCAPES.sub("", os.read(self._own, 1 << 16).decode(errors="replace"))
                except OSError:
                    raise AssertionError(f"it ended; shown: {self.shown}") from None
            assert time.monotonic() < until, self.shown
        before, _, self.shown = self.shown.partition(text)
        return before

    def end(self) -> int:
        code = self._process.wait(30)
        os.close(self._own)
        return code

    def kill(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait(30)


@contextmanager
def at_terminal(*words: str) -> Iterator[Terminal]:
    terminal = Terminal(*words)
    try:
        yield terminal
    finally:
        terminal.kill()


def typed(home: Path, *words: str, given: str = "", code: int = 0) -> Result:
    found = CliRunner().invoke(main, ["--home", str(home), *words], input=given, env={"HEADGATE_PASSWORD": PASSWORD})
    assert found.exit_code == code, found.output
    return found


def test_a_person_types_statements_and_sees_answers(here: Server) -> None:
    server = here
    server.run("CREATE STREAM ticks (n INT, word STRING) LABEL 'nurse' SOURCE publish")
    server.run("GRANT VIEW OBJECT, SUBSCRIBE, READ TUPLE ON STREAM ticks TO nurse")
    typed(here.home, "login", "ned")
    with at_terminal(str(HEADGATE), "--home", str(here.home), "shell") as terminal:
        terminal.wait_for("as ned; \\? for help")
        terminal.wait_for("headgate>")
        terminal.type("\\?\r")
        terminal.wait_for("\\w STREAM  its results as they come")
        terminal.type("SHOW\r")
        terminal.wait_for("->")  # the statement goes on: it has no end yet
        terminal.type("STREAMS;\r")
        terminal.wait_for("name ")
        terminal.wait_for("ticks")
        terminal.type("\\d root.ticks\r")
        terminal.wait_for("word STRING")
        terminal.type("SHOW NONSENSE;\r")
        terminal.wait_for("error: 1:6: ")
        terminal.wait_for("headgate>")
        terminal.type("SUBSCRIBE TO root.ti\t")
        terminal.wait_for("cks")  # the rest of the name
        terminal.type(";\r")
        terminal.wait_for("subscribed to stream root.ticks")
        server.run("GRANT PUBLISH ON STREAM ticks TO sender; GRANT VIEW OBJECT ON STREAM ticks TO sender")
        server.publish({"n": 1, "word": "one"}, {"n": 2, "word": "\x1b[31mred"}, stream="root.ticks")
        terminal.type("\\w root.ticks\r")
        shown = terminal.wait_for("2 results; Ctrl-C ends")
        assert "one" in shown and "\\x1b[31mred" in shown
        terminal.type("\x03")
        terminal.wait_for("headgate>")
        terminal.type("SET PASSWORD 'wrong horse';\r")
        terminal.wait_for("error: ")
        terminal.type("\\q\r")
        assert terminal.end() == 0
    history = here.home / "history"
    assert history.stat().st_mode & 0o777 == 0o600
    kept = history.read_text()
    assert "+SHOW\n+STREAMS;" in kept and "wrong horse" not in kept


def test_names_are_completed_from_ones_own_view_of_the_catalog(here: Server) -> None:
    here.run("CREATE STREAM visible_one (n INT) SOURCE publish; GRANT VIEW OBJECT ON STREAM visible_one TO nurse")
    here.run("CREATE STREAM visible_two (n INT) SOURCE publish")
    with headgate.connect(address(here.home), "ned", PASSWORD) as ned:
        session = ShellSession(ned)
        assert [*session.completions("SELECT n FROM root.vis")] == [("root.visible_one", -8)]
        assert [*session.completions("sel")] == [("SELECT", -3)]
        assert [*session.completions("\\")] == [("\\d", -1), ("\\w", -1), ("\\q", -1), ("\\?", -1)]
        assert [*session.completions("SHOW ")] == []


@pytest.mark.parametrize(
    ("text", "complete"),
    [("", True), ("SHOW STREAMS", False), ("SHOW STREAMS;", True), ("CREATE ROLE a;\nCREATE", False), ("\\d", True)],
)
def test_enter_sends_what_is_complete(text: str, complete: bool) -> None:
    assert is_complete(text) is complete


def test_commands_of_the_shell_ask_for_what_they_show(capsys: pytest.CaptureFixture[str]) -> None:
    asked: list[str] = []

    class Asked:
        def execute(self, script: str) -> list[object]:
            asked.append(script)
            return []

    watched: list[str] = []
    session = ShellSession(Asked(), watch=lambda _, stream: watched.append(stream))  # type: ignore[arg-type]
    assert all(map(session.take, ["\\d", "\\d joe.fast", "\\w joe.fast", "\\x", "  ", "SHOW ROLES;"]))
    assert asked == ["SHOW CATALOG", "DESCRIBE joe.fast", "SHOW ROLES;"]
    assert watched == ["joe.fast"]
    assert capsys.readouterr().err == "there is no command \\x; \\? lists them\n"
    assert not session.take("\\q") and not session.take("exit")


def test_tables_are_printed_for_programs(here: Server) -> None:
    typed(here.home, "login", ADMIN)
    rows = [json.loads(x) for x in typed(here.home, "show", "roles", "--json").stdout.splitlines()]
    assert {"nurse", "doctor"} <= {row["role"] for row in rows}
    table = [*csv.DictReader(io.StringIO(typed(here.home, "show", "roles", "--csv").stdout))]
    assert table == rows
    piped = typed(here.home, "shell", "--csv", given="CREATE ROLE porter; SHOW ROLES;")
    assert piped.stderr == "role porter created\n" and "porter" in piped.stdout
    both = typed(here.home, "run", "--json", "-", given="SHOW ROLES")
    assert {"nurse", "porter"} <= {json.loads(x)["role"] for x in both.stdout.splitlines()}


def test_who_asks_for_present_results_is_told_that_there_are_none(here: Server) -> None:
    here.run(
        """CREATE STREAM quiet (x INT) LABEL 'nurse' SOURCE publish;
        GRANT VIEW OBJECT, SUBSCRIBE, READ TUPLE ON STREAM quiet TO nurse"""
    )
    here.run("SUBSCRIBE TO root.quiet", "ned")
    typed(here.home, "login", "ned")
    found = typed(here.home, "watch", "root.quiet", "--present", "--json")
    assert found.stdout == "" and found.stderr.startswith("no results yet; ")
    piped = typed(here.home, "shell", given="\\d", code=1)
    assert piped.stderr.startswith("error: cannot read commands with \\ from a pipe")


def test_watched_results_have_all_their_digits_for_programs(here: Server) -> None:
    here.run(
        """CREATE STREAM third (x DOUBLE, word STRING) LABEL 'nurse' SOURCE publish;
        GRANT VIEW OBJECT, SUBSCRIBE, READ TUPLE ON STREAM third TO nurse;
        GRANT VIEW OBJECT, PUBLISH ON STREAM third TO sender"""
    )
    here.run("SUBSCRIBE TO root.third", "ned")
    here.publish({"x": 1 / 3, "word": 'a "b",\nc'}, {"x": None, "word": None}, stream="root.third")
    typed(here.home, "login", "ned")
    shown = typed(here.home, "watch", "root.third", "--most", "2", "--csv").stdout
    first, second = csv.DictReader(io.StringIO(shown))
    assert (first["x"], first["word"]) == ("0.3333333333333333", 'a "b",\\nc')
    assert (second["x"], second["word"]) == ("", "")
    lines = typed(here.home, "watch", "root.third", "--most", "2", "--json").stdout.splitlines()
    assert json.loads(lines[0])["values"] == {"x": 1 / 3, "word": 'a "b",\nc'}


def test_live_results_stay_in_their_place() -> None:
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=60, height=9, legacy_windows=False)
    results = [Received(str(n), dt.datetime(2024, 3, 1, 10, 0, n, tzinfo=dt.UTC), "", {"n": n}) for n in range(20)]
    draw("joe.fast", [*results, Received("x", notice={"ended": "it was dropped"})], console)
    last = _ESCAPES.sub("", out.getvalue().rpartition("joe.fast")[2])
    assert "10:00:19+00:00  19" in last and "10:00:17+00:00  17" in last and "10:00:16" not in last
    assert "it ended: it was" in last and "dropped" in last
