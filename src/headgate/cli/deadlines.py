"""`headgate deadlines`: how the queries with deadlines of this home folder did, by level, as its engine wrote it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from headgate.cli.context import Place, pass_place, reported
from headgate.errors import Conflict, NotFound
from headgate.plain import format_table

_FILE = "deadlines.jsonl"
_PERIOD = 5.0
_COUNTS = ("submitted", "admitted", "timely", "tardy")
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
        known = _by_level([json.loads(line) for line in found[-1].read_text().splitlines()], periods)
        click.echo(format_table(("level", "submitted", "admitted", "misses", "utilisation", "QoS"), _rows(known)))
        if picture is not None:
            _draw(known, picture)
            click.echo(f"The picture is in {picture}.")


def _by_level(lines: Sequence[Mapping[str, Any]], periods: int) -> dict[str, list[dict[str, float]]]:
    """The newest control periods of each level. A line is of all levels, or of one that has a processor of its own."""
    newest = max(x["time"] for x in lines)
    found: dict[str, list[dict[str, float]]] = {}
    for line in lines:
        for k, level in enumerate(line["levels"] if newest - line["time"] < periods * _PERIOD else ()):
            own = {name: x[k] for name, x in line.items() if name not in ("time", "levels")}
            found.setdefault(level, []).append({"time": line["time"] - newest, **own})
    return found


def _rows(levels: Mapping[str, Sequence[Mapping[str, float]]]) -> list[tuple[str, ...]]:
    """Over all these periods."""
    rows: list[tuple[str, ...]] = []
    for level, lines in levels.items():
        submitted, admitted, timely, tardy = (int(sum(x[name] for x in lines)) for name in _COUNTS)
        misses = 100 * tardy / max(1, timely + tardy)
        used, quality = (sum(x[name] for x in lines) / len(lines) for name in ("utilisation", "quality"))
        rows.append((level, f"{submitted:,}", f"{admitted:,}", f"{misses:.2f} %", f"{used:.1f} %", f"{quality:.0f} %"))
    return rows


def _draw(levels: Mapping[str, Sequence[Mapping[str, float]]], file: Path) -> None:
    from headgate.bench.harness import Plot
    from headgate.bench.plot import draw

    plots = [
        Plot(
            what.capitalize() if what != "quality" else "QoS",
            "time, s (0: the last control period)",
            unit,
            {level: [(x["time"], x[what]) for x in lines] for level, lines in levels.items()},
            {"promised: 5 %": 5.0} if what == "misses" else {},
        )
        for what, unit in _WHAT.items()
    ]
    draw(plots, file, file.suffix[1:])
