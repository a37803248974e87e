"""Options for the limits of a view, which all commands that run queries take."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

_F = TypeVar("_F", bound=Callable[..., Any])
_HELP = {
    "view_tuples": "Tuples that the windows of one reader's query may hold; default by the memory of the machine.",
    "view_rows": "Rows that it may combine or read in one batch; default by the memory of the machine.",
    "view_bytes": "Bytes that may be computed for it in one batch; default by the memory of the machine.",
    "text_bytes": "Bytes of one text; default 1,000,000.",
}


def with_limits(command: _F) -> _F:
    """The limits that are given are passed to the command by their settings' names; those that are not, as None."""
    for name, text in reversed(_HELP.items()):
        command = click.option(f"--{name.replace('_', '-')}", type=click.IntRange(1), help=text)(command)
    return command
