"""What the commands share: the places of files, the session, the format of answers and errors."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from headgate.cli.place import Place as Place
from headgate.errors import HeadgateError
from headgate.plain import format_table, visible

if TYPE_CHECKING:  # commands without a store start without its libraries
    from headgate.access.request import Result

pass_place = click.make_pass_decorator(Place)


def say(line: str, *, err: bool = False) -> None:
    """Prints a line; all output of commands passes here. Whatever text a line repeats, it has no effect on the terminal
    and remains one line."""
    click.echo(visible(line), err=err)


def say_lines(text: str) -> None:
    """Prints a text of ours that has several lines, such as a table."""
    for line in text.split("\n"):
        say(line)


def complain(line: str) -> None:
    say(f"error: {line}", err=True)


@contextmanager
def reported(file: str = "") -> Iterator[None]:
    """Our errors, and those of files, end the command with one line on standard error and exit code 1; Ctrl-C ends it
    with 130."""
    try:
        yield
    except HeadgateError as error:
        where = ""
        if error.position is not None:
            where = f"{file or '<text>'}:{error.position.line}:{error.position.column}: "
        hint = f" ({error.hint})" if error.hint else ""
        complain(f"{where}{error.message}{hint}")
        sys.exit(1)
    except OSError as error:
        if error.filename is None:  # no file, such as a closed output pipe
            raise
        complain(f"cannot use `{error.filename}`: {error.strerror or error}")
        sys.exit(1)
    except KeyboardInterrupt:
        say("interrupted", err=True)
        sys.exit(130)


def read_password(prompt: str, *, confirm: bool = False) -> str:
    """Reads HEADGATE_PASSWORD, or prompts without echo; never an argument, which other users could list."""
    given = os.environ.get("HEADGATE_PASSWORD")
    if given is not None:
        return given
    return str(click.prompt(visible(prompt), hide_input=True, confirmation_prompt=confirm, err=True))


def show(result: Result) -> None:
    if result.columns:
        say_lines(format_table(result.columns, result.rows))
    else:
        say_lines(result.text)
