"""`headgate papers`: each page has what the paper found beside what the bench found; what cannot run is named."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import pytest
from click.testing import CliRunner

from headgate.bench import BENCHES
from headgate.bench.harness import Goal, Plot, Progress, Report, Row
from headgate.bench.paper_figures import PAPERS, goals, span
from headgate.bench.papers import papers
from headgate.bench.sharing import TABLE_2


class Fake(ModuleType):
    """A bench that finds the same at every size, or fails."""

    def __init__(self, *, fails: bool) -> None:
        super().__init__("fake")
        self._fails = fails

    def run(self, quick: bool, _: Progress) -> Report:
        if self._fails:
            raise OSError("there is no Java")
        rows = [{"added ns": x, "overhead %": x / 10, "security": "label of the stream"} for x in (70, 40)]
        return Report("Fake", rows, plots=[Plot("p", "x", "y", {"a": [(1, 2), (2, 3)]})] if quick else [])


def test_every_bench_that_a_paper_names_is_there() -> None:
    assert {x.bench for paper in PAPERS for x in paper.experiments} <= BENCHES.keys()


def test_pages_have_ours_beside_theirs_and_name_what_could_not_be_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, (module, _) in BENCHES.items():
        monkeypatch.setitem(sys.modules, module, Fake(fails=name == "shared"))
    done = CliRunner().invoke(papers, ["--quick", "--only", "000", "--only", "001", "--out", str(tmp_path)])
    assert done.exit_code == 0, done.output
    first, second = ((tmp_path / f"paper-{x}.md").read_text() for x in ("000", "001"))
    assert "| Figure 13 | labelling and filtering a tuple | about 60 ns | 70 to 40 ns |" in first
    assert ", load before it " in first
    assert "![Fake](paper-000-secfilter.svg)" in first and (tmp_path / "paper-000-secfilter.svg").exists()
    assert "It could not be run here: OSError: there is no Java" in second
    index = (tmp_path / "README.md").read_text()
    assert "[paper-001.md](paper-001.md)" in index and index.count("not run yet") == 3


def test_one_bench_may_be_short_and_the_page_says_which(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module, _ in BENCHES.values():
        monkeypatch.setitem(sys.modules, module, Fake(fails=False))
    done = CliRunner().invoke(papers, ["--short", "secfilter", "--only", "000", "--out", str(tmp_path)])
    assert done.exit_code == 0, done.output
    page = (tmp_path / "paper-000.md").read_text()
    assert "## `headgate bench plan`\n" in page and "## `headgate bench secfilter --quick`\n" in page
    assert "paper-000-secfilter.svg" in page and "paper-000-plan.svg" not in page


def test_a_span_is_of_the_rows_that_are_meant() -> None:
    rows: list[Row] = [{"a": 1, "b": "x"}, {"a": 2, "b": "y"}, {"a": None, "b": "x"}, {"a": 3.25, "b": "x"}]
    assert span("a", "ns", b="x")(Report("r", rows)) == "1 to 3.25 ns"
    assert span("a", "ns", b="y")(Report("r", rows)) == "2 ns"


def test_goals_are_found_by_how_their_names_begin() -> None:
    report = Report("r", [], [Goal("one, small", 1.5, 2, "%"), Goal("one, large", 30, 2, "%"), Goal("two", 3, 2, "s")])
    assert goals("one")(report) == "1.5 %, 30 %"
    assert goals("three")(report) == "in the table below"


def test_what_shares_in_one_level_does_not_across_levels() -> None:
    from headgate.bench.sharing import HIGH, LOW, sharing

    assert {("Q4", "Q5"), ("Q5", "Q4"), ("Q6", "Q7")} <= sharing("trusted", HIGH, HIGH)
    assert sharing("trusted", LOW, HIGH) == set()


@pytest.mark.long
def test_what_shares_in_one_level_shares_in_every_architecture_and_across_levels_nothing_does() -> None:
    from headgate.bench.harness import Silent
    from headgate.bench.sharing import run

    rows = run(True, Silent()).rows
    assert {(x["executing"], x["incoming"]) for x in rows if x["paper"] != "-"} == TABLE_2.keys()
    for x in rows:
        assert x["trusted, one level"] == x["replicated, one level"] == x["kernelized, one level"]
        assert x["trusted, two levels"] == x["replicated, two levels"] == x["kernelized, two levels"] == "-"
    shared = {(x["executing"], x["incoming"]) for x in rows if x["trusted, one level"] == "shared"}
    assert {("Q4", "Q5"), ("Q5", "Q4"), ("Q6", "Q7")} <= shared
