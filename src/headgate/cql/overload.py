"""`OVERLOAD REFUSE`, `OLDEST FIRST` or `SAMPLE 10 PERCENT`: which tuples of a stream a level goes without if too many
wait for it (paper 002, section 6: load shedding)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from headgate.lexing import Cursor


class Shed(StrEnum):
    """Which tuples are left out: the newest, the oldest that wait, or all but a random sample."""

    REFUSE = "REFUSE"
    OLDEST = "OLDEST FIRST"
    SAMPLE = "SAMPLE"


@dataclass(frozen=True)
class Overload:
    """`percent` is how many of a hundred tuples a sample takes."""

    shed: Shed = Shed.REFUSE
    percent: float = 100.0

    def __str__(self) -> str:
        return f"{self.shed} {self.percent:g} PERCENT" if self.shed is Shed.SAMPLE else str(self.shed)


REFUSE = Overload()


def read_overload(c: Cursor) -> Overload:
    """After the word OVERLOAD."""
    if c.take_word("REFUSE"):
        return REFUSE
    if c.take_word("OLDEST"):
        c.expect_word("FIRST")
        return Overload(Shed.OLDEST)
    if c.take_word("SAMPLE"):
        percent = float(c.expect_kind("number", "a number, such as `10`").text)
        c.expect_word("PERCENT")
        return Overload(Shed.SAMPLE, percent)
    raise c.expected("`REFUSE`", "`OLDEST FIRST`", "`SAMPLE`")
