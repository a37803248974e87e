"""`headgate run`: runs a script of statements, and then the queries it started."""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import click

from headgate import logs
from headgate.cli.aside import Aside, write_out
from headgate.cli.context import Place, complain, full, pass_place, reported, say, show, with_forms
from headgate.cli.limit_options import with_limits
from headgate.cli.progress import Bar
from headgate.cli.state_place import place_of, with_place
from headgate.errors import HeadgateError
from headgate.execution.memory import keep_freed
from headgate.home import is_served
from headgate.ingress.spark_settings import SparkSettings, spark_settings
from headgate.model.limits import Limits
from headgate.plain import format_csv, format_table, json_line, visible
from headgate.recovery.deadlines import Governing
from headgate.recovery.home import forget
from headgate.server.settings import read_settings
from headgate.service import Headgate
from headgate.service.run_client import KINDS, RunClient, Shown, SparkTarget
from headgate.service.runs import Execution, Processing, Unread
from headgate.stores import StateLocation

SHOWN = 20
UNREAD, ENDED, INTERRUPTED = 1, 3, 128
"""Exit codes: a source could not be read; a query ended before its streams did; and, with the signal's number added,
somebody interrupted a run that would have ended by itself (Ctrl-C: 130)."""


@click.command()
@click.argument("script", required=False)
@click.option("--statements-only", is_flag=True, help="Run the statements of the script and read no sources.")
@click.option("--follow", is_flag=True, help="Keep processing new data until interrupted.")
@click.option(
    "--everyone", is_flag=True, help="Write the results of all subscribers, not only yours (needs CHANGE SYSTEM)."
)
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    help="Write results to files below this folder, one for each subscriber and stream.",
)
@click.option(
    "--format",
    "kind",
    type=click.Choice(sorted(KINDS)),
    default="jsonl",
    show_default=True,
    help="The format of these files: JSON lines (one growing file) or Parquet (16,384 results a file; the last grows).",
)
@click.option("--to", "format_", metavar="FORMAT", help="Write results to anything Spark can write to, by its format.")
@click.option(
    "--option", "options", multiple=True, metavar="NAME=VALUE", help="An option of --to, such as path=DIR; repeatable."
)
@click.option(
    "--options-from",
    "options_file",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    help="A file with options of --to, NAME=VALUE a line, for passwords: other users can list the words of a command. "
    "The environment may hold them too. [env: HEADGATE_OPTIONS]",
)
@click.option("--fresh", is_flag=True, help="Forget all progress and all windows: read the sources from the beginning.")
@click.option(
    "--take-over", is_flag=True, help="Continue in the place of a process that hangs: it ends as soon as it goes on."
)
@click.option("--master", help="Where Spark runs: local[2] unless `spark-submit` says otherwise, or spark://HOST:PORT.")
@click.option("--conf", "conf", multiple=True, metavar="NAME=VALUE", help="A setting of Spark; repeatable.")
@click.option(
    "--conf-from",
    "conf_file",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    help="A file with settings of Spark, NAME VALUE a line, for secrets too: nobody else sees them.",
)
@click.option(
    "--execution",
    type=click.Choice(["auto", "driver", "tasks"]),
    default="auto",
    show_default=True,
    help="Where windows and joins are computed: in this process, in Spark's tasks, or where their size suggests.",
)
@click.option(
    "--partitions",
    type=click.IntRange(1, 1000),
    default=8,
    show_default=True,
    help="In how many parts tasks compute them, where the queries allow it.",
)
@with_limits
@with_place
@with_forms
@pass_place
def run(
    place: Place,
    /,
    script: str | None,
    statements_only: bool,
    follow: bool,
    everyone: bool,
    out: Path | None,
    kind: str,
    format_: str | None,
    options: tuple[str, ...],
    options_file: Path | None,
    fresh: bool,
    take_over: bool,
    master: str | None,
    conf: tuple[str, ...],
    conf_file: Path | None,
    execution: str,
    partitions: int,
    state: str | None,
    state_options: Path | None,
    form: str | None,
    **limits: object,
) -> None:
    """Run a SCRIPT of statements (a .cql file, or - for standard input), then the queries you have subscribed to.

    Without SCRIPT, the command reads statements from a pipe; in a terminal it runs your subscriptions alone.

    Either all statements run, in one transaction, or none; SPEC.md describes the language. Then the command reads the
    sources of the streams you have subscribed to, to their end. It prints the results (the last 20 of each stream), or
    writes all of them to --out and --to, and ends with a summary. Data that was read once is not read again; an
    interrupted run continues where it was. A source that cannot be read ends only the queries that read it; the
    command names it at the end, or tries it again with --follow. Without a terminal, --follow and --everyone report on
    standard error when they are ready, and their progress. Limits that are not given here come from HEADGATE_SERVE_...
    and from server.toml in the home folder; `headgate config` shows them.

    \b
    Exit codes:
      0    everything was read to its end, or --follow was asked to end
      1    a statement was refused, or a source or file could not be read
      2    the command was not understood
      3    a query ended before its streams did; the summary names it with the reason
      130  interrupted by Ctrl-C (143: by SIGTERM) before the end; the same command continues

    \b
      headgate run ward.cql                        statements, then your results
      headgate run ward.cql --statements-only      statements alone
      headgate run ward.cql --out results          the same into files
      headgate run ward.cql --to parquet --option path=results
      headgate run --everyone --follow --out results
    """
    to = _target(format_, options, options_file)
    if take_over and fresh:
        raise click.UsageError("--take-over continues what another process did; end that process before --fresh")
    if statements_only and (follow or everyone or out or to or fresh):
        raise click.UsageError("--statements-only reads no sources, so it takes no option about sources or results")
    keep_freed()
    if script is None and not everyone and (statements_only or not sys.stdin.isatty()):
        script = "-"
    name = "<stdin>" if script == "-" else script or ""
    with reported(name):
        text = None if script is None else _text(script, name)
    if place.server is not None or is_served(place.home):
        if follow or everyone or out or to or fresh:
            raise click.UsageError("at a server only a script is run; `headgate watch` shows results")
        with reported(name), place.answering() as server:
            for result in server.execute(place.token(), text) if text is not None else ():
                show(result, form)
        return
    with reported(name), place.headgate() as headgate:
        for result in headgate.execute(place.token(), text) if text is not None else ():
            show(result, form)
        if statements_only:
            return
        engine = _EngineOptions(
            master,
            spark_settings(conf, conf_file),
            Execution(execution, partitions),
            read_settings(place.home, limits).limits,
            place_of(state, state_options),
        )
        results = ResultsTarget(out, kind, to, form)
        _process(place, headgate, results, engine, follow=follow, everyone=everyone, fresh=fresh, take_over=take_over)


