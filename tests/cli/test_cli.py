"""The command line, as a person meets it: real processes' commands through click's runner, on a store in a folder."""

from __future__ import annotations

import csv
import datetime as dt
import json
import os
import stat
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result

from headgate.access.sessions import WAIT
from headgate.access.statements import queries as statements
from headgate.cli import main

PASSWORD = "correct horse"


class Terminal:
    """Types commands in one folder, as somebody whose password is known."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.runner = CliRunner()

    def type(self, *words: str, text: str | None = None, password: str = PASSWORD, who: str = "session") -> Result:
        environment = {"HEADGATE_PASSWORD": password}
        options = ["--home", str(self.home), "--session", str(self.home / who)]
        return self.runner.invoke(main, [*options, *words], input=text, env=environment)

    def run(self, script: str, who: str = "session") -> Result:
        return self.type("run", "-", text=script, who=who)


@pytest.fixture
def terminal(tmp_path: Path) -> Terminal:
    found = Terminal(tmp_path / "home")
    assert found.type("init", "--admin", "joe").exit_code == 0
    assert found.type("login", "joe").output == "joe is logged in\n"
    return found


def all_commands() -> list[list[str]]:
    found: list[list[str]] = [[]]
    for name, command in sorted(main.commands.items()):
        found.append([name])
        found += [[name, sub] for sub in sorted(getattr(command, "commands", {}))]
    return found


@pytest.mark.parametrize("words", all_commands(), ids=" ".join)
def test_every_command_has_a_help_worth_reading(words: list[str]) -> None:
    result = CliRunner().invoke(main, [*words, "--help"])
    assert result.exit_code == 0
    assert "Usage:" in result.output
    assert len(result.output.splitlines()) >= 5


def test_without_a_headgate_the_error_says_what_to_do(tmp_path: Path) -> None:
    result = Terminal(tmp_path / "nothing").type("login", "joe")
    assert result.exit_code == 1
    assert "(run `headgate init` first)" in result.output
    assert not (tmp_path / "nothing").exists()


def test_without_a_login_the_error_says_what_to_do(terminal: Terminal) -> None:
    result = terminal.type("show", who="nobody")
    assert (result.exit_code, result.output) == (
        1,
        "error: nobody is logged in (run `headgate login USER` first)\n",
    )


def test_a_second_init_is_refused_and_harms_nothing(terminal: Terminal) -> None:
    result = terminal.type("init", "--admin", "eve")
    assert result.exit_code == 1
    assert "this store already has users" in result.output
    assert terminal.type("show").exit_code == 0


def test_what_holds_secrets_is_for_its_owner_only(terminal: Terminal) -> None:
    files = [path for path in terminal.home.iterdir() if path.is_file()]
    assert {path.name for path in files} >= {"audit.key", "headgate.db", "session"}
    for path in files:
        assert stat.S_IMODE(path.stat().st_mode) == 0o600, path
    assert stat.S_IMODE(terminal.home.stat().st_mode) == 0o700


def test_a_wrong_password_is_refused_without_a_reason(terminal: Terminal) -> None:
    for user in ("joe", "nobody"):
        result = terminal.type("login", user, password="wrong wrong")
        assert (result.exit_code, result.output) == (1, f"error: login refused ({WAIT})\n")


def test_a_script_that_fails_changes_nothing_and_names_the_place(terminal: Terminal) -> None:
    result = terminal.run("CREATE ROLE a;\nCREATE ROLE b;\nCREATE ROLE a;")
    assert (result.exit_code, result.output) == (1, "error: <stdin>:3:13: there is already a role `a`\n")
    assert "a " not in terminal.type("show", "roles").output


def test_show_prints_a_plain_table(terminal: Terminal) -> None:
    assert terminal.run("CREATE SCHEMA s (x INT)").output == "schema joe.s created\n"
    shown = terminal.type("show").output
    assert shown == "kind    name  owner  level\n------  ----  -----  -----\nschema  s     joe    U\n"


def test_why_is_answered_for_granted_denied_and_hidden(terminal: Terminal) -> None:
    terminal.run("CREATE USER bob PASSWORD 'battery staple'; CREATE ROLE r; GRANT ROLE r TO USER bob;")
    terminal.run("CREATE STREAM in1 (x INT)")
    denied = terminal.type("access", "why", "bob", "READ TUPLE", "stream", "in1")
    assert denied.output.splitlines()[:2] == [
        "DENIED: bob READ TUPLE on stream joe.in1",
        "  because not the owner, and no active role holds READ TUPLE",
    ]
    assert terminal.type("access", "why", "joe", "read_tuple", "stream", "in1").output.startswith("GRANTED: joe")
    terminal.type("login", "bob", password="battery staple", who="bob")
    hidden = terminal.type("access", "why", "bob", "READ TUPLE", "stream", "in1", who="bob").output
    missing = terminal.type("access", "why", "bob", "READ TUPLE", "stream", "in2", who="bob").output
    assert hidden.replace("in1", "in2") == missing == "error: <arguments>:1:8: there is no stream in2\n"


def test_a_login_can_choose_roles_and_level(terminal: Terminal) -> None:
    terminal.run("CREATE LEVEL S; CREATE ROLE a; CREATE ROLE b; CREATE USER bob PASSWORD 'battery staple' CLEARANCE S;")
    terminal.run("GRANT ROLE a, b TO USER bob")
    words = ("login", "bob", "--role", "a", "--level", "S")
    assert terminal.type(*words, password="battery staple", who="bob").exit_code == 0
    shown = terminal.type("show", "session", who="bob").output.splitlines()[2].split()
    assert shown[1:4] == ["bob", "a", "S"]
    refused = terminal.type("login", "bob", "--role", "ADMIN", password="battery staple", who="bob")
    assert refused.output == "error: role ADMIN is not one of yours\n"


def test_after_a_logout_the_session_is_gone_everywhere(terminal: Terminal) -> None:
    stolen = (terminal.home / "session").read_text()
    assert terminal.type("logout").output == "logged out\n"
    assert not (terminal.home / "session").exists()
    (terminal.home / "thief").write_text(stolen)
    assert terminal.type("show", who="thief").output == "error: no valid session (log in again)\n"


def test_the_audit_trail_is_verified_with_and_without_an_expected_head(terminal: Terminal) -> None:
    head = terminal.type("audit", "head").output.strip()
    assert terminal.type("audit", "verify", "--expect", head).exit_code == 0
    terminal.type("show")
    assert terminal.type("audit", "verify", "--expect", head).exit_code == 0
    assert terminal.type("audit", "verify", "--expect", f"7:{'0' * 64}").exit_code == 1


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        (["label", "normal", "R1 | (R1 & R2)"], "R1\n"),
        (["label", "normal", "a &"], "error: <label>:1:4: expected a role, `(`, `TRUE` or `FALSE`, found the end"),
        (["label", "check", "a & b", "--role", "a", "--role", "b"], "permitted\n"),
        (["label", "check", "TRUE AT S", "--levels", "U < S"], "denied\n  level `U` does not dominate `S`\n"),
    ],
)
def test_labels_can_be_tried_out(words: list[str], answer: str) -> None:
    assert CliRunner().invoke(main, words).output.startswith(answer)


def test_a_script_that_is_not_text_is_refused_in_one_line(terminal: Terminal, tmp_path: Path) -> None:
    (tmp_path / "bad.cql").write_bytes(b"\xff\xfe\x00")
    result = terminal.type("run", str(tmp_path / "bad.cql"))
    assert result.exit_code == 1
    assert result.output == f"error: cannot read script `{tmp_path}/bad.cql`: it is not UTF-8 text (save it as UTF-8)\n"


def test_a_missing_script_is_named_in_one_line(terminal: Terminal) -> None:
    result = terminal.type("run", "nosuch.cql")
    assert result.exit_code == 1
    assert result.output == (
        "error: cannot read script `nosuch.cql`: no such file or directory "
        "(give the path of a file, or - for standard input)\n"
    )


def test_with_statements_only_no_source_is_read(terminal: Terminal, tmp_path: Path) -> None:
    (tmp_path / "script.cql").write_text(
        f"CREATE STREAM s (x INT) SOURCE json (path = '{tmp_path}/nosuch'); SUBSCRIBE TO s"
    )
    result = terminal.type("run", str(tmp_path / "script.cql"), "--statements-only")
    assert result.exit_code == 0
    assert result.output == "stream joe.s created\nsubscribed to stream joe.s\n"
    for more in (["--follow"], ["--everyone"], ["--out", "out"], ["--to", "json"], ["--fresh"]):
        assert terminal.type("run", str(tmp_path / "script.cql"), "--statements-only", *more).exit_code == 2


def test_plans_are_explained_by_text_by_name_and_all_together(terminal: Terminal, tmp_path: Path) -> None:
    terminal.run("CREATE STREAM s (bp INT); CREATE QUERY q AS SELECT bp FROM s WHERE bp > 120; START QUERY q")
    assert "joe.q: complete (Definition 5)" in terminal.type("explain", "SELECT bp FROM s WHERE 120 < bp").output
    assert "joe.q: exact, level U" in terminal.type("explain", "--query", "joe.q").output
    assert terminal.type("explain").output.startswith("1 running query, 3 operators instead of 3")
    drawn = terminal.type("explain", "--svg", str(tmp_path / "plan.svg"))
    assert drawn.output.endswith(f"drawn into {tmp_path / 'plan.svg'}\n")
    assert (tmp_path / "plan.svg").read_text().startswith("<svg")


def test_a_mistake_in_a_query_is_shown_where_it_was_typed(terminal: Terminal) -> None:
    terminal.run("CREATE STREAM s (bp INT)")
    result = terminal.type("explain", "SELECT\n  bbp FROM s")
    assert result.exit_code == 1
    assert result.output == "error: <text>:2:3: there is no column `bbp` (did you mean bp?)\n"
    assert terminal.type("explain", "SELECT bbp FROM s").output.startswith("error: <text>:1:8: ")


def test_explaining_runs_nothing_else(terminal: Terminal) -> None:
    terminal.run("CREATE STREAM s (bp INT)")
    for words in (["QUERIES; DROP STREAM s"], ["--query", "q; DROP STREAM s"], ["SELECT bp FROM s; DROP STREAM s"]):
        assert terminal.type("explain", *words).exit_code == 1
    assert "s " in terminal.type("show", "streams").output


TWO = """
CREATE STREAM good (x INT) SOURCE json (path = '{folder}/good');
CREATE STREAM gone (x INT) SOURCE json (path = '{folder}/gone');
CREATE QUERY fine AS SELECT x FROM good;
CREATE QUERY lost AS SELECT x FROM gone;
START QUERY fine; START QUERY lost;
"""


def test_an_unreadable_source_ends_only_its_readers_and_results_go_to_every_output(
    terminal: Terminal, tmp_path: Path
) -> None:
    (tmp_path / "good").mkdir()
    (tmp_path / "good" / "1.json").write_text('{"x": 1}\n{"x": 2}\n')
    assert terminal.run(TWO.format(folder=tmp_path)).exit_code == 0
    script = tmp_path / "mine.cql"
    script.write_text("SUBSCRIBE TO fine; SUBSCRIBE TO lost")
    out, table = tmp_path / "out", tmp_path / "table"
    words = ("--out", str(out), "--format", "parquet", "--to", "json", "--option", f"path={table}")
    result = terminal.type("run", str(script), "--everyone", *words)
    assert result.exit_code == 1
    errors = [line for line in result.output.splitlines() if line.startswith("error: ")]
    assert errors == [f"error: cannot read stream joe.gone as `json`: PATH_NOT_FOUND: `{tmp_path}/gone`"]
    assert pq.read_table(out / "joe" / "joe.fine" / "000000001.parquet").column("x").to_pylist() == [1, 2]
    told = out / "joe" / "joe.lost.jsonl"
    assert json.loads(told.read_text()) == {"ended": "an input stream could not be read to its end"}
    rows = [json.loads(line) for file in table.glob("*.json") for line in file.read_text().splitlines()]
    found = sorted((x["stream"], x.get("number"), json.loads(x["value"]).get("values")) for x in rows)
    assert found == [
        ("joe.fine", 1, {"x": 1}),
        ("joe.fine", 2, {"x": 2}),
        ("joe.gone.rejected", 1, {}),
        ("joe.lost", None, None),
    ]
    assert len({x["key"] for x in rows}) == 4
    refused = terminal.type("run", "--out", str(out))  # its own queries, with a state of their own
    assert refused.exit_code == 1
    assert refused.output.startswith(
        f"error: cannot write results to `{out}`: it holds the results of another engine (use "
    )
    told.write_bytes(told.read_bytes()[:-5])
    again = terminal.type("run", "--everyone", *words)
    assert f"warning: the file of results `joe/{told.name}` in `{out}` was cut or removed: 5 bytes" in again.output


def test_a_subscription_that_cannot_be_run_ends_alone(
    terminal: Terminal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one that an older version allowed: `run --everyone` ended with it before anybody received anything."""
    (tmp_path / "good").mkdir()
    (tmp_path / "good" / "1.json").write_text('{"x": 1}\n{"x": 2}\n')
    terminal.run(TWO.format(folder=tmp_path))
    columns = ", ".join(f"c{n} INT" for n in range(251))
    terminal.run(f"CREATE STREAM wide ({columns}) SOURCE json (path = '{tmp_path}/good')")
    refused = terminal.run("SUBSCRIBE TO fine; SUBSCRIBE TO wide")
    assert refused.exit_code == 1
    assert "cannot subscribe to stream joe.wide: it has 251 columns, results have at most 200" in refused.output
    with monkeypatch.context() as older:
        older.setattr(statements, "whole_stream", lambda _: None)
        older.setattr(statements, "lower", lambda _: None)
        script = tmp_path / "mine.cql"
        script.write_text("SUBSCRIBE TO wide; SUBSCRIBE TO fine")
        terminal.type("run", str(script), "--everyone", "--out", str(tmp_path / "out"))
    (file,) = (tmp_path / "out/joe").glob("joe.fine.*")
    assert len(file.read_text().splitlines()) == 2
    (file,) = (tmp_path / "out/joe").glob("joe.wide.*")
    assert json.loads(file.read_text()) == {"ended": "it cannot be run (Conflict)"}


