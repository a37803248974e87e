"""Reports and progress on a terminal."""

from __future__ import annotations

from types import TracebackType

from rich.box import SIMPLE
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as RichProgress
from rich.table import Table

from headgate.bench.harness import Report, Value, written

_FILE_WIDTH = 120


class Bar:
    """Progress as a bar on standard error, so that standard output holds the report alone."""

    def __init__(self, title: str) -> None:
        self._bar = RichProgress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=Console(stderr=True),
            transient=True,
        )
        self._task = self._bar.add_task(title, total=None)
        self._expected = 0
        self._begun = False

    def __enter__(self) -> Bar:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def expect(self, steps: int) -> None:
        self._expected += steps
        self._bar.update(self._task, total=self._expected)

    def step(self, doing: str) -> None:
        self._bar.update(self._task, description=doing, advance=1 if self._begun else 0)
        self._begun = True


def console_for_reports() -> Console:
    """Standard output; wide enough for a whole table where it is a file, not a terminal."""
    console = Console()
    return console if console.is_terminal else Console(width=_FILE_WIDTH)


def show(report: Report, console: Console) -> None:
    """Rows, goals, notes, and where it was measured."""
    console.print(_rows(report))
    if report.goals:
        console.print(_goals(report))
    for note in report.notes:
        console.print(f"- {escape(note)}")
    console.print(escape(", ".join(f"{name} {value}" for name, value in report.environment.items())), style="dim")


def _rows(report: Report) -> Table:
    table = Table(title=escape(report.title), title_justify="left", box=SIMPLE, padding=(0, 1))
    for column in report.columns():
        table.add_column(escape(column), justify="right" if report.numeric(column) else "left")
    for row in report.rows:
        table.add_row(*(_cell(row.get(column)) for column in report.columns()))
    return table


def _goals(report: Report) -> Table:
    table = Table("goal", "measured", "wanted", "", title="Goals", title_justify="left", box=SIMPLE)
    for goal in report.goals:
        table.add_row(
            escape(goal.name),
            f"{_cell(goal.measured)} {escape(goal.unit)}",
            f"{goal.comparison} {_cell(goal.goal)} {escape(goal.unit)}",
            "[green]holds[/]" if goal.holds else "[bold red]does not hold[/]",
        )
    return table


def _cell(value: Value) -> str:
    return escape(written(value))
