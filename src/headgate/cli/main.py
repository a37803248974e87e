"""`headgate`: the group that holds the commands."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

import click

from headgate import __version__
from headgate.bench.command import bench
from headgate.cli.access import access
from headgate.cli.audit import audit
from headgate.cli.context import Place, say
from headgate.cli.demo import demo
from headgate.cli.explain import explain
from headgate.cli.label import label
from headgate.cli.run import run
from headgate.cli.session import init, login, logout
from headgate.cli.show import show_command
from headgate.plain import visible


class _Commands(click.Group):
    """Click's errors repeat the words of a command, and unexpected errors may repeat anything: both are shown as our
    own errors are, with unprintable characters made visible."""

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
        say(line, err=True)


@contextmanager
def _visibly() -> Iterator[None]:
    try:
        yield
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
@click.pass_context
def main(context: click.Context, home: Path, store: str | None, session_file: Path | None) -> None:
    """Headgate: many people, different rights, the same live streams; everyone gets what they may see.

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
    """
    context.obj = Place(home, store, session_file or home / "session")


for command in (init, login, logout, run, show_command, explain, access, audit, label, demo, bench):
    main.add_command(command)
