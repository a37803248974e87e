"""`DEADLINE 2 SECONDS QOS (SAMPLE 50 PERCENT, SLIDE 10 SECONDS, COLUMNS (a, b))`: how soon results of a query are due,
and the versions of it that take less work, the best first (paper 004: milestones)."""

from __future__ import annotations

from dataclasses import dataclass

from headgate.cql.units import UNITS
from headgate.lexing import quote

SHORTEST = 2 * UNITS["SECOND"]
"""Every level has a turn within a second, so that less cannot be promised."""
MOST_VERSIONS = 8


@dataclass(frozen=True)
class Version:
    """A version of a query: the share of the tuples that it takes, the time by which windows slide (None: as the query
    says), and the columns that results have (None: all); the others are NULL."""

    sample: float = 1.0
    slide: int | None = None
    columns: tuple[str, ...] | None = None

    def __str__(self) -> str:
        words = [f"SLIDE {time_text(self.slide)}"] if self.slide is not None else []
        words += [f"COLUMNS ({', '.join(map(quote, self.columns))})"] if self.columns is not None else []
        words += [f"SAMPLE {100 * self.sample:g} PERCENT"] if self.sample != 1 else []
        return " ".join(words) or "full"


FULL = Version()


@dataclass(frozen=True)
class Deadline:
    """`milliseconds` from the arrival of tuples to the results; `lower` are the versions below the full one, the best
    first."""

    milliseconds: int
    lower: tuple[Version, ...] = ()

    @property
    def versions(self) -> tuple[Version, ...]:
        """All of them, the least first: their places are the paper's QoS levels."""
        return (*reversed(self.lower), FULL)

    def __str__(self) -> str:
        versions = f" QOS ({', '.join(map(str, self.lower))})" if self.lower else ""
        return f"{time_text(self.milliseconds)}{versions}"


def time_text(milliseconds: int) -> str:
    """A length of time as it is written."""
    unit, size = next(x for x in sorted(UNITS.items(), key=lambda x: -x[1]) if milliseconds % x[1] == 0)
    return f"{milliseconds // size} {unit}{'' if milliseconds == size else 'S'}"
