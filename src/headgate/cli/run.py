"""`headgate run`: a script of statements, and then the queries it started at work."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from headgate.cli.aside import Aside, write_out
from headgate.cli.context import Place, pass_place, reported, show
from headgate.engine.memory import keep_freed
from headgate.engine.pipeline import Counts, forget
from headgate.plain import format_table
from headgate.service import Headgate
from headgate.service.desk import KINDS, Desk, Shown, SparkTarget
from headgate.service.processing import Unread

SHOWN = 20


@click.command()
@click.argument("script", type=click.File(encoding="utf-8"), required=False)
@click.option(
    "--follow", is_flag=True, help="Go on with what comes, until interrupted, instead of ending with what is there."
)
@click.option(
    "--everyone", is_flag=True, help="Write the results of all subscribers, not only yours (needs CHANGE SYSTEM)."
)
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    help="Write results to files below this folder, for each subscriber and stream its own.",
)
@click.option(
    "--format",
    "kind",
    type=click.Choice(sorted(KINDS)),
    default="jsonl",
    show_default=True,
    help="What these files are: JSON lines, one growing file each, or Parquet, one more file with each batch.",
)
@click.option("--to", "format_", metavar="FORMAT", help="Write results to anything Spark can write to, by its format.")
@click.option(
    "--option", "options", multiple=True, metavar="NAME=VALUE", help="An option of --to, such as path=DIR; repeatable."
)
@click.option(
    "--fresh", is_flag=True, help="Forget what was read before, and all windows: read the sources from the beginning."
)
@click.option("--master", default="local[2]", show_default=True, help="Where Spark runs.")
@pass_place
def run(
    place: Place,
    script: TextIO | None,
    follow: bool,
    everyone: bool,
    out: Path | None,
    kind: str,
    format_: str | None,
    options: tuple[str, ...],
    fresh: bool,
    master: str,
) -> None:
    """Run a SCRIPT of statements (a .cql file, or - for standard input), and the queries it starts. Without one, what
    is piped in is the script, and in a terminal there is none: what is subscribed to is run.

    All statements run, in one transaction, or none of them does; SPEC.md describes the language. If something is
    subscribed to afterwards and its streams have sources, these are read to their end, and the results printed (the
    last 20 of each stream), or all of them written to --out and --to; at the end a table says what happened. What was
    read once is not read again; a run that was interrupted goes on where it was. A source that cannot be read ends only
    what is made of it: it is named at the end, with exit code 1; with --follow it is tried again.

    \b
      headgate run ward.cql                        statements, then your results
      headgate run ward.cql --out results          the same into files
      headgate run ward.cql --to parquet --option path=results
      headgate run --everyone --follow --out results
    """
    to = _target(format_, options)
    keep_freed()
    name = getattr(script, "name", "-")
    with reported("<stdin>" if name in ("-", "<stdin>") else name), place.headgate() as headgate:
        if script is None and not everyone and not sys.stdin.isatty():
            script = sys.stdin
        if script is not None:
            try:
                text = script.read()
            except UnicodeDecodeError:
                raise click.ClickException(f"{name} is not UTF-8 text") from None
            for result in headgate.execute(place.token(), text):
                show(result)
        results = Results(out, kind, to)
        _process(place, headgate, results, follow=follow, everyone=everyone, fresh=fresh, master=master)


@dataclass(frozen=True)
class Results:
    """Where they go; nowhere: they are printed."""

    out: Path | None
    kind: str
    to: SparkTarget | None

    @property
    def printed(self) -> bool:
        return self.out is None and self.to is None


def _target(format_: str | None, options: Sequence[str]) -> SparkTarget | None:
    if format_ is None:
        if options:
            raise click.UsageError("--option is for --to, which names the format")
        return None
    pairs = [option.partition("=") for option in options]
    if not all(name and equals for name, equals, _ in pairs):  # not repeated here: it may be a password
        raise click.UsageError("an --option is written NAME=VALUE")
    return SparkTarget(format_, {name: value for name, _, value in pairs})


def _process(
    place: Place, headgate: Headgate, results: Results, *, follow: bool, everyone: bool, fresh: bool, master: str
) -> None:
    desk = Desk(headgate, place.token(), everyone=everyone)
    if not desk.has_work():
        return
    home = place.home / ("engine" if everyone else f"engine-{desk.session}")
    if fresh:
        forget(home)
    started = desk.at_work(home, results.out, kind=results.kind, to=results.to, master=master)
    with _Bar(follow) as bar, started as work, _asked_to_end() as check:
        waited: list[str] = []
        unread: list[str] = []
        printing = Aside()

        def warn() -> None:
            for line in [*work.warnings(), *desk.news(work.news())]:
                click.echo(f"warning: {line}", err=True)

        def watch() -> None:
            nonlocal waited
            bar.show(work.counts, everyone=everyone)
            waits = desk.unread(work.failed) if follow and (work.failed or waited) else []
            for line in _waiting(waited, waits):
                click.echo(line, err=True)
            waited = waits
            warn()
            if follow and results.printed:
                printing.begin(lambda: _print(desk.received(SHOWN, news=True), write_out))
            check()

        try:
            with suppress(KeyboardInterrupt):
                (work.follow if follow else work.replay)(watch)
        except Unread as error:
            unread = desk.unread(error.streams)
        bar.stop()
        warn()
        printing.finish()
        if results.printed:
            _print(desk.received(SHOWN, news=follow))
        _print(desk.summary(work.counts))
        for line in unread:
            click.echo(f"error: {line}", err=True)
        if unread:
            sys.exit(1)


def _waiting(before: Sequence[str], now: Sequence[str]) -> Iterator[str]:
    """What is new about what cannot be read, or can be again."""
    yield from (f"{line}; it is tried again" for line in now if line not in before)
    names = {line.partition(" cannot be read")[0] for line in before} - {x.partition(" cannot be read")[0] for x in now}
    yield from (f"{name} can be read again" for name in sorted(names))


def _print(tables: Iterable[Shown], write: Callable[[str], None] = click.echo) -> None:
    for title, columns, rows in tables:
        write(f"\n{title}\n{format_table(columns, rows)}")


@contextmanager
def _asked_to_end() -> Iterator[Callable[[], None]]:
    """Yields what interrupts if somebody has asked for the end, by Ctrl-C or as systems do it. Who asks is not heard in
    the middle of a word to Spark, unless it is for the second time."""
    asked: list[int] = []

    def check() -> None:
        if asked:
            raise KeyboardInterrupt

    def hear(number: int, _: object) -> None:
        check()
        asked.append(number)

    before = [(number, signal.signal(number, hear)) for number in (signal.SIGINT, signal.SIGTERM)]
    try:
        yield check
    finally:
        for number, handler in before:
            signal.signal(number, handler)


class _Bar:
    """How far it is, on standard error: the answers alone stand on standard output."""

    def __init__(self, follow: bool) -> None:
        console = Console(stderr=True)
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TimeElapsedColumn(),
            console=console,
            transient=not follow,
            disable=not console.is_terminal,
        )
        self._task = self._progress.add_task("starting Spark", total=None)

    def __enter__(self) -> _Bar:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        self._progress.stop()

    def show(self, counts: Counts, *, everyone: bool) -> None:
        """How many tuples and batches there are is for those who run the system: some may be hidden from others."""
        told = f"{counts.received.total():,} results"
        if everyone:
            told = f"{counts.tuples.total():,} tuples in {counts.batches:,} batches, {told}"
        self._progress.update(self._task, description=told)
