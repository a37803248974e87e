"""Security levels: any partial order with a least element `U`, with compartments (paper 002, section 2)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from headgate.errors import Conflict
from headgate.labels.roles import RESERVED
from headgate.lexing import quote

UNCLASSIFIED = "U"
_NOTHING: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Level:
    """One level: its name and the compartments it adds."""

    name: str
    compartments: frozenset[str] = frozenset()

    def sort_key(self) -> tuple[str, list[str]]:
        return self.name, sorted(self.compartments)

    def __str__(self) -> str:
        shown = quote(self.name, RESERVED)
        if self.compartments:
            shown += "{" + ", ".join(quote(c) for c in sorted(self.compartments)) + "}"
        return shown


LEAST = Level(UNCLASSIFIED)


@dataclass(frozen=True)
class LevelOrder:
    """The dominance order of levels; `above` names for each level the levels directly below it.

    Every level stands above `U`. An unknown name is dominated by nothing and dominates nothing, so a label with such a
    level permits nobody.
    """

    above: Mapping[str, frozenset[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.above.get(UNCLASSIFIED):
            raise Conflict(f"level `{UNCLASSIFIED}` stands below every other")
        for name in self.above:
            if name in self.below(name):
                raise Conflict(f"level `{name}` would stand above itself")

    @classmethod
    def total(cls, *names: str) -> LevelOrder:
        """A total order, lowest first: `LevelOrder.total("U", "C", "S")`."""
        return cls({name: frozenset(names[max(0, i - 1) : i]) for i, name in enumerate(names)})

    def __contains__(self, name: str) -> bool:
        return name == UNCLASSIFIED or name in self.above

    def knows(self, level: Level) -> bool:
        return level.name in self

    @cached_property
    def _down(self) -> dict[str, frozenset[str]]:
        """For each level all known levels that it dominates, itself included."""
        known = frozenset({*self.above, UNCLASSIFIED})
        down = {name: (self.below(name) | {name, UNCLASSIFIED}) & known for name in self.above}
        down[UNCLASSIFIED] = frozenset({UNCLASSIFIED})
        return down

    def below(self, name: str) -> frozenset[str]:
        """The levels that a level strictly dominates; `U` only where `above` names it."""
        seen: set[str] = set()
        waiting = list(self.above.get(name, ()))
        while waiting:
            lower = waiting.pop()
            if lower not in seen:
                seen.add(lower)
                waiting.extend(self.above.get(lower, ()))
        return frozenset(seen)

    def height(self, level: Level) -> int:
        """How many levels stand below it, one above the other; a compartment adds one. A level is higher than all that
        it dominates."""
        return self._heights.get(level.name, 0) + len(level.compartments)

    @cached_property
    def _heights(self) -> dict[str, int]:
        found = {UNCLASSIFIED: 0}
        for name in sorted(self.above, key=lambda x: len(self.below(x))):  # those below a level come before it
            found[name] = max((1 + found.get(x, 0) for x in {UNCLASSIFIED, *self.above[name]} - {name}), default=0)
        return found

    def dominates(self, high: Level, low: Level) -> bool:
        """Whether `high` is `low` or above it, compartments included."""
        return low.name in self._down.get(high.name, _NOTHING) and low.compartments <= high.compartments

    def dominated_by(self, level: Level) -> list[Level]:
        """The levels at which a user cleared to `level` may log in, with all compartments of `level`: the principals of
        paper 002, section 2."""
        return [Level(name, level.compartments) for name in sorted(self._down.get(level.name, frozenset()))]

    def maximal(self, levels: Iterable[Level]) -> frozenset[Level]:
        """The antichain of maximal levels; plain `U` protects nothing and is left out."""
        distinct = set(levels) - {LEAST}
        if len(distinct) < 2:
            return frozenset(distinct)
        return frozenset(
            level
            for level in distinct
            if not any(other != level and self.dominates(other, level) for other in distinct)
        )