def _text(script: str, name: str) -> str:
    """The statements of a script; `-` is standard input."""
    try:
        return sys.stdin.read() if script == "-" else Path(script).read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise HeadgateError(f"cannot read script `{name}`: it is not UTF-8 text", hint="save it as UTF-8") from None
    except OSError as error:
        hint = "give the path of a file, or - for standard input"
        if " " in script:
            hint = "for one statement: `headgate show ...`, or `echo ... | headgate run -`"
        raise HeadgateError(
            f"cannot read script `{name}`: {(error.strerror or str(error)).lower()}", hint=hint
        ) from None


@dataclass(frozen=True)
class ResultsTarget:
    """Where results go; without a destination they are printed, for people or in a `form` for programs."""

    out: Path | None
    kind: str
    to: SparkTarget | None
    form: str | None = None

    @property
    def printed(self) -> bool:
        return self.out is None and self.to is None


@dataclass(frozen=True)
class _EngineOptions:
    """Where Spark runs, its settings, where in it operators run, the limits of each view, and where the state is."""

    master: str | None
    settings: SparkSettings
    execution: Execution
    limits: Limits
    state: StateLocation | None


def _target(format_: str | None, options: Sequence[str], file: Path | None) -> SparkTarget | None:
    """If an option is given in several ways, the command line overrides the file and the environment."""
    if format_ is None:
        if options or file:
            raise click.UsageError("--option and --options-from are for --to, which names the format")
        return None
    try:
        written = file.read_text(encoding="utf-8") if file else ""
    except (OSError, UnicodeDecodeError):
        raise click.UsageError(f"cannot read `{file}`: it is not text") from None
    given = _options("HEADGATE_OPTIONS", os.environ.get("HEADGATE_OPTIONS", "").splitlines())
    given |= _options(f"`{file}`", written.splitlines())
    return SparkTarget(format_, given | _options("--option", options))


def _options(where: str, lines: Sequence[str]) -> dict[str, str]:
    pairs = [line.strip().partition("=") for line in lines if line.strip()]
    if not all(name and equals for name, equals, _ in pairs):  # not repeated here: it may be a password
        raise click.UsageError(f"cannot read the options in {where}: write each as NAME=VALUE")
    return {name: value for name, _, value in pairs}


def _process(
    place: Place,
    headgate: Headgate,
    results: ResultsTarget,
    engine: _EngineOptions,
    *,
    follow: bool,
    everyone: bool,
    fresh: bool,
    take_over: bool,
) -> None:
    client = RunClient(headgate, place.token(), everyone=everyone)
    if not everyone:
        logs.silence()
    _tell(client.left_alone())
    if not (everyone and follow) and not client.has_work():  # a service waits for subscriptions too
        return
    home = client.home(place.home)
    where = engine.state and engine.state.below(home.name)  # each person's runs have a state of their own there
    if fresh:
        forget(home, where)
    started = client.at_work(
        home,
        results.out,
        kind=results.kind,
        to=results.to,
        master=engine.master,
        settings=engine.settings,
        execution=engine.execution,
        limits=engine.limits,
        place=where,
        take_over=take_over,
        governing=Governing() if follow else None,
    )
    with Bar(follow=follow, everyone=everyone) as bar, started as work, _asked_to_end() as asked:
        unread: list[str] = []
        printing = Aside()
        news = _News(client, work)

        def watch() -> None:
            bar.show(work.counts)
            if follow:
                news.tell(failures=not asked.pending)
            _warn(client, work)
            if follow and results.printed:
                printing.begin(lambda: _print_results(client, results.form, write_out, news=True))
            asked.check()

        try:
            (work.follow if follow else work.replay)(watch)
            asked.ended = True
        except KeyboardInterrupt:
            asked.note(signal.SIGINT)  # also if another handler than ours has raised it
        except Unread as error:
            unread = client.unread(error.streams)
            asked.ended = True
        work.stop()  # before the last messages, so that nothing comes after them
        bar.stop()
        _warn(client, work)
        printing.finish()
        if results.printed:
            _print_results(client, results.form, click.echo, news=follow)
        _print(client.summary(work.counts), click.echo if results.form is None else _aside)
        for line in unread:
            complain(line)
        if asked.interrupted and not follow:
            say(f"interrupted: {_kept(results)}", err=True)
            sys.exit(INTERRUPTED + asked.interrupted)
        sys.exit(UNREAD if unread else ENDED if work.counts.ended else 0)


