"""What people read: no character of anybody's data moves their cursor, and what ended is said."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import click
import pytest
from click.testing import CliRunner
from test_cli import Terminal, terminal

from headgate.cli.context import reported, say, say_lines
from headgate.cli.main import unforeseen
from headgate.errors import HeadgateError
from headgate.plain import format_table, json_line, visible

__all__ = ["terminal"]

EVIL = "\x1b]0;owned\x07red\x1b[31m\nsecond line\r\t\x7f\x9b1m\u2028\u202egpj"
SEEN = r"\x1b]0;owned\x07red\x1b[31m\nsecond line\r\t\x7f\x9b1m\u2028\u202egpj"
RAW = set("\x1b\x07\r\t\x7f\x9b\u2028\u202e")


def test_control_characters_are_shown_escaped_and_all_else_as_it_is() -> None:
    assert visible(EVIL) == SEEN
    for fine in ("plain", "é ß 日本 😀", "می\u200cخواهم", "a\u00a0b", r"C:\new", ""):
        assert visible(fine) == fine
    assert visible("\udcff") == r"\udcff"


def test_a_table_has_as_many_lines_as_rows_whatever_is_in_them() -> None:
    shown = format_table(["name", "x\ny"], [[EVIL, "1"], ["joe", "2"]])
    assert len(shown.splitlines()) == 4
    assert shown.splitlines()[2] == f"{SEEN}  1"
    assert not RAW & set(shown)


def test_an_error_is_one_line_whatever_it_quotes() -> None:
    @click.command()
    @click.argument("kind")
    def failing(kind: str) -> None:
        with reported(f"file{EVIL}"):
            if kind == "ours":
                raise HeadgateError(f"`{EVIL}` is none", hint=f"not {EVIL}")
            raise FileNotFoundError(2, f"none{EVIL}", f"file{EVIL}")

    for kind, said in (
        ("ours", f"error: `{SEEN}` is none (not {SEEN})\n"),
        ("files", f"error: cannot use `file{SEEN}`: none{SEEN}\n"),
    ):
        assert CliRunner().invoke(failing, [kind]).output == said


def test_what_has_lines_keeps_them_and_nothing_else(capsys: pytest.CaptureFixture[str]) -> None:
    say_lines("a\n  b\x1b[2J\tc")
    say("d\ne")
    assert capsys.readouterr().out == "a\n  b\\x1b[2J\\tc\nd\\ne\n"


def test_an_error_that_nobody_foresaw_is_shown_harmlessly_with_where_it_came_from(
    capsys: pytest.CaptureFixture[str],
) -> None:
    error = RuntimeError(EVIL)
    unforeseen(RuntimeError, error, error.__traceback__)
    shown = capsys.readouterr().err
    assert r"RuntimeError: \x1b]0;owned\x07red" in shown and not RAW & set(shown)


def test_lines_of_results_are_the_same_values_in_characters_that_can_be_seen() -> None:
    value = {"values": {"t": EVIL, "é": "日本"}}
    line = json_line(value)
    assert json.loads(line) == value and "日本" in line
    assert not (RAW | {"\n"}) & set(line)


def test_a_plan_with_escapes_in_its_texts_is_explained_and_drawn_without_them(
    terminal: Terminal, tmp_path: Path
) -> None:
    terminal.run("CREATE STREAM s (t STRING)")
    drawing = tmp_path / "plan.svg"
    result = terminal.type("explain", "SELECT t WHERE t = 'a\x1b[31m\x07\nb' FROM s", "--svg", str(drawing))
    assert result.exit_code == 0
    assert r"t = 'a\x1b[31m\x07\nb'" in result.output
    ElementTree.fromstring(drawing.read_text())  # noqa: S314
    for text in (result.output, drawing.read_text()):
        assert not RAW & set(text)


def test_whatever_words_are_typed_are_repeated_harmlessly(terminal: Terminal) -> None:
    for words in (
        ["access", "why", EVIL, "READ TUPLE", "stream", "in1"],
        ["access", "why", "joe", EVIL, "stream", "in1"],
        ["show", EVIL],
        ["show", "grants", "on", "stream", f'"{EVIL}"'],
        ["explain", "--query", EVIL],
        ["label", "normal", f'"{EVIL}"'],
        ["label", "check", "a", "--level", EVIL],
        ["login", EVIL],
        ["logout", EVIL],
        [EVIL],
        ["run", f"/nowhere/{EVIL}"],
        ["run", "--format", EVIL],
        ["--store", f"sqlite:////nowhere/{EVIL}", "show"],
        ["--home", f"/nowhere/{EVIL}", "show"],
    ):
        result = terminal.type(*words)
        assert result.exit_code != 0, words
        assert not RAW & set(result.output), (words, result.output)
        assert result.exception is None or isinstance(result.exception, SystemExit)


LOUD = """
CREATE ROLE small MAX RESULTS 2;
CREATE USER ann PASSWORD 'correct horse';
GRANT ROLE small TO USER ann;
GRANT ADD ON SYSTEM TO small;
CREATE STREAM loud (at TIMESTAMP, t STRING) EVENT TIME at SOURCE json (path = '{folder}/{evil}');
GRANT VIEW OBJECT, READ TUPLE, SUBSCRIBE ON STREAM loud TO small;
"""


@pytest.mark.parametrize("group", ["access", "admin", "audit", "cluster", "label", "sendlog"])
def test_a_group_without_a_command_shows_its_help_in_lines(terminal: Terminal, group: str) -> None:
    result = terminal.type(group)
    assert result.exit_code == 2
    assert "\\n" not in result.output and "\nCommands:\n" in result.output


def test_a_level_that_label_check_was_not_told_is_asked_for(terminal: Terminal) -> None:
    result = terminal.type("label", "check", "nurse AT C", "--role", "nurse")
    assert result.output == 'error: <label>:1:10: unknown level `C` (give the order of levels: --levels "U < C")\n'


def test_a_command_that_is_nearly_right_is_answered_with_the_right_one(terminal: Terminal) -> None:
    told = terminal.type("run", "--session", "f").output
    assert "--session stands before the command: headgate --session ... run" in told
    told = terminal.type("run", "SHOW STREAMS").output
    assert "for one statement: `headgate show ...`, or `echo ... | headgate run -`" in told
    assert "`headgate access why` explains rights" in terminal.type("why", "joe.mean").output
    told = terminal.type("--server", "https://127.0.0.1:1", "audit", "verify").output
    assert "leave out --server, or unset HEADGATE_SERVER" in told


def test_data_with_escapes_is_printed_harmlessly_and_a_query_that_ended_is_in_the_summary_and_in_the_exit_code(
    terminal: Terminal, tmp_path: Path
) -> None:
    evil = "in\x1bc"
    (tmp_path / evil).mkdir()
    row = {"at": "2024-03-01T08:00:00Z", "t": EVIL}
    (tmp_path / evil / "1.json").write_text("".join(json.dumps(row) + "\n" for _ in range(5)))
    assert terminal.run(LOUD.format(folder=tmp_path, evil=evil)).exit_code == 0
    terminal.type("login", "ann", who="ann")
    mine = "CREATE QUERY all_of_it AS SELECT t FROM joe.loud; START QUERY all_of_it; SUBSCRIBE TO all_of_it;"
    result = terminal.run(mine, who="ann")
    assert not RAW & set(result.output)
    assert [line for line in result.output.splitlines() if "second line" in line] == [
        f"2024-03-01 08:00:00  {SEEN}"
    ] * 2
    reason = (
        "it has more results in a second than its owner's roles allow (MAX RESULTS); select fewer results, or have MAX "
        "RESULTS of a role raised (ALTER ROLE)"
    )
    ended = "ended\nquery          owner  subscriber  why\n"
    assert ended in result.output
    assert f"ann.all_of_it  ann    ann         {reason}" in result.output
    assert result.exit_code == 3
    everyone = terminal.type("run", "--everyone", "--out", str(tmp_path / "out"))
    assert f"ann.all_of_it  ann    ann         {reason}" in everyone.output
    assert everyone.exit_code == 3
    assert not RAW & set(everyone.output)
    (lines,) = (tmp_path / "out" / "ann").glob("*.jsonl")
    assert json.loads(lines.read_text().splitlines()[0])["values"] == {"t": EVIL}
    assert not RAW & set(lines.read_text())


def test_a_stream_that_cannot_be_read_is_named_harmlessly(terminal: Terminal, tmp_path: Path) -> None:
    terminal.run(f"CREATE STREAM gone (t STRING) SOURCE json (path = '{tmp_path}/{EVIL[:-4]}'); SUBSCRIBE TO gone")
    result = terminal.type("run", "--everyone")
    assert result.exit_code == 1 and "error: cannot read stream joe.gone" in result.output
    assert not RAW & set(result.output)


def test_a_master_that_does_not_answer_ends_the_command_with_one_line(terminal: Terminal, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    terminal.run(f"CREATE STREAM s (t STRING) SOURCE json (path = '{tmp_path}/in')")
    result = terminal.type("run", "-", "--master", "spark://127.0.0.1:1", text="SUBSCRIBE TO s")
    assert result.exit_code == 1
    assert result.output.splitlines() == [
        "subscribed to stream joe.s",
        (
            "error: Spark's master `spark://127.0.0.1:1` does not answer: Connection refused "
            "(look whether it runs there and can be reached, or run without `--master` on this machine)"
        ),
    ]
