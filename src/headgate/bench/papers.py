"""`headgate papers [--quick] [--only 002] [--out FOLDER]`: runs every table and figure of the five papers that has
a bench, and writes a page for each paper with ours beside theirs, and an index.

A bench that cannot run here (no Java, say) is named on the page with the reason, and the others run.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path

import click

from headgate.bench import BENCHES
from headgate.bench.harness import Progress, Report, written
from headgate.bench.markdown import markdown, table
from headgate.bench.plot import draw
from headgate.bench.show import Bar
from headgate.execution.memory import keep_freed

Ours = Callable[[Report], str]
BESIDE = "in the table below"


@dataclass(frozen=True)
class Experiment:
    """A table or figure of a paper: what it shows, what the paper found, the bench that repeats it, and where in its
    report our own finding is."""

    name: str
    shows: str
    theirs: str
    bench: str
    ours: Ours = lambda _: BESIDE


@dataclass(frozen=True)
class Paper:
    """`discussed` is the page that explains where we differ; `without` are tables and figures that have no bench."""

    number: str
    title: str
    experiments: Sequence[Experiment]
    without: str
    discussed: str = ""

    @property
    def page(self) -> str:
        return f"paper-{self.number}.md"

    @property
    def benches(self) -> list[str]:
        return list(dict.fromkeys(x.bench for x in self.experiments))


def span(column: str, unit: str, **wanted: str) -> Ours:
    """The first and the last value of a column, among the rows that have these values elsewhere."""

    def found(report: Report) -> str:
        rows = [x for x in report.rows if x.get(column) is not None and wanted.items() <= x.items()]
        ends = [written(x[column]) for x in (rows[:1] + rows[-1:])]
        return f"{' to '.join(ends)} {unit}" if ends else BESIDE

    return found


PAPERS = (
    Paper(
        "000",
        "Securing the Borealis Data Stream Engine",
        (
            Experiment("Figure 11", "set-up of queries of 4 to 140 objects", "a little more than without", "plan"),
            Experiment("Figure 12", "what security adds to it", "18 to 5 %", "plan", span("overhead %", "%")),
            Experiment(
                "Figure 13",
                "labelling and filtering a tuple",
                "about 60 ns",
                "secfilter",
                span("added ns", "ns", security="label of the stream"),
            ),
            Experiment("Figure 14", "a tuple through 4 to 64 operators", "grows with operators", "secfilter"),
            Experiment(
                "Figure 15",
                "what security adds to it",
                "9 to 1 %",
                "secfilter",
                span("overhead %", "%", security="label of the stream"),
            ),
        ),
        "Figures 1 to 10 show models and scenes; the scene of Figures 8 to 10 is `headgate demo exchange`.",
    ),
    Paper(
        "001",
        "Secure Shared Continuous Query Processing",
        (Experiment("Figure 9", "sharing by users and by roles, DS1 to DS6", "in the column of the paper", "shared"),),
        "Table 1 and Figures 1 to 8 show examples and plans.",
    ),
    Paper(
        "002",
        "Multilevel Secure Data Stream Processing",
        (
            Experiment("Table 2", "which of Q1 to Q8 share operators", "in the column of the paper", "sharing"),
            Experiment("Figure 2", "replicated processors; which architecture suits", "left open", "architectures"),
        ),
        "Table 1 has the queries of both benches; Figures 1, 3 and 4 show a lattice and operator trees.",
        "mls.md",
    ),
    Paper(
        "003",
        "Unified Platform for Secure Networked Information Systems",
        (
            Experiment("Figures 5, 6", "best paths: bytes and time", "in the column of the paper", "sendlog"),
            Experiment("Figures 7 to 13", "Chord and PIER: bytes and time", "in the column", "sendlog-overlays"),
            Experiment("Figures 14, 15", "packets with provenance", "in the column", "sendlog-overlays"),
        ),
        "Figures 1 to 4 show plans and provenance (`headgate sendlog explain`, `headgate why`).",
        "sendlog.md",
    ),
    Paper(
        "004",
        "STAR: Secure Real-Time Transaction Processing with Timeliness Guarantees",
        (
            Experiment("Table 1, Figures 4 to 18", "misses, utilisation, QoS", "in the column of the paper", "star"),
            Experiment("section 3", "the same for live queries", "simulated only", "deadlines"),
        ),
        "Figures 1 to 3 show the model and the architecture.",
        "star.md",
    ),
)


@click.command()
@click.option("--quick", is_flag=True, help="Smaller sizes and fewer repetitions: minutes instead of hours.")
@click.option(
    "--only", multiple=True, type=click.Choice([x.number for x in PAPERS]), help="This paper; may be repeated."
)
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    default=Path("docs/papers"),
    show_default=True,
    help="The folder that the pages go to.",
)
def papers(quick: bool, only: tuple[str, ...], out: Path) -> None:
    """Repeat the experiments of the five papers, and write ours beside theirs."""
    keep_freed()
    for paper in PAPERS:
        if not only or paper.number in only:
            with Bar(f"paper {paper.number}") as progress:
                write_page(paper, out, progress, quick=quick)
            click.echo(f"{out / paper.page}")
    (out / "README.md").write_text(index(out), encoding="utf-8")
    click.echo(f"{out / 'README.md'}")


def write_page(paper: Paper, out: Path, progress: Progress, *, quick: bool) -> None:
    reports: dict[str, Report | str] = {}
    for bench in paper.benches:
        progress.step(bench)
        reports[bench] = run(bench, progress, quick=quick)
    (out / paper.page).write_text(page(paper, reports, out, quick=quick), encoding="utf-8")


def run(bench: str, progress: Progress, *, quick: bool) -> Report | str:
    """The report of a bench, or why there is none. Other work on the machine is part of where it was measured."""
    load = os.getloadavg()[0]
    try:
        found = import_module(BENCHES[bench][0]).run(quick, progress)
    except Exception as error:
        return f"{type(error).__name__}: {error}".splitlines()[0]
    if not isinstance(found, Report):
        raise TypeError(f"`{BENCHES[bench][0]}.run` gave no Report")
    return replace(found, environment={**found.environment, "load before it": f"{load:.1f}"})


def page(paper: Paper, reports: dict[str, Report | str], out: Path, *, quick: bool) -> str:
    rows = []
    for x in paper.experiments:
        report = reports[x.bench]
        ours = "could not be run" if isinstance(report, str) else x.ours(report)
        rows.append([x.name, x.shows, x.theirs, ours, f"`{command(x.bench, quick=quick)}`"])
    parts = [
        f"# Paper {paper.number}: {paper.title}",
        f"Written by `headgate papers{' --quick' if quick else ''}`. {paper.without}",
        table(["paper", "shows", "theirs", "ours", "command"], rows),
    ]
    for bench, report in reports.items():
        parts.append(f"## `{command(bench, quick=quick)}`")
        if isinstance(report, str):
            parts.append(f"It could not be run here: {report}")
            continue
        parts.append(markdown(report))
        if report.plots:
            drawing = f"paper-{paper.number}-{bench}.svg"
            draw(report.plots, out / drawing)
            parts.append(f"![{report.title}]({drawing})")
    if paper.discussed:
        parts.append(f"What this means, and where we differ from the paper: [{paper.discussed}]({paper.discussed}).")
    return "\n\n".join(parts) + "\n"


def command(bench: str, *, quick: bool) -> str:
    return f"headgate bench {bench}{' --quick' if quick else ''}"


_INDEX = """# The five papers, repeated

Headgate unites five published systems. `headgate papers` runs those of their tables and figures that have a bench, and
writes these pages, ours beside theirs. `--quick` takes smaller sizes, `--only 002` one paper.

{}
"""


def index(out: Path) -> str:
    """All papers, and the pages that are there."""
    rows = []
    for paper in PAPERS:
        measured = f"[{paper.page}]({paper.page})" if (out / paper.page).exists() else "not run yet"
        names = "; ".join(x.name for x in paper.experiments)
        discussed = f"[{paper.discussed}]({paper.discussed})" if paper.discussed else ""
        rows.append([paper.number, paper.title, names, measured, discussed])
    return _INDEX.format(table(["paper", "title", "tables and figures", "measured", "discussed"], rows))
