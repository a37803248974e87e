"""`headgate`: the group that holds the commands."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from types import TracebackType
from typing import Any

import click
from click.core import ParameterSource

from headgate import __version__, logs
from headgate.cli.place import Place
from headgate.plain import visible

COMMANDS = {
    "init": (
        "headgate.cli.session",
        "init",
        "Make a new Headgate: an empty store, a key, one administrator.",
    ),
    "login": ("headgate.cli.session", "login", "Log in; later commands use this session until it ends."),
    "logout": ("headgate.cli.session", "logout", "End the session."),
    "run": ("headgate.cli.run", "run", "Run a SCRIPT of statements, then your subscriptions."),
    "serve": ("headgate.cli.serve", "serve", "Serve this home folder to clients over HTTPS."),
    "config": ("headgate.cli.serve", "config", "Show the settings of the server."),
    "shell": ("headgate.cli.shell", "shell", "Type statements and watch results, with history and completion."),
    "watch": ("headgate.cli.streams", "watch", "Show results as they come."),
    "publish": ("headgate.cli.streams", "publish", "Publish tuples to a stream."),
    "show": ("headgate.cli.show", "show_command", "Show what you may see."),
    "explain": (
        "headgate.cli.explain",
        "explain",
        "Show the plan of a query, or of all running queries.",
    ),
    "access": ("headgate.cli.access", "access", "Ask who may do what, and why."),
    "admin": ("headgate.cli.admin", "admin", "Work on a home folder itself: backup, restore, replay and more."),
    "audit": ("headgate.cli.audit", "audit", "Read and verify the audit trail."),
    "label": ("headgate.cli.label", "label", "Read and check labels."),
    "demo": ("headgate.cli.demo", "demo", "Show Headgate at work."),
    "sendlog": ("headgate.cli.sendlog", "sendlog", "Check, explain and run SeNDlog programs."),
    "why": ("headgate.cli.sendlog", "why", "Show why a SeNDlog fact holds, and verify its proof."),
    "star": ("headgate.cli.star", "star", "Run transactions with deadlines at several levels once, and watch control."),
    "deadlines": ("headgate.cli.deadlines", "deadlines", "Show how queries with deadlines did, by level."),
    "cluster": ("headgate.cli.cluster", "cluster", "Prepare a cluster of Spark for Headgate."),
    "papers": ("headgate.bench.papers", "papers", "Repeat the experiments of the five papers."),
    "bench": ("headgate.bench.command", "bench", "Measure Headgate on this machine."),
}
"""By name: the module and the function of a command, and what the list of commands says of it. A command is imported
when it is called: one that needs no engine does not wait for the engine's libraries."""


_BEFORE = ("--home", "--store", "--session", "--server", "--server-certificate")
"""Options of every command, which stand before its name."""


class _Commands(click.Group):
    """Click's errors repeat the words of a command, and unexpected errors may repeat anything: both are shown as our
    own errors are, with unprintable characters made visible."""

    def list_commands(self, context: click.Context) -> list[str]:  # noqa: ARG002
        return [*COMMANDS]

    def get_command(self, context: click.Context, name: str) -> click.Command | None:  # noqa: ARG002
        if name not in COMMANDS:
            return None
        module, function, _ = COMMANDS[name]
        command: click.Command = getattr(import_module(module), function)
        return command

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            formatter.write_dl([(name, told) for name, (_, _, told) in COMMANDS.items()])

    def main(self, *words: Any, **more: Any) -> Any:
        sys.excepthook = unforeseen
        return super().main(*words, **more)

    def make_context(self, *words: Any, **more: Any) -> click.Context:
        with _visibly():
            return super().make_context(*words, **more)

    def invoke(self, context: click.Context) -> Any:
        with _visibly():
            return super().invoke(context)


