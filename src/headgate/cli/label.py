"""`headgate label`: try labels out, without a store."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import click

from headgate.cli.context import reported, say
from headgate.errors import HeadgateError
from headgate.labels import Clearance, LevelOrder, Rules, parse_label, parse_level


def _order(chain: str) -> LevelOrder:
    return LevelOrder.total(*(name.strip() for name in chain.split("<")))


@click.group()
def label() -> None:
    """Read labels and try clearances against them."""


@label.command()
@click.argument("text")
def normal(text: str) -> None:
    """Print the canonical form of a label.

    \b
    Example:
      headgate label normal "R1 | (R1 & R2)"
    """
    with reported("<label>"):
        say(str(parse_label(text)))


@contextmanager
def _with_levels(chain: str) -> Iterator[None]:
    """A level is known only if it was given."""
    try:
        yield
    except HeadgateError as error:
        if found := re.fullmatch("unknown level `(.+)`", error.message):
            error.hint = f'give the order of levels: --levels "{chain} < {found[1]}"'
        raise


@label.command()
@click.argument("text")
@click.option("--role", "roles", multiple=True, metavar="ROLE", help="An active role (may be repeated).")
@click.option("--level", default="U", show_default=True, help="The login level.")
@click.option("--source", "sources", multiple=True, metavar="STREAM", help="A readable source (may be repeated).")
@click.option("--levels", "chain", default="U", show_default=True, help="The order of levels, e.g. 'U < C < S'.")
def check(text: str, roles: tuple[str, ...], level: str, sources: tuple[str, ...], chain: str) -> None:
    """Say whether a label permits a clearance, and if not, why.

    It knows no store: give every role that is inherited with --role too, and the order of levels with --levels.
    `headgate access why` knows the store, and explains grants.

    \b
    Example:
      headgate label check "doctor & nurse AT S" --role doctor --level S --levels "U < S"
    """
    with reported("<label>"), _with_levels(chain):
        order = _order(chain)
        clearance = Clearance(frozenset(roles), parse_level(level, order), frozenset(sources))
        reasons = Rules(order).why_denied(parse_label(text, order), clearance)
    say("denied" if reasons else "permitted")
    for reason in reasons:
        say(f"  {reason}")
