"""`headgate label`: try labels out, without a store."""

from __future__ import annotations

import click

from headgate.cli.context import reported, say
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


@label.command()
@click.argument("text")
@click.option("--role", "roles", multiple=True, metavar="ROLE", help="An active role (may be repeated).")
@click.option("--level", default="U", show_default=True, help="The login level.")
@click.option("--source", "sources", multiple=True, metavar="STREAM", help="A readable source (may be repeated).")
@click.option("--levels", "chain", default="U", show_default=True, help="The order of levels, e.g. 'U < C < S'.")
def check(text: str, roles: tuple[str, ...], level: str, sources: tuple[str, ...], chain: str) -> None:
    """Say whether a label permits a clearance, and if not, why.

    \b
    Example:
      headgate label check "doctor & nurse AT S" --role doctor --level S --levels "U < S"
    """
    with reported("<label>"):
        order = _order(chain)
        clearance = Clearance(frozenset(roles), parse_level(level, order), frozenset(sources))
        reasons = Rules(order).why_denied(parse_label(text, order), clearance)
    say("denied" if reasons else "permitted")
    for reason in reasons:
        say(f"  {reason}")
