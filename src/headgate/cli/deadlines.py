"""`headgate deadlines`: how the queries with deadlines of this home folder did, by level, as its engine wrote it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from headgate.cli.context import Place, pass_place, reported
from headgate.errors import Conflict, NotFound
from headgate.plain import format_table

_FILE = "deadlines.jsonl"
_WHAT = {"misses": "miss ratio, %", "utilisation": "utilisation, %", "quality": "at full QoS, %"}


@click.command()
@click.option(
    "--svg",
    "picture",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Draw miss ratio, utilisation and QoS of each level over time to this file (SVG or PNG).",
)
@click.option("--periods", default=720, show_default=True, help="How many control periods (5 s) to look back.")
@pass_place
def deadlines(place: Place, picture: Path | None, periods: int) -> None:
    """Show how queries with deadlines did, by level.

    An engine that follows its sources writes a line for each control period of 5 seconds; this command reads
    them. Whoever can read the home folder of the engine can use it.

    \b
      headgate deadlines
      headgate deadlines --svg deadlines.svg
    """
    with reported():
        if picture is not None and picture.suffix not in (".png", ".svg"):
            raise Conflict(f"cannot draw to `{picture}`: name a file that ends in `.png` or `.svg`")
        found = sorted(place.home.rglob(_FILE), key=lambda x: x.stat().st_mtime)
        if not found:
            raise NotFound(
                "cannot show deadlines: no engine of this home folder had any",
                hint="create a query with DEADLINE, subscribe to it, and start the engine",
            )
        lines = [json.loads(line) for line in found[-1].read_text().splitlines()][-periods:]
        last: list[dict[str, Any]] = [x for x in lines if x["levels"] == lines[-1]["levels"]]
        click.echo(format_table(("level", "submitted", "admitted", "misses", "utilisation", "QoS"), _rows(last)))
        if picture is not None:
            _draw(last, picture)
            click.echo(f"The picture is in {picture}.")


def _rows(lines: Sequence[dict[str, Any]]) -> list[tuple[str, ...]]:
    """Over all these periods."""
    rows: list[tuple[str, ...]] = []
    for k, level in enumerate(lines[-1]["levels"]):
        submitted, admitted, timely, tardy = (
            sum(x[name][k] for x in lines) for name in ("submitted", "admitted", "timely", "tardy")
        )
        misses = 100 * tardy / max(1, timely + tardy)
        used, quality = (sum(x[name][k] for x in lines) / len(lines) for name in ("utilisation", "quality"))
        rows.append((level, f"{submitted:,}", f"{admitted:,}", f"{misses:.2f} %", f"{used:.1f} %", f"{quality:.0f} %"))
    return rows


def _draw(lines: Sequence[dict[str, Any]], file: Path) -> None:
    from headgate.bench.harness import Plot
    from headgate.bench.plot import draw

    levels = lines[-1]["levels"]
    plots = [
        Plot(
            what.capitalize() if what != "quality" else "QoS",
            "time, s",
            unit,
            {level: [(x["time"], x[what][k]) for x in lines] for k, level in enumerate(levels)},
            {"promised: 5 %": 5.0} if what == "misses" else {},
        )
        for what, unit in _WHAT.items()
    ]
    draw(plots, file, file.suffix[1:])
