"""`headgate show`."""

from __future__ import annotations

import click

from headgate.cli.context import Place, pass_place, reported, show, with_forms


@click.command("show")
@click.argument("what", nargs=-1)
@with_forms
@pass_place
def show_command(place: Place, what: tuple[str, ...], form: str | None) -> None:
    """Show WHAT you may see: catalog (default), schemas, streams, queries, operators, users, roles,
    separations, levels, compartments, grants, permissions, policies, statements, session,
    sessions, subscriptions, system, audit.

    The words are those of the statement SHOW: `headgate show grants on stream in1`, `headgate show audit limit 10`.
    """
    with reported(), place.answering() as headgate:
        for result in headgate.execute(place.token(), f"SHOW {' '.join(what) or 'CATALOG'}"):
            show(result, form)
