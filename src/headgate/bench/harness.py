"""What a bench returns: rows, goals, notes and where it ran; the same for people (tables) and programs (JSON).

A goal that is missed is a finding, not a failure: it is shown clearly and nothing is hidden.
"""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Literal, Protocol

Value = str | int | float | bool | None
Row = Mapping[str, Value]


def written(value: Value) -> str:
    """A value as people read it."""
    match value:
        case None:
            return ""
        case bool():
            return "yes" if value else "no"
        case int():
            return f"{value:,}"
        case float():
            return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
        case str():
            return value


class Progress(Protocol):
    """How a bench reports its progress."""

    def expect(self, steps: int) -> None:
        """Announces that many more steps; may be called again when more are known."""
        ...

    def step(self, doing: str) -> None:
        """A step begins, and the previous one is done."""
        ...


class Silent:
    """Progress that nobody watches."""

    def expect(self, steps: int) -> None:
        pass

    def step(self, doing: str) -> None:
        pass


@dataclass(frozen=True)
class Goal:
    """A number we set out to reach, and the one we measured."""

    name: str
    measured: float
    goal: float
    unit: str
    comparison: Literal["at most", "at least"] = "at most"

    @property
    def holds(self) -> bool:
        """Whether it is reached; a measurement that is not a number reaches no goal."""
        return self.measured <= self.goal if self.comparison == "at most" else self.measured >= self.goal


@dataclass(frozen=True)
class Plot:
    """What a bench draws: a line of points (x, y) for each series, and levels (y) to compare them with, by name. Where
    x is no size but a position among `names`, there are bars instead of lines. `intervals` gives, for some series, the
    error of each point; a series in `apart` was measured by others: its points are not joined."""

    title: str
    x: str
    y: str
    series: Mapping[str, Sequence[tuple[float, float]]]
    levels: Mapping[str, float] = field(default_factory=dict)
    log_x: bool = False
    log_y: bool = False
    names: Sequence[str] = ()
    intervals: Mapping[str, Sequence[float]] = field(default_factory=dict)
    apart: Sequence[str] = ()


def environment(*packages: str, **more: str) -> dict[str, str]:
    """The machine, Python and the versions of these packages; `more` is what only the bench knows."""
    found = {
        "cpu": _cpu(),
        "cores": str(os.cpu_count()),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
    }
    return found | {name: _version(name) for name in packages} | more


@dataclass(frozen=True)
class Report:
    """Everything that one run of a bench found."""

    title: str
    rows: Sequence[Row]
    goals: Sequence[Goal] = ()
    notes: Sequence[str] = ()
    environment: Mapping[str, str] = field(default_factory=environment)
    plots: Sequence[Plot] = ()

    def columns(self) -> list[str]:
        """Every key of the rows, in the order of first use."""
        return list(dict.fromkeys(key for row in self.rows for key in row))

    def numeric(self, column: str) -> bool:
        """Whether a column has nothing but numbers."""
        return all(isinstance(row.get(column), int | float | None) for row in self.rows)

    def to_json(self, bench: str, *, quick: bool) -> str:
        return json.dumps(
            {
                "bench": bench,
                "title": self.title,
                "quick": quick,
                "environment": dict(self.environment),
                "rows": [dict(row) for row in self.rows],
                "goals": [asdict(goal) | {"holds": goal.holds} for goal in self.goals],
                "notes": list(self.notes),
            },
            indent=2,
            ensure_ascii=False,
        )


def _cpu() -> str:
    """The model where Linux gives it; otherwise what Python knows."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.processor() or platform.machine()


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"
