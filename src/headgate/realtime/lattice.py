"""Levels as the scheduler needs them: numbered, dominated levels first, with the table of time slots.

On one processor two incomparable levels must not feel each other, so neither may go before the other. Time is cut into
slots of fixed length instead, and each slot belongs to one chain of levels: within it the lowest level of the chain
that has work runs. What a level receives depends on the table, a constant, and on levels it dominates.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from headgate.errors import Conflict, NotFound
from headgate.labels.levels import Level, LevelOrder
from headgate.realtime.arrays import Bools, Ints

MILLISECOND = 1_000_000
SECOND = 1_000_000_000


@dataclass(frozen=True)
class Slot:
    """A part of the cycle: the levels that may run in it, lowest first, and for how many nanoseconds."""

    chain: tuple[int, ...]
    duration: int


@dataclass(frozen=True)
class Lattice:
    """The levels of a database, lowest first: a level stands after all levels it dominates."""

    levels: tuple[Level, ...]
    order: LevelOrder

    def __post_init__(self) -> None:
        if not self.levels:
            raise Conflict("cannot schedule without levels: name at least one")
        for level in self.levels:
            if not self.order.knows(level):
                raise NotFound(f"cannot schedule level `{level}`: the order of levels does not know it")
        if len(set(self.levels)) < len(self.levels):
            raise Conflict("cannot schedule a level twice: name each level once")
        for place, level in enumerate(self.levels):
            for later in self.levels[place + 1 :]:
                if self.order.dominates(level, later):
                    raise Conflict(f"cannot place level `{level}` before `{later}`: it dominates it", hint="sort them")

    @classmethod
    def of(cls, order: LevelOrder, levels: Sequence[Level]) -> Lattice:
        """These levels, sorted so that dominated levels come first."""
        below = {level: sum(order.dominates(level, other) for other in levels) for level in levels}
        return cls(tuple(sorted(levels, key=lambda level: (below[level], level.sort_key()))), order)

    @classmethod
    def chain(cls, *names: str) -> Lattice:
        """A total order, lowest first."""
        return cls(tuple(Level(name) for name in names), LevelOrder.total(*names))

    @cached_property
    def dominates(self) -> Bools:
        """`dominates[i, j]`: level i is level j or above it."""
        return np.array([[self.order.dominates(a, b) for b in self.levels] for a in self.levels], dtype=np.bool_)

    def number(self, level: Level) -> int:
        if level not in self.levels:
            raise NotFound(f"cannot find level `{level}`: the database holds no such level")
        return self.levels.index(level)

    def maximal_chains(self, start: int | None = None) -> list[tuple[int, ...]]:
        """The chains that cannot be made longer, within the levels that dominate `start` if it is given."""
        among = [i for i in range(len(self.levels)) if start is None or self.dominates[i, start]]

        def from_(chain: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
            above = [i for i in among if i != chain[-1] and self.dominates[i, chain[-1]]]
            nearest = [i for i in above if not any(j != i and self.dominates[i, j] for j in above)]
            if not nearest:
                yield chain
            for i in nearest:
                yield from from_((*chain, i))

        minimal = [i for i in among if not any(j != i and self.dominates[i, j] for j in among)]
        return [chain for i in minimal for chain in from_((i,))]

    def one_queue(self) -> list[Slot]:
        """The paper's processor: one chain of all levels, all of the time."""
        return [Slot(tuple(range(len(self.levels))), SECOND)]

    def slots(self, reserve: float, cycle: int) -> list[Slot]:
        """The table of a strict processor: for each level that dominates another, a share `reserve` of the cycle in
        which no lower level runs; the rest belongs to the chains from the bottom, in equal parts."""
        upper = [i for i in range(len(self.levels)) if self.dominates[i].sum() > 1]
        rest = 1 - reserve * len(upper)
        if not 0 <= reserve < 1 or rest <= 0:
            raise Conflict(
                f"cannot reserve `{reserve:g}` of the processor for each of {len(upper)} levels",
                hint=f"reserve less than {1 / max(1, len(upper)):.3g}",
            )
        shares = [(None, rest), *((i, reserve) for i in upper if reserve)]
        table = []
        for start, share in shares:
            chains = self.maximal_chains(start)
            table += [Slot(chain, round(share * cycle / len(chains))) for chain in chains]
        return table


def slot_arrays(slots: Sequence[Slot], levels: int) -> tuple[Ints, Ints]:
    """The table for compiled code: chains, filled up with -1, and the end of each slot within the cycle."""
    chains = np.full((len(slots), levels), -1, dtype=np.int64)
    for i, slot in enumerate(slots):
        chains[i, : len(slot.chain)] = slot.chain
    return chains, np.cumsum([slot.duration for slot in slots], dtype=np.int64)
