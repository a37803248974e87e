"""The contents of windows, and when a block with windows is evaluated (SPEC.md, 4.2)."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import NamedTuple

from headgate.plan.queries import QueryBlock, WindowClause
from headgate.testing.oracle.tuples import TupleKey

LAST = 253_402_300_799_999
"""The last millisecond of the year 9999."""


class Instant(NamedTuple):
    """A moment at which windows move: with a tuple, or by sliding; the latter after all tuples of that time."""

    time: int
    slides: bool
    position: TupleKey | None

    @classmethod
    def of(cls, position: TupleKey) -> Instant:
        return cls(position.time, False, position)

    @classmethod
    def sliding(cls, time: int) -> Instant:
        return cls(time, True, None)


def slide_of(block: QueryBlock) -> int:
    """The time by which the block's windows slide; 0 if none does."""
    return max(reading.window.slide if reading.window else 0 for reading in block.readings)


def slides_over(
    window: WindowClause, position: TupleKey, since: float = -math.inf, until: float = math.inf
) -> Iterator[Instant]:
    """The instants, from `since` on and before `until`, at which a sliding window holds this tuple; there are none
    after the year 9999."""
    first = -(-int(max(position.time, since)) // window.slide) * window.slide
    return map(Instant.sliding, range(first, int(min(position.time + window.range, until, LAST + 1)), window.slide))


def held(
    window: WindowClause, entered: Sequence[TupleKey], time: int, partition: Callable[[TupleKey], Hashable]
) -> list[TupleKey]:
    """The tuples that a window holds at a time, out of those that entered it, given in their order."""
    match window.kind:
        case "ROWS":
            return list(entered[-window.rows :])
        case "PARTITIONED":
            return _last_of_each(entered, window.rows, partition)
        case "RANGE" if window.slide:
            return [position for position in entered if position.time > time - window.range]
        case "RANGE":
            return [position for position in entered if position.time >= time - window.range]
        case "NOW":
            return [position for position in entered if position.time == time]
        case _:
            return list(entered)


def _last_of_each(entered: Sequence[TupleKey], rows: int, partition: Callable[[TupleKey], Hashable]) -> list[TupleKey]:
    kept: list[TupleKey] = []
    found: Counter[Hashable] = Counter()
    for position in reversed(entered):
        key = partition(position)
        found[key] += 1
        if found[key] <= rows:
            kept.append(position)
    return kept[::-1]
