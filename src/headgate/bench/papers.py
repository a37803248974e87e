"""`headgate papers [--quick] [--short deadlines] [--only 002] [--out FOLDER]`: runs every table and figure of the five
papers that has a bench, and writes a page for each paper with ours beside theirs, and an index.

A bench that cannot run here (no Java, say) is named on the page with the reason, and the others run.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import click

from headgate.bench import BENCHES
from headgate.bench.harness import Progress, Report
from headgate.bench.markdown import markdown, table
from headgate.bench.paper_figures import PAPERS, Paper
from headgate.bench.plot import draw
from headgate.bench.show import Bar
from headgate.execution.memory import keep_freed


@click.command()
@click.option("--quick", is_flag=True, help="Smaller sizes and fewer repetitions: minutes instead of hours.")
@click.option(
    "--short",
    multiple=True,
    type=click.Choice([bench for paper in PAPERS for bench in paper.benches]),
    help="This bench in its short form, the others whole; may be repeated.",
)
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
def papers(quick: bool, short: tuple[str, ...], only: tuple[str, ...], out: Path) -> None:
    """Repeat the experiments of the five papers, and write ours beside theirs."""
    keep_freed()
    brief = frozenset(BENCHES if quick else short)
    for paper in PAPERS:
        if not only or paper.number in only:
            with Bar(f"paper {paper.number}") as progress:
                write_page(paper, out, progress, brief)
            click.echo(f"{out / paper.page}")
    (out / "README.md").write_text(index(out), encoding="utf-8")
    click.echo(f"{out / 'README.md'}")


def write_page(paper: Paper, out: Path, progress: Progress, short: Collection[str]) -> None:
    """The benches in `short` are run in their short form."""
    reports: dict[str, Report | str] = {}
    for bench in paper.benches:
        progress.step(bench)
        reports[bench] = run(bench, progress, quick=bench in short)
    (out / paper.page).write_text(page(paper, reports, out, short), encoding="utf-8")


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


def page(paper: Paper, reports: dict[str, Report | str], out: Path, short: Collection[str]) -> str:
    rows = []
    for x in paper.experiments:
        report = reports[x.bench]
        ours = "could not be run" if isinstance(report, str) else x.ours(report)
        rows.append([x.name, x.shows, x.theirs, ours, f"`{command(x.bench, short)}`"])
    parts = [
        f"# Paper {paper.number}: {paper.title}",
        f"Written by `headgate papers`. {paper.without}",
        table(["paper", "shows", "theirs", "ours", "command"], rows),
    ]
    for bench, report in reports.items():
        parts.append(f"## `{command(bench, short)}`")
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


def command(bench: str, short: Collection[str]) -> str:
    return f"headgate bench {bench}{' --quick' if bench in short else ''}"


_INDEX = """# The five papers, repeated

Headgate unites five published systems. `headgate papers` runs those of their tables and figures that have a bench, and
writes these pages, ours beside theirs. `--quick` takes smaller sizes, `--short star` those of one bench, `--only 002`
one paper. Each page names the commands that were run.

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