FAST = """
CREATE STREAM rates (at TIMESTAMP, x INT) EVENT TIME at LATENESS 1 MINUTE SKEW 1 HOUR
  SOURCE json (path = '{folder}/rates', maxFilesPerTrigger = 1);
CREATE QUERY last AS SELECT x FROM rates [ROWS 1];
START QUERY last; SUBSCRIBE TO last;
"""


def test_one_fast_clock_does_not_stop_its_readers(terminal: Terminal, tmp_path: Path) -> None:
    """The first file ends with a tuple from 3,500 s ahead; of what follows only what is truly late is left out."""
    now = dt.datetime.now(dt.UTC)
    (tmp_path / "rates").mkdir()
    for number, seconds in enumerate([(-30, 3500), (-20, -15), (-10, -600, -5)]):
        rows = [{"at": (now + dt.timedelta(seconds=x)).isoformat(), "x": x} for x in seconds]
        file = tmp_path / "rates" / f"{number}.json"
        file.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
        os.utime(file, (number, number))
    script = tmp_path / "fast.cql"
    script.write_text(FAST.format(folder=tmp_path))
    result = terminal.type("run", str(script), "--everyone", "--out", str(tmp_path / "out"))
    (file,) = (tmp_path / "out/joe").glob("joe.last.*")
    assert [json.loads(line)["values"]["x"] for line in file.read_text().splitlines()] == [-30, -20, -15, -10, -5, 3500]
    told = json.loads((tmp_path / "out/joe/joe.rates.rejected.jsonl").read_text())
    assert told["reason"].endswith(": 1 tuple")
    words = [line.split() for line in result.output.splitlines()]
    assert ["stream", "tuples", "late"] in [line[:3] for line in words]
    assert ["joe.rates", "7", "1"] in [line[:3] for line in words]