def unforeseen(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Prints an error that nothing caught, with its traceback."""
    for line in "".join(traceback.format_exception(kind, error, trace)).rstrip("\n").split("\n"):
        click.echo(visible(line), err=True)


@contextmanager
def _visibly() -> Iterator[None]:
    try:
        yield
    except click.exceptions.NoArgsIsHelpError:
        raise  # its message is our own help
    except click.NoSuchOption as error:
        if error.option_name in _BEFORE and error.ctx is not None and error.ctx.parent is not None:
            command = error.ctx.info_name
            message = f"{error.option_name} stands before the command: headgate {error.option_name} ... {command}"
            raise click.UsageError(visible(message), error.ctx) from None
        error.message = visible(error.message)  # type: ignore[misc]
        raise
    except click.ClickException as error:
        error.message = visible(error.message)  # type: ignore[misc]  # it is still what is shown
        raise


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, message="headgate %(version)s")
@click.option(
    "--home",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path(".headgate"),
    envvar="HEADGATE_HOME",
    show_default=True,
    help="Folder with the store, the audit key and the session. [env: HEADGATE_HOME]",
)
@click.option(
    "--store",
    envvar="HEADGATE_STORE",
    help="URL of the store, e.g. postgresql://USER@HOST/DATABASE; default is SQLite in the home folder. "
    "[env: HEADGATE_STORE]",
)
@click.option(
    "--session",
    "session_file",
    type=click.Path(path_type=Path, dir_okay=False),
    envvar="HEADGATE_SESSION",
    help="File that holds the session; default is `session` in the home folder. [env: HEADGATE_SESSION]",
)
@click.option(
    "--server",
    metavar="URL",
    envvar="HEADGATE_SERVER",
    help="Work at this server instead of in a home folder; https://HOST:PORT, or a name that you know. "
    "[env: HEADGATE_SERVER]",
)
@click.option(
    "--server-certificate",
    type=click.Path(path_type=Path, dir_okay=False),
    envvar="HEADGATE_SERVER_CERTIFICATE",
    help="PEM file with the server's certificate or its authority; without it the certificate that is seen first is "
    "the one that is trusted. [env: HEADGATE_SERVER_CERTIFICATE]",
)
@click.option(
    "--log-level",
    type=click.Choice(logs.LEVELS),
    default="error",
    envvar="HEADGATE_LOG_LEVEL",
    show_default=True,
    help="What `run --everyone` logs on standard error: runs, batches, failures; never values. "
    "[env: HEADGATE_LOG_LEVEL]",
)
@click.option(
    "--log-format",
    type=click.Choice(logs.FORMATS),
    default="text",
    envvar="HEADGATE_LOG_FORMAT",
    show_default=True,
    help="Lines for people, or JSON lines. [env: HEADGATE_LOG_FORMAT]",
)
@click.pass_context
def main(
    context: click.Context,
    home: Path,
    store: str | None,
    session_file: Path | None,
    server: str | None,
    server_certificate: Path | None,
    log_level: str,
    log_format: str,
) -> None:
    """Headgate: many people with different rights query the same live streams; each receives what they may see.

    \b
    A first look:
      headgate demo                          a hospital ward: four people, one shared plan
    \b
    By hand:
      headgate init --admin joe              a new, empty Headgate with its first administrator
      headgate login joe                     opens a session
      headgate run policy.cql                users, roles, streams, grants: all of it or nothing
      headgate show streams                  what you may see
      headgate explain "SELECT ..."          what a query would share, and what its results carry
      headgate access why bob "READ TUPLE" stream in1
      headgate audit verify
    \b
    Policies and networks as rules:
      headgate sendlog run reachability links.snd
      headgate why reachability links.snd --at a "reachable(a, c)"
    """
    if context.invoked_subcommand == "serve" and context.get_parameter_source("log_level") == ParameterSource.DEFAULT:
        log_level = "warning"  # nobody watches a server: what goes wrong with a source is found in its log
    logs.configure(log_level, log_format)
    context.obj = Place(home, store, session_file, server, server_certificate)
