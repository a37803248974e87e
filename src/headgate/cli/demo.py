"""`headgate demo`: plays the main use of Headgate."""

from __future__ import annotations

from pathlib import Path

import click
from click.core import ParameterSource
from rich.console import Console

from headgate.cli.context import reported, say_lines
from headgate.demo import exchange, ward

SCENES = ("ward", "exchange", "battlefield")
_CHOSEN = (ParameterSource.COMMANDLINE, ParameterSource.ENVIRONMENT)


def _in_a_folder(context: click.Context, option: click.Parameter, file: Path) -> Path:
    """Refuses a picture that cannot be written before the play, not after it."""
    if not file.absolute().parent.is_dir():
        raise click.BadParameter(f"`{file.parent}` is not a folder", context, option)
    return file


@click.command()
@click.argument("scene", type=click.Choice(SCENES), default="ward")
@click.option(
    "--svg",
    type=click.Path(path_type=Path, dir_okay=False),
    default=Path("ward.svg"),
    show_default=True,
    callback=_in_a_folder,
    help="Where the picture of the ward's shared plan goes.",
)
@click.option(
    "--architecture",
    type=click.Choice(("trusted", "replicated", "kernelized")),
    default="replicated",
    show_default=True,
    help="How the levels of the battlefield are kept apart.",
)
@click.option(
    "--levels", type=click.IntRange(2, 8), default=8, show_default=True, help="How many levels the battlefield has."
)
@click.pass_context
def demo(context: click.Context, scene: str, svg: Path, architecture: str, levels: int) -> None:
    """Play a SCENE: a hospital ward (the default), a stock exchange or a battlefield.

    \b
      ward      heart rates and blood pressures under patients' own policies; four
                people, four queries, one shared plan, and a right that is taken
                away in the middle
      exchange  four people, two price feeds, one shared result, and a revocation
      battlefield  soldiers' vital signs at eight levels, each with a process of
                its own, and one that is killed in the middle

    All run in a temporary folder, with a store of their own: --home and --store mean nothing here, and nothing is
    left behind but the picture.
    """
    group = context.parent
    given = [x for x in ("home", "store") if group and group.get_parameter_source(x) in _CHOSEN]
    if given:
        named = " and ".join(f"--{x}" for x in given)
        click.echo(f"the demo has a store of its own in a temporary folder: {named} is not looked at", err=True)
    with reported():
        if scene == "exchange":
            for line in exchange.tell():
                say_lines(line)
            return
        if scene == "battlefield":
            from headgate.bench import battle  # the engine's libraries take a while to load

            with Console(stderr=True).status("") as status:
                for line in battle.tell(architecture, levels, doing=status.update):
                    say_lines(line)
            return
        with Console(stderr=True).status("") as status:
            for line in ward.tell(svg, status.update):
                say_lines(line)
