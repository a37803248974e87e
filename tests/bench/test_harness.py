"""Reports as JSON and on the terminal, goals, and the command `bench`."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest
from click.testing import CliRunner

from headgate.bench import BENCHES
from headgate.bench.command import bench
from headgate.bench.harness import Goal, Plot, Progress, Report, Row, environment
from headgate.bench.markdown import markdown
from headgate.bench.plot import draw

GOALS = [Goal("fast", 59.5, 60, "ns"), Goal("many", 10, 1000, "per second", "at least")]

PLOT = Plot("How it grows", "size", "ns", {"ours": [(1, 2.0), (1000, 3.5)], "theirs": [(1, 1.0)]}, {"goal": 3.0}, True)


def report(*, quick: bool = False) -> Report:
    rows: list[Row] = [{"size": 10, "ns": 1.25, "ok": True}, {"size": 20_000, "quick": quick, "what": "[b] text"}]
    return Report("A fake", rows, GOALS, ["a note with [brackets]"], environment("numpy", java="17"), [PLOT])


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)

    def run(quick: bool, progress: Progress) -> Report:
        progress.expect(2)
        progress.step("one")
        progress.expect(1)
        progress.step("two")
        progress.step("three")
        return report(quick=quick)

    module = ModuleType("fake_bench")
    module.__dict__["run"] = run
    monkeypatch.setitem(sys.modules, "fake_bench", module)
    monkeypatch.setitem(BENCHES, "fake", ("fake_bench", "Measures nothing."))


@pytest.mark.parametrize(
    ("measured", "at_most", "at_least"),
    [(59.9, True, False), (60, True, True), (60.1, False, True), (float("nan"), False, False)],
)
def test_a_goal_holds_up_to_and_including_its_number(measured: float, at_most: bool, at_least: bool) -> None:
    assert Goal("g", measured, 60, "ns", "at most").holds is at_most
    assert Goal("g", measured, 60, "ns", "at least").holds is at_least


def test_the_json_has_all_parts() -> None:
    found = json.loads(report().to_json("fake", quick=True))
    assert [*found] == ["bench", "title", "quick", "environment", "rows", "goals", "notes"]
    assert (found["bench"], found["title"], found["quick"]) == ("fake", "A fake", True)
    assert found["environment"].keys() == {"cpu", "cores", "system", "python", "numpy", "java"}
    assert found["rows"][0] == {"size": 10, "ns": 1.25, "ok": True}
    assert found["goals"] == [
        {"name": "fast", "measured": 59.5, "goal": 60, "unit": "ns", "comparison": "at most", "holds": True},
        {"name": "many", "measured": 10, "goal": 1000, "unit": "per second", "comparison": "at least", "holds": False},
    ]
    assert found["notes"] == ["a note with [brackets]"]


def test_markdown_has_rows_goals_notes_and_where_it_was_measured() -> None:
    lines = markdown(report()).splitlines()
    assert lines[0] == "A fake:"
    assert lines[2:6] == [
        "| size | ns | ok | quick | what |",
        "|---:|---:|---:|---:|---|",
        "| 10 | 1.25 | yes |  |  |",
        "| 20,000 |  |  | no | [b] text |",
    ]
    assert "| many | 10 per second | at least 1,000 per second | **does not hold** |" in lines
    assert "- a note with [brackets]" in lines
    assert lines[-1].startswith("Measured on: cpu ")


def test_a_bar_in_a_cell_does_not_end_it() -> None:
    assert "| a \\| b |" in markdown(Report("x", [{"role": "a | b"}]))


@pytest.mark.parametrize("log_y", [False, True])
def test_a_plot_names_its_axes_and_lines_and_is_the_same_each_time(log_y: bool, tmp_path: Path) -> None:
    plots = [PLOT, replace(PLOT, title="Once more", log_y=log_y)]
    for name in ("a.svg", "b.svg"):
        draw(plots, tmp_path / name)
    drawn = (tmp_path / "a.svg").read_text()
    assert all(f"<!-- {text} -->" in drawn for text in ("How it grows", "Once more", "size", "ours", "goal", "1,000"))
    assert drawn == (tmp_path / "b.svg").read_text()


@pytest.mark.usefixtures("fake")
def test_the_plot_is_where_it_is_asked_for_and_the_report_says_where() -> None:
    assert CliRunner().invoke(bench, ["fake"]).stdout.splitlines()[-1] == "The plot is in bench-fake.svg."
    assert Path("bench-fake.svg").read_text().startswith("<?xml")
    result = CliRunner().invoke(bench, ["fake", "--markdown", "--plot", "there.svg"])
    assert Path("there.svg").exists()
    assert result.stdout.startswith("A fake:\n\n| size |") and "plot" not in result.stdout


def test_columns_are_all_keys_in_the_order_of_first_use() -> None:
    assert report().columns() == ["size", "ns", "ok", "quick", "what"]


def test_a_package_that_is_not_there_is_named_so() -> None:
    assert environment("no-such-package")["no-such-package"] == "not installed"


@pytest.mark.usefixtures("fake")
def test_a_bench_prints_its_report_and_a_goal_that_does_not_hold_is_no_failure() -> None:
    result = CliRunner().invoke(bench, ["fake", "--quick"])
    assert result.exit_code == 0
    lines = [" ".join(line.split()) for line in result.stdout.splitlines()]
    assert "A fake" in lines
    assert "size ns ok quick what" in lines
    assert "20,000 yes [b] text" in lines
    assert "fast 59.5 ns at most 60 ns holds" in lines
    assert "many 10 per second at least 1,000 per second does not hold" in lines
    assert "- a note with [brackets]" in lines


@pytest.mark.usefixtures("fake")
def test_the_json_file_is_written(tmp_path: Path) -> None:
    file = tmp_path / "fake.json"
    assert CliRunner().invoke(bench, ["fake", "--json", str(file)]).exit_code == 0
    assert json.loads(file.read_text())["quick"] is False


@pytest.mark.usefixtures("fake")
def test_a_json_file_that_cannot_be_written_is_refused_before_measuring(tmp_path: Path) -> None:
    result = CliRunner().invoke(bench, ["fake", "--json", str(tmp_path / "no" / "fake.json")])
    assert result.exit_code == 2
    assert "is not a directory" in result.stderr
    assert "A fake" not in result.stdout


def test_help_lists_the_benches_without_importing_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(BENCHES, "ghost", ("no.such.module", "Cannot be imported."))
    result = CliRunner().invoke(bench, ["--help"])
    assert result.exit_code == 0
    assert all(name in result.stdout for name in ("labels", "access", "ghost"))
    assert "Cannot be imported." in CliRunner().invoke(bench, ["ghost", "--help"]).stdout


def test_an_unknown_bench_is_refused() -> None:
    result = CliRunner().invoke(bench, ["nothing"])
    assert result.exit_code == 2
    assert "No such command 'nothing'" in result.stderr