def _warn(client: RunClient, work: Processing) -> None:
    warnings = [*work.warnings(), *client.news(work.news())]
    _tell((*work.notices(), *(f"warning: {x}" for x in warnings)))


def _tell(lines: Iterable[str]) -> None:
    for line in lines:
        say(line, err=True)


def _kept(results: ResultsTarget) -> str:
    """What an interruption leaves, and how to continue."""
    shown = "the results so far are printed above" if results.printed else "the results so far are written"
    return f"{shown} and do not come again; the same command continues after them, with --fresh from the beginning"


class _News:
    """Messages while streams are followed, each printed once: streams that cannot be read, and queries that ended."""

    def __init__(self, client: RunClient, work: Processing) -> None:
        self._client = client
        self._work = work
        self._waits: list[str] = []
        self._ended: set[tuple[str, ...]] = set()

    def tell(self, *, failures: bool = True) -> None:
        """Without `failures`, new failures of sources are not printed: a signal that asks the run to end may have ended
        Spark too."""
        failed = self._work.failed
        waits = self._client.unread(failed) if failed or self._waits else []
        for line in _waiting(self._waits, waits):
            if failures or line.endswith(_AGAIN):
                say(line, err=True)
        self._waits = waits
        for ended in (x for x in self._client.ended(self._work.counts) if x not in self._ended):
            self._ended.add(ended)
            query, owner, subscriber, why = ended
            say(f"query {query} of {owner} ended for {subscriber}: {why}", err=True)


_AGAIN = " can be read again"


def _waiting(before: Sequence[str], now: Sequence[str]) -> Iterator[str]:
    """Messages about streams that cannot be read now, or can be read again."""
    yield from (f"{line}; it is tried again" for line in now if line not in before)
    yield from (f"{name}{_AGAIN}" for name in sorted(set(map(_named, before)) - set(map(_named, now))))


def _named(line: str) -> str:
    """The stream that a message is about."""
    found = re.match(r"cannot read (stream .+?) (?:as `|any further)|(.+): an input stream is unavailable$", line)
    return (found[1] or found[2]) if found else line


def _print(tables: Iterable[Shown], write: Callable[[str], None] = click.echo) -> None:
    for title, columns, rows in tables:
        write("\n".join(("", visible(title), format_table(columns, rows))))


def _aside(text: str) -> None:
    """Where a program reads results, the summary is for whoever looks on."""
    click.echo(text, err=True)


def _print_results(client: RunClient, form: str | None, write: Callable[[str], None], *, news: bool) -> None:
    """Results for people are the last ones of each stream; for programs all of them, with all digits."""
    if form is None:
        _print(client.received(SHOWN, news=news), write)
        return
    for stream, columns, rows in client.rows(news=news):
        if form == "json":
            for time, *values in rows:
                known = {"stream": stream, "time": time, "values": dict(zip(columns, values, strict=True))}
                write(json_line(known))
        elif rows:
            cells = [[stream, *map(full, row)] for row in rows]
            write(format_csv([["stream", "time", *columns], *cells]))


class _Asked:
    """Whether the user (Ctrl-C) or the system has asked the run to end, and by which signal. A request does not
    interrupt a call to Spark, unless it is the second one."""

    def __init__(self) -> None:
        self._signal = 0
        self.ended = False
        """The run ended by itself."""

    @property
    def pending(self) -> bool:
        """The run was asked to end."""
        return self._signal != 0

    @property
    def interrupted(self) -> int:
        """The signal that ended the run, or 0."""
        return 0 if self.ended else self._signal

    def check(self) -> None:
        if self._signal:
            raise KeyboardInterrupt

    def note(self, number: int) -> None:
        """The first signal is the one that ends the run."""
        self._signal = self._signal or number

    def hear(self, number: int, _: object) -> None:
        self.check()
        self.note(number)


@contextmanager
def _asked_to_end() -> Iterator[_Asked]:
    asked = _Asked()
    before = [(number, signal.signal(number, asked.hear)) for number in (signal.SIGINT, signal.SIGTERM)]
    try:
        yield asked
    finally:
        for number, handler in before:
            signal.signal(number, handler)
