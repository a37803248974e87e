"""Plots as SVG: one drawing for a report, its plots below each other.

Each line is named beside it, and the measured points are marked: a line between two of them only guides the eye. The
same report gives the same file, byte for byte.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullLocator

from headgate.bench.harness import Plot, written

_WIDTH, _HEIGHT = 8.5, 4.2
_MARKERS = "osD^vP*X<>"
_DASHES = ("--", ":", "-.")
_MOST_TICKS = 8
_MOST_IN_A_COLUMN = 6
_MOST_MARKED = 30
"""So many points of a line are marked; a longer line is only a line."""
_GROUP = 0.8
"""The part of a name's width that its bars take."""
_STYLE: Any = {
    "svg.hashsalt": "headgate",
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlelocation": "left",
    "axes.titlesize": 11,
    "legend.frameon": False,
}


def draw(plots: Sequence[Plot], file: Path | IO[bytes], format_: str = "svg") -> None:
    """Draws all plots into one file."""
    with mpl.rc_context(_STYLE):
        columns = 1 if len(plots) <= _MOST_IN_A_COLUMN else 2
        lines = -(-len(plots) // columns)
        figure = Figure(figsize=(_WIDTH * columns, _HEIGHT * lines), layout="constrained")
        for place, plot in enumerate(plots, 1):
            _draw(figure.add_subplot(lines, columns, place), plot)
        figure.savefig(file, format=format_, metadata={"Date": None} if format_ == "svg" else None)


def _draw(axes: Axes, plot: Plot) -> None:
    axes.set_title(plot.title)
    axes.set_xlabel(plot.x)
    axes.set_ylabel(plot.y)
    if plot.log_x:
        axes.set_xscale("log")
    if plot.log_y:
        axes.set_yscale("log")
    for number, (name, points) in enumerate(plot.series.items()):
        xs, ys = zip(*points, strict=True)
        if plot.names:
            width = _GROUP / len(plot.series)
            axes.bar([x - _GROUP / 2 + width * (number + 0.5) for x in xs], ys, width, label=name)
        else:
            axes.errorbar(
                xs,
                ys,
                yerr=plot.intervals.get(name),
                marker=_MARKERS[number % len(_MARKERS)] if len(xs) <= _MOST_MARKED else None,
                markersize=10 if name in plot.apart else 5,
                linestyle="none" if name in plot.apart else "-",
                capsize=3,
                label=name,
            )
    for number, (name, level) in enumerate(plot.levels.items()):
        axes.axhline(level, color="0.35", linestyle=_DASHES[number % len(_DASHES)], linewidth=1.2, label=name)
    _mark_what_was_measured(axes, plot)
    axes.grid(axis="y", color="0.9")
    axes.set_axisbelow(True)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: _short(value)))
    if plot.log_y:
        axes.yaxis.set_minor_locator(NullLocator())
        if plot.names:
            axes.set_ylim(bottom=0.5 * min(y for points in plot.series.values() for _, y in points))
    else:
        drawn = [0.0, *plot.levels.values(), *(y for points in plot.series.values() for _, y in points)]
        axes.set_ylim(1.08 * min(drawn), 1.08 * max(drawn))
    if len(plot.series) + len(plot.levels) > 1:
        axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5))


def _mark_what_was_measured(axes: Axes, plot: Plot) -> None:
    """The measured sizes, if they are few, are better marks than round numbers."""
    sizes = sorted({x for points in plot.series.values() for x, _ in points})
    if plot.names:
        axes.set_xticks(range(len(plot.names)), plot.names)
    elif len(sizes) <= _MOST_TICKS and plot.log_x:
        axes.set_xticks(sizes, [_short(size) for size in sizes])
        axes.xaxis.set_minor_locator(NullLocator())
    else:
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: _short(value)))


def _short(value: float) -> str:
    """Without a fraction of zero."""
    return written(int(value) if value == int(value) else value)
