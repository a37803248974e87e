"""Load shedding of one level (paper 002 leaves it to the future): which tuples the level goes without when too many
wait for it, by the policy that each stream declares, and who is told.

What is decided depends on the backlog of this level alone, which fills with tuples that the level dominates. Draws of a
sample are secret, and made for these tuples only.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from logging import WARNING
from math import sqrt

import numpy as np

from headgate.columns.sorting import Ints
from headgate.cql.overload import Overload, Shed
from headgate.labels import Level
from headgate.logs import event
from headgate.plain import counted

SAMPLE_FROM = 0.5
"""The share of the backlog from which on samples are taken; beyond the whole, nothing is."""
ROOM = "your level takes all tuples again; windows that were open may be without some"


def notice_of(overload: Overload) -> str:
    """What readers are told when tuples begin to be left out. Not how many: tuples that a reader may not see count
    too. Of a sample, the error of a count that is made of it."""
    match overload.shed:
        case Shed.OLDEST:
            return "your level has too many tuples waiting: the oldest are left out"
        case Shed.SAMPLE:
            share, error = overload.percent / 100, 100 * sqrt(1 - overload.percent / 100)
            return (
                f"your level has too many tuples waiting: a random {overload.percent:g} percent are taken; n of them "
                f"stand for n / {share:g}, with a standard error of {error:.3g} / sqrt(n) percent"
            )
    return "your level has too many tuples waiting: further ones are left out"


@dataclass
class Spell:
    """A time in which tuples of a stream are left out."""

    offered: int = 0
    left_out: int = 0


class LevelShedding:
    """`tell` tells readers of a stream at this level, and its owner, each by a text of its own; `draw` gives a number
    below 1 for each of so many tuples."""

    def __init__(
        self, level: Level, tell: Callable[[str, str, str, str], None], draw: Callable[[int], np.ndarray] | None = None
    ) -> None:
        self._level, self._tell = level, tell
        self._draw = draw or np.random.default_rng().random
        self._spells: dict[str, Spell] = {}
        self.left_out: Counter[str] = Counter()
        """By stream, since the server started."""

    def choose(self, overload: Overload, used: float, rows: Ints) -> Ints:
        """Which of these tuples are taken, if this share of the level's backlog is used."""
        if overload.shed is Shed.OLDEST:
            return rows  # those that wait make room for them
        if used >= 1:
            return rows[:0]
        if overload.shed is Shed.SAMPLE and used >= SAMPLE_FROM:
            return rows[self._draw(len(rows)) < overload.percent / 100]
        return rows

    def note(self, stream: str, overload: Overload, offered: int, left_out: int) -> None:
        """So many tuples came for the level, and so many were left out. Readers are told when that begins and when it
        ends; the owner then also how many."""
        if left_out and stream not in self._spells:
            self._spells[stream] = Spell()
            event("levels", "tuples are left out", level=WARNING, processor=str(self._level), stream=stream)
            self._tell(stream, "waits", notice_of(overload), notice_of(overload))
        spell = self._spells.get(stream)
        if spell is None:
            return
        if left_out:
            spell.offered += offered
            spell.left_out += left_out
            self.left_out[stream] += left_out
        else:
            del self._spells[stream]
            of = f" of {spell.offered:,}" if overload.shed is Shed.SAMPLE else ""
            self._tell(stream, "continues", ROOM, f"{ROOM}; {counted(spell.left_out, 'tuple')}{of} left out")
