"""`headgate demo`: the main job as far as it exists."""

from __future__ import annotations

import click

from headgate.cli.context import reported
from headgate.demo.exchange import tell


@click.command()
def demo() -> None:
    """Play the stock exchange: four people, two price feeds, one shared result, and a revocation.

    Runs in a temporary folder and leaves nothing behind.
    """
    with reported():
        for line in tell():
            click.echo(line)