NOTES = """
CREATE ROLE viewer; GRANT ROLE viewer TO USER joe;
CREATE STREAM notes (at TIMESTAMP, k INT, note STRING, policy STRING) EVENT TIME at ROLES FROM policy
  SOURCE csv (path = '{file}', header = 'true');
CREATE QUERY counted AS SELECT COUNT(*) AS n FROM notes [ROWS 9];
START QUERY counted;
"""


def test_a_value_forges_no_tuple_and_the_owner_gets_the_counts_of_a_file(terminal: Terminal, tmp_path: Path) -> None:
    """The attack: a text with a line break in a row that one may not see was read as a row with a label of its own."""
    file = tmp_path / "notes of today.csv"
    at = "2025-06-01T00:00:0{}Z".format
    rows = [
        (at(1), 1, f"hello\n{at(1)},777,forged,viewer\nbye", "boss"),
        (at(2), 2, 'say "hi"', "viewer"),
        (at(0), 3, "late", "viewer"),
        (at(3), 8.0, "no INT", "viewer"),
        (at(3), 4, "for nobody", "FALSE"),
    ]
    with file.open("w", newline="") as out:
        csv.writer(out).writerows([("at", "k", "note", "policy"), *rows])
    assert terminal.run(NOTES.format(file=file)).exit_code == 0
    script = tmp_path / "mine.cql"
    script.write_text("SUBSCRIBE TO notes; SUBSCRIBE TO counted")
    terminal.type("login", "joe")  # with the role that is new
    result = terminal.type("run", str(script), "--out", str(tmp_path / "out"))
    assert result.exit_code == 0, result.output
    received = next(x for x in (tmp_path / "out" / "joe").glob("joe.notes*.jsonl") if "rejected" not in x.name)
    seen = [json.loads(line)["values"] for line in received.read_text().splitlines()]
    assert [(x["k"], x["note"]) for x in seen] == [(2, 'say "hi"'), (3, "late")]
    told = (tmp_path / "out" / "joe" / "joe.notes.rejected.jsonl").read_text().splitlines()
    reasons = [json.loads(line)["reason"] for line in told]
    assert reasons[0] == "it does not have the stream's form: k: `8.0` is not INT"
    assert reasons[1].endswith(": 1 tuple")  # came late
    assert reasons[2:] == ["a label names role boss, which does not exist: nobody sees a tuple that needs it"]
    lines = [line.split() for line in result.output.splitlines() if line.startswith("joe.notes ")]
    assert lines[0][1:6] == ["5", "1", "1", "2", "2"]  # tuples, refused, late, seen by nobody, routed
    with file.open("a") as out:
        out.write(f"{at(5)},5,more,viewer\n")
    os.utime(file, (time.time() + 10, time.time() + 10))
    result = terminal.type("run", "--out", str(tmp_path / "out"), text="SHOW STREAMS")
    expected = f"stream joe.notes: file `{file}` changed after it was read: what it holds now is not read; "
    assert expected in result.output and result.exit_code == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--option", "path=x"], "--option and --options-from are for --to, which names the format"),
        (["--to", "jdbc", "--option", "secret"], "cannot read the options in --option: write each as NAME=VALUE"),
        (["--to", "jdbc", "--option", "=secret"], "cannot read the options in --option: write each as NAME=VALUE"),
    ],
)
def test_unknown_options_are_refused_before_anything_runs(terminal: Terminal, words: list[str], said: str) -> None:
    result = terminal.type("run", "-", *words, text="CREATE ROLE clerk")
    assert result.exit_code == 2 and said in result.output and "secret" not in result.output
    assert "clerk" not in terminal.type("show", "roles").output


