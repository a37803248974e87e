"""The options of commands that say where the state is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from headgate.errors import HeadgateError
from headgate.stores import StateLocation


def with_place(command: Callable[..., Any]) -> Callable[..., Any]:
    """Gives a command `state` and `state_options`."""
    state = click.option(
        "--state",
        metavar="URI",
        help="Where the state is, if not in the home folder: file:///FOLDER that machines share, or s3://BUCKET/FOLDER.",
    )
    options = click.option(
        "--state-options",
        type=click.Path(path_type=Path, dir_okay=False, exists=True),
        help="A file with options of that store, NAME=VALUE a line, such as access_key, secret_key and endpoint.",
    )
    return state(options(command))


def place_of(state: str | None, file: Path | None) -> StateLocation | None:
    if state is None:
        if file is not None:
            raise HeadgateError("cannot use --state-options without --state")
        return None
    try:
        lines = file.read_text(encoding="utf-8").splitlines() if file is not None else []
    except (OSError, UnicodeDecodeError):
        raise HeadgateError(f"cannot read `{file}`: it is not text") from None
    pairs = [line.strip().partition("=") for line in lines if line.strip() and not line.strip().startswith("#")]
    if not all(name and equals for name, equals, _ in pairs):  # not repeated here: it may be a secret
        raise HeadgateError(f"cannot read the options in `{file}`: write each as NAME=VALUE")
    return StateLocation(state, {name.strip(): value.strip() for name, _, value in pairs})
