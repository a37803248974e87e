"""`headgate star`, as a person types it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from headgate.cli import main


def typed(*words: str) -> str:
    result = CliRunner().invoke(main, ["star", *words])
    assert result.exit_code in (0, 1), result.output
    return result.output


def test_a_run_ends_with_one_line_for_each_level() -> None:
    lines = typed("--seconds", "10", "--load", "50", "--error", "0").splitlines()
    assert [line.split(":")[0] for line in lines] == ["U", "S"]
    assert all("misses 0.00 %" in line for line in lines)


def test_a_terminal_shows_each_level_while_it_runs() -> None:
    environment = {"FORCE_COLOR": "1", "TERM": "xterm", "COLUMNS": "120"}
    result = CliRunner().invoke(main, ["star", "--seconds", "20", "--controller", "open"], env=environment)
    assert result.exit_code == 0, result.output
    for word in ("misses", "utilisation", "QoS", "20 s", "█"):
        assert word in result.output


@pytest.mark.parametrize("suffix", ["png", "svg"])
def test_a_picture_is_drawn_into_the_given_file(tmp_path: Path, suffix: str) -> None:
    file = tmp_path / f"star.{suffix}"
    assert f"The picture is in {file}." in typed("--seconds", "10", "--levels", "3 in a chain", "--picture", str(file))
    assert file.stat().st_size > 10_000


def test_the_orders_of_levels_are_listed() -> None:
    assert "5 with a diamond" in typed("--list-levels").splitlines()


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["--levels", "7"], "cannot find levels `7` (`headgate star --list-levels` lists what there is)"),
        (["--high", "101"], "cannot give `101` % of the transactions to upper levels: choose 0 to 100"),
        (["--picture", "/no such folder/x.png"], "cannot draw to `/no such folder/x.png`: there is no such folder"),
        (["--picture", "x.docx"], "cannot draw to `x.docx`: name a file that ends in `.png` or `.svg`"),
        (["--load", "-1"], "cannot apply this load: each level needs 0 or more, and one of them more than 0"),
        (["--error", "-2"], "cannot apply an estimation error of `-2`: it must be more than -1"),
    ],
)
def test_bad_requests_are_refused(words: list[str], error: str) -> None:
    assert typed(*words) == f"error: {error}\n"


def test_other_commands_load_neither_the_compiler_nor_the_control_library() -> None:
    code = "import headgate.cli, sys; print([m for m in ('numba', 'control', 'scipy') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
