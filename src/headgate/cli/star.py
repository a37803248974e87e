"""`headgate star`: one run of the deadline experiments by hand, so that a person can feel the controllers work."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.console import Console
from rich.live import Live
from rich.table import Table

from headgate.cli.context import reported

if TYPE_CHECKING:
    from headgate.realtime.handler import Sample
    from headgate.realtime.lattice import Lattice

_CONTROLLERS = ("open", "open-ac", "covert-ac", "star", "strict")
_BLOCKS = " ▁▂▃▄▅▆▇█"
_WIDTH = 60


@click.command()
@click.option("--load", default=200.0, show_default=True, help="Applied load, in percent of the processor at full QoS.")
@click.option(
    "--error", default=1.0, show_default=True, help="Estimation error: 1 means that work takes twice as long."
)
@click.option("--high", default=80.0, show_default=True, help="Share of the transactions above the lowest level, in %.")
@click.option("--controller", type=click.Choice(_CONTROLLERS), default="strict", show_default=True)
@click.option("--levels", default="2 levels", show_default=True, help="Order of the levels: any of `--list-levels`.")
@click.option("--list-levels", is_flag=True, help="List the orders of levels and stop.")
@click.option("--seconds", default=300.0, show_default=True, help="Simulated time.")
@click.option("--seed", default=0, show_default=True)
@click.option(
    "--picture",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Also draw miss ratio, utilisation and QoS over time to this file (PNG or SVG).",
)
def star(
    load: float,
    error: float,
    high: float,
    controller: str,
    levels: str,
    list_levels: bool,
    seconds: float,
    seed: int,
    picture: Path | None,
) -> None:
    """Simulate transactions with deadlines at several security levels.

    Shows, for each level, the miss ratio, utilisation and QoS of each control period of 5 seconds.

    \b
      headgate star                                        strict control under heavy load
      headgate star --controller open                      the same without control
      headgate star --high 20 --levels "5 with a diamond" --picture star.png
    """
    with reported():
        # Imported here: compiled code takes a while to load, and no other command needs it.
        from headgate.errors import Conflict, NotFound
        from headgate.realtime.experiments import LATTICES, lattice_named
        from headgate.realtime.settings import APPROACHES
        from headgate.realtime.simulator import Simulation
        from headgate.realtime.workload import Load

        if list_levels:
            click.echo("\n".join(LATTICES))
            return
        if levels not in LATTICES:
            raise NotFound(f"cannot find levels `{levels}`", hint="`headgate star --list-levels` lists what there is")
        if not 0 <= high <= 100:
            raise Conflict(f"cannot give `{high:g}` % of the transactions to upper levels: choose 0 to 100")
        if picture is not None and not picture.absolute().parent.is_dir():
            raise NotFound(f"cannot draw to `{picture}`: there is no such folder")
        if picture is not None and picture.suffix not in (".png", ".svg"):
            raise Conflict(f"cannot draw to `{picture}`: name a file that ends in `.png` or `.svg`")
        lattice = lattice_named(levels)
        upper = len(lattice.levels) - 1
        shares = (load * (100 - high) / 100, *[load * high / 100 / upper] * upper)
        approach = APPROACHES[_CONTROLLERS.index(controller)]
        simulation = Simulation(lattice, approach, Load(shares, error, seconds=seconds, seed=seed))
        samples: list[Sample] = []
        with _watching(lattice) as show:
            for sample in simulation.samples():
                samples.append(sample)
                show(samples)
        click.echo(_totals(lattice, samples))
        if picture is not None:
            _draw(lattice, samples, picture)
            click.echo(f"The picture is in {picture}.")


@contextmanager
def _watching(lattice: Lattice) -> Iterator[_Screen]:
    """A live table on a terminal; nothing where nobody watches."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield _Screen(lattice, None)
        return
    with Live(console=console, refresh_per_second=20, transient=True) as live:
        yield _Screen(lattice, live)


class _Screen:
    def __init__(self, lattice: Lattice, live: Live | None) -> None:
        self.lattice, self.live = lattice, live

    def __call__(self, samples: Sequence[Sample]) -> None:
        if self.live is not None:
            self.live.update(_table(self.lattice, samples))


def _table(lattice: Lattice, samples: Sequence[Sample]) -> Table:
    table = Table(title=f"{samples[-1].time:.0f} s")
    for head in ("level", "what", "now", f"the last {_WIDTH} periods"):
        table.add_column(head, justify="right" if head == "now" else "left")
    recent = samples[-_WIDTH:]
    for k, level in enumerate(lattice.levels):
        lines = {
            "misses": ([sample.miss_ratio(k) for sample in recent], 20.0),
            "utilisation": ([sample.utilisation[k] for sample in recent], 100.0),
            "QoS": ([100 * sample.quality[k] for sample in recent], 100.0),
        }
        for what, (values, top) in lines.items():
            table.add_row(str(level) if what == "misses" else "", what, f"{values[-1]:.1f} %", _bars(values, top))
        table.add_section()
    return table


def _bars(values: Sequence[float], top: float) -> str:
    return "".join(_BLOCKS[round(min(1.0, value / top) * (len(_BLOCKS) - 1))] for value in values)


def _totals(lattice: Lattice, samples: Sequence[Sample]) -> str:
    """One line per level over the whole run."""
    lines = []
    for k, level in enumerate(lattice.levels):
        timely, tardy = (sum(int(getattr(s, name)[k]) for s in samples) for name in ("timely", "tardy"))
        submitted = sum(int(sample.submitted[k]) for sample in samples)
        admitted = sum(int(sample.admitted[k]) for sample in samples)
        used = sum(sample.utilisation[k] for sample in samples) / len(samples)
        misses = 100 * tardy / (timely + tardy) if timely + tardy else 0.0
        lines.append(
            f"{level}: {submitted:,} submitted, {admitted:,} admitted, {timely:,} in time, "
            f"misses {misses:.2f} %, utilisation {used:.1f} %"
        )
    return "\n".join(lines)


def _draw(lattice: Lattice, samples: Sequence[Sample], file: Path) -> None:
    from headgate.bench.harness import Plot
    from headgate.bench.plot import draw

    def lines(values: Callable[[Sample, int], float]) -> dict[str, list[tuple[float, float]]]:
        return {str(level): [(s.time, values(s, k)) for s in samples] for k, level in enumerate(lattice.levels)}

    draw(
        [
            Plot("Misses", "time, s", "miss ratio, %", lines(lambda s, k: s.miss_ratio(k)), {"promised: 5 %": 5.0}),
            Plot("Utilisation", "time, s", "utilisation, %", lines(lambda s, k: s.utilisation[k])),
            Plot("QoS", "time, s", "at full QoS, %", lines(lambda s, k: 100 * s.quality[k])),
        ],
        file,
        file.suffix[1:],
    )
