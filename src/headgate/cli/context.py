"""What the commands share: the places of files, the session, the format of answers and errors."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol, TypeVar

import click

from headgate.cli.place import Place as Place
from headgate.errors import HeadgateError
from headgate.plain import format_csv, format_table, json_line, visible


class Answered(Protocol):
    """The answer to a statement, from a server or from the home folder's own Headgate."""

    @property
    def text(self) -> str: ...

    @property
    def columns(self) -> tuple[str, ...]: ...

    @property
    def rows(self) -> tuple[tuple[str, ...], ...]: ...


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


_F = TypeVar("_F", bound=Callable[..., Any])


def with_forms(command: _F) -> _F:
    """Gives a command that prints tables the options --json and --csv, as the argument `form`."""
    command = click.option("--csv", "form", flag_value="csv", help="Print tables as CSV, with a line of names.")(
        command
    )
    as_json = click.option("--json", "form", flag_value="json", help="Print rows as JSON, one object a line.")
    return as_json(command)


def show(result: Answered, form: str | None = None) -> None:
    """Prints an answer. Where a program reads tables, texts that are no tables go to standard error."""
    if result.columns:
        show_rows(result.columns, result.rows, form)
    else:
        for line in result.text.split("\n"):
            say(line, err=form is not None)


def show_rows(columns: Sequence[str], rows: Sequence[Sequence[Any]], form: str | None) -> None:
    """Prints a table; a value that is no text is written as JSON writes it, with all its digits."""
    if form == "json":
        for row in rows:
            click.echo(json_line(dict(zip(columns, row, strict=True))))
    elif form == "csv":
        click.echo(format_csv([columns, *([full(cell) for cell in row] for row in rows)]))
    else:
        say_lines(format_table(columns, rows))


def full(value: object) -> str:
    """A value in a cell of CSV; NULL is an empty one."""
    return "" if value is None else value if isinstance(value, str) else json_line(value)
