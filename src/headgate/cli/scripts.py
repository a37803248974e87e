"""`headgate run` and `headgate show`."""

from __future__ import annotations

from typing import TextIO

import click

from headgate.cli.context import Place, pass_place, reported, show


@click.command()
@click.argument("script", type=click.File(encoding="utf-8"), default="-")
@pass_place
def run(place: Place, script: TextIO) -> None:
    """Run a SCRIPT of statements (a .cql file, or - for standard input).

    All of it runs, in one transaction, or none of it does. SPEC.md describes the language.
    """
    name = getattr(script, "name", "-")
    with reported("<stdin>" if name in ("-", "<stdin>") else name):
        try:
            text = script.read()
        except UnicodeDecodeError:
            raise click.ClickException(f"{name} is not UTF-8 text") from None
        with place.headgate() as headgate:
            for result in headgate.execute(place.token(), text):
                show(result)


@click.command("show")
@click.argument("what", nargs=-1)
@pass_place
def show_command(place: Place, what: tuple[str, ...]) -> None:
    """Show WHAT you may see: catalog (default), schemas, streams, queries, operators, users, roles, levels, grants,
    permissions, session, sessions, system, audit.

    The words are those of the statement SHOW: `headgate show grants on stream in1`, `headgate show audit limit 10`.
    """
    with reported(), place.headgate() as headgate:
        for result in headgate.execute(place.token(), f"SHOW {' '.join(what) or 'CATALOG'}"):
            show(result)
