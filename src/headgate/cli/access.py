"""`headgate access why`: which roles, grants and rules decide."""

from __future__ import annotations

from typing import TypeVar

import click

from headgate.access.permissions import Permission
from headgate.cli.context import Place, pass_place, reported, say
from headgate.cql.reading import all_of, target
from headgate.cql.rights import permission as read_permission

T = TypeVar("T")


@click.group()
def access() -> None:
    """Explain decisions."""


@access.command()
@click.argument("user")
@click.argument("permission")
@click.argument("object", nargs=-1, required=True)
@pass_place
def why(place: Place, user: str, permission: str, object: tuple[str, ...]) -> None:  # noqa: A002
    """Say why USER is granted or denied PERMISSION on OBJECT.

    OBJECT is written as in GRANT: `system`, `stream in1`, `stream joe.in1`, `operator join`. The answer is for the
    user with all its roles, at its clearance. You may ask for yourself, or with VIEW AUDIT for others.

    \b
    Example:
      headgate access why bob "READ TUPLE" stream in1
    """
    with reported("<arguments>"):
        wanted = Permission(all_of(permission.replace("_", " "), read_permission))
        thing = all_of(" ".join(object), target)
        with place.answering() as headgate:
            found = headgate.why(place.token(), user, wanted, thing)
    decision = found.decision
    say(f"{'GRANTED' if decision else 'DENIED'}: {user} {decision.permission} on {decision.object}")
    say(f"  because {decision.reason}")
    for line in found.details:
        say(f"  {line}")
