"""`headgate bench NAME [--quick] [--markdown] [--json FILE] [--plot FILE]`.

A bench is imported when it is called, so listing them imports none.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import click

from headgate.bench import BENCHES
from headgate.bench.harness import Report
from headgate.bench.markdown import markdown
from headgate.bench.show import Bar, console_for_reports, show
from headgate.execution.memory import keep_freed


class _Benches(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return [*BENCHES]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        return _command(cmd_name, *BENCHES[cmd_name]) if cmd_name in BENCHES else None


@click.command(cls=_Benches, name="bench")
def bench() -> None:
    """Measure Headgate on this machine.

    Each bench prints a table of what it measured, the goals it was held against, and notes on the method. A goal
    that does not hold is said so and does not change the exit code: a bench measures, tests decide.

    \b
      headgate bench labels --quick
      headgate bench labels --json labels.json
      headgate bench labels --markdown --plot labels.svg
    """


def _command(name: str, module: str, summary: str) -> click.Command:
    @click.command(name, help=summary)
    @click.option("--quick", is_flag=True, help="Smaller sizes and fewer repetitions: seconds instead of minutes.")
    @click.option(
        "--json",
        "file",
        type=click.Path(dir_okay=False, writable=True, path_type=Path),
        callback=_in_a_directory,
        metavar="FILE",
        help="Also write the report to FILE as JSON.",
    )
    @click.option(
        "--plot",
        "drawing",
        type=click.Path(dir_okay=False, writable=True, path_type=Path),
        callback=_in_a_directory,
        default=f"bench-{name}.svg",
        show_default=True,
        metavar="FILE",
        help="Draw the report to FILE as SVG.",
    )
    @click.option("--markdown", "as_markdown", is_flag=True, help="Print the report as Markdown, to be pasted.")
    def command(quick: bool, file: Path | None, drawing: Path, as_markdown: bool) -> None:
        keep_freed()  # as the engine does when it runs
        with Bar(name) as progress:
            report = import_module(module).run(quick, progress)
        if not isinstance(report, Report):
            raise TypeError(f"`{module}.run` gave no Report")
        if as_markdown:
            click.echo(markdown(report))
        else:
            show(report, console_for_reports())
        if file is not None:
            file.write_text(report.to_json(name, quick=quick) + "\n", encoding="utf-8")
        if report.plots:
            import_module("headgate.bench.plot").draw(report.plots, drawing)
            click.echo(f"The plot is in {drawing}.", err=as_markdown)

    return command


def _in_a_directory(ctx: click.Context, option: click.Parameter, file: Path | None) -> Path | None:
    """Refuses a file that cannot be written before the minutes of measuring, not after."""
    if file is not None and not file.absolute().parent.is_dir():
        raise click.BadParameter(f"`{file.parent}` is not a directory", ctx, option)
    return file