def test_outputs_that_cannot_be_written_are_named_in_one_line(terminal: Terminal, tmp_path: Path) -> None:
    terminal.run("CREATE STREAM in1 (n INT)")
    (tmp_path / "file").write_text("no folder")
    elsewhere = Terminal(tmp_path / "file" / "home").type("init", "--admin", "joe")
    drawing = terminal.type("explain", "SELECT n FROM in1", "--svg", str(tmp_path / "nowhere" / "plan.svg"))
    for result in (elsewhere, drawing):
        assert result.exit_code == 1
        assert result.output.splitlines()[-1].startswith(f"error: cannot use `{tmp_path}")
        assert isinstance(result.exception, SystemExit)


def test_a_login_that_cannot_be_kept_leaves_no_session_behind(terminal: Terminal, tmp_path: Path) -> None:
    (tmp_path / "home" / "file").write_text("no folder")
    before = terminal.type("show", "sessions").output
    result = terminal.type("login", "joe", who="file/session")
    assert result.exit_code == 1
    assert result.output.startswith("error: cannot use `")
    assert terminal.type("show", "sessions").output == before


def test_a_policy_with_a_role_that_does_not_exist_says_so(terminal: Terminal) -> None:
    result = terminal.run("CREATE ROLE nurse; CREATE STREAM s (a INT LABEL 'nurse', b INT LABEL 'docter') LABEL 'nurs'")
    (_, created) = result.output.splitlines()
    assert created == "stream joe.s created; there is no role called docter or nurs yet, so nobody has it"
    assert terminal.run("ALTER STREAM s LABEL 'nurse'").output == "stream joe.s altered\n"
