"""`DEADLINE 2 SECONDS QOS (SAMPLE 50 PERCENT, SLIDE 10 SECONDS, COLUMNS (a, b))`: how soon results of a query are due,
and the versions of it that take less work, the best first (paper 004: milestones)."""

from __future__ import annotations

from dataclasses import dataclass

from headgate.cql.queries import UNITS, duration
from headgate.cql.reading import listed, names
from headgate.lexing import Cursor, fail, quote

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


def read_deadline(c: Cursor) -> Deadline:
    """After the word DEADLINE."""
    milliseconds = duration(c)
    if not c.take_word("QOS"):
        return Deadline(milliseconds)
    c.expect_symbol("(")
    lower = listed(c, _version)
    c.expect_symbol(")")
    return Deadline(milliseconds, lower)


def _version(c: Cursor) -> Version:
    at, given = c.position, dict[str, object]()
    while not given or c.at_word("SAMPLE") or c.at_word("SLIDE") or c.at_word("COLUMNS"):
        for word, read in (("SAMPLE", _sample), ("SLIDE", duration), ("COLUMNS", _columns)):
            if c.take_word(word):
                if word.lower() in given:
                    raise fail(c.text, at.offset, f"`{word}` is given twice")
                given[word.lower()] = read(c)
                break
        else:
            raise c.expected("`SAMPLE`", "`SLIDE`", "`COLUMNS`")
    return Version(**given)  # type: ignore[arg-type]


def _sample(c: Cursor) -> float:
    """In percent where it is written, as a share everywhere else."""
    percent = c.expect_kind("number", "a number, such as `50`").text
    c.expect_word("PERCENT")
    return float(percent) / 100


def _columns(c: Cursor) -> tuple[str, ...]:
    c.expect_symbol("(")
    found = names(c, "the name of a column")
    c.expect_symbol(")")
    return tuple(x.text for x in found)
