"""`headgate init`, `headgate login`, `headgate logout`."""

from __future__ import annotations

import os

import click

from headgate.cli.context import Place, pass_place, read_password, reported, say
from headgate.errors import AuthenticationFailed, HeadgateError
from headgate.labels import parse_level


@click.command()
@click.option("--admin", required=True, metavar="NAME", help="The first administrator.")
@pass_place
def init(place: Place, admin: str) -> None:
    """Make a new Headgate: an empty store, an audit key, and one administrator.

    The password is asked for, or taken from HEADGATE_PASSWORD. Keep a copy of audit.key: without it the audit trail
    cannot be verified.
    """
    with reported():
        password = read_password(f"Password for {admin}", confirm=True)
        with place.headgate_for_operator(create=True) as headgate:
            headgate.initialise(admin, password)
    say(f"Headgate is ready in {place.home}; log in with: headgate login {admin}")


@click.command()
@click.argument("user")
@click.option("--role", "roles", multiple=True, metavar="ROLE", help="Activate only this role (may be repeated).")
@click.option("--level", metavar="LEVEL", help="Log in at this level; default is your clearance.")
@click.option(
    "--as",
    "name",
    default="",
    metavar="NAME",
    help="Call the server NAME from now on: `--server NAME` is this session there.",
)
@pass_place
def login(place: Place, user: str, roles: tuple[str, ...], level: str | None, name: str) -> None:
    """Open a session for USER.

    By default all of the user's roles become active, at the user's clearance. The password is asked for, or taken
    from HEADGATE_PASSWORD.
    """
    with reported():
        wanted = parse_level(level) if level else None
        password = read_password(f"Password for {user}")
        with place.answering() as headgate:
            chosen = frozenset(roles) if roles else None
            token = headgate.login(user, password, roles=chosen, level=wanted, source=f"uid {os.getuid()}")
            try:
                place.keep_token(token, name)
            except (OSError, HeadgateError):  # do not leave a session open that nobody can use
                headgate.logout(token)
                raise
    say(f"{user} is logged in")


@click.command()
@pass_place
def logout(place: Place) -> None:
    """End the session."""
    with reported(), place.answering() as headgate:
        token = place.token()
        place.forget_token()
        try:
            headgate.logout(token)
        except AuthenticationFailed:
            say("the session had already ended")
            return
    say("logged out")
