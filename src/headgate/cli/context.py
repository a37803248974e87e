"""What the commands share: where Headgate lives, who is logged in, how answers and errors look."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import click

from headgate.access.request import Result
from headgate.cli.place import Place as Place
from headgate.errors import HeadgateError
from headgate.plain import format_table, visible

pass_place = click.make_pass_decorator(Place)


def say(line: str, *, err: bool = False) -> None:
    """All that a command prints goes through here, a line at a time: whatever it repeats, nothing of it acts on the
    terminal, and it remains one line."""
    click.echo(visible(line), err=err)


def say_lines(text: str) -> None:
    """A text of ours that has lines, such as a table."""
    for line in text.split("\n"):
        say(line)


def complain(line: str) -> None:
    say(f"error: {line}", err=True)


@contextmanager
def reported(file: str = "") -> Iterator[None]:
    """Our errors, and those of files, end the command with one line on standard error, and with exit code 1; Ctrl-C
    does with 130."""
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
        if error.filename is None:  # of no file, such as a reader of the answers who has left
            raise
        complain(f"`{error.filename}` cannot be used: {error.strerror or error}")
        sys.exit(1)
    except KeyboardInterrupt:
        say("interrupted", err=True)
        sys.exit(130)


def read_password(prompt: str, *, confirm: bool = False) -> str:
    """From HEADGATE_PASSWORD, or typed without being shown; never from an argument, which others could list."""
    given = os.environ.get("HEADGATE_PASSWORD")
    if given is not None:
        return given
    return str(click.prompt(visible(prompt), hide_input=True, confirmation_prompt=confirm, err=True))


def show(result: Result) -> None:
    if result.columns:
        say_lines(format_table(result.columns, result.rows))
    else:
        say_lines(result.text)
