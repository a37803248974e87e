"""From which other selection a selection is best computed, out of any number over the same input.

A selection is stored under one of its conditions, the one with the fewest others under it. That choice only makes the
search fast: what is found depends on which selections there are, never on the order in which they came.
"""

from __future__ import annotations

from dataclasses import dataclass

from headgate.plan.atoms import Atoms
from headgate.plan.nodes import Select


@dataclass(frozen=True)
class _Stored:
    select: Select
    conditions: frozenset[str]


class Selections:
    """The selections over one input, as `lowering` makes them: none has a condition that follows from another of its
    own, so two of them that follow from each other are equal, and bases never lead in a circle."""

    def __init__(self) -> None:
        self._atoms = Atoms()
        self._under: dict[str, dict[str, _Stored]] = {}
        self._home: dict[str, str] = {}

    def __len__(self) -> int:
        return len(self._home)

    def put(self, select: Select) -> None:
        stored = _Stored(select, frozenset(map(str, select.conditions)))
        home = min(sorted(stored.conditions), key=lambda text: len(self._under.get(text, ())))
        self._under.setdefault(home, {})[select.key] = stored
        self._home[select.key] = home
        for condition in select.conditions:
            self._atoms.put(condition)

    def drop(self, select: Select) -> None:
        home = self._home.pop(select.key)
        del self._under[home][select.key]
        if not self._under[home]:
            del self._under[home]
        for condition in select.conditions:
            self._atoms.drop(condition)

    def base(self, select: Select) -> Select | None:
        """The one with the most conditions that all follow from those of this one; of several the nearest."""
        known = self._known(select)
        texts = frozenset(known)
        found = [
            stored
            for text in known
            for stored in self._under.get(text, {}).values()
            if stored.conditions <= texts and stored.select.key != select.key
        ]
        if not found:
            return None

        def rank(stored: _Stored) -> tuple[int, int, str]:
            return -len(stored.conditions), sum(map(known.__getitem__, stored.conditions)), stored.select.key

        return min(found, key=rank).select

    def _known(self, select: Select) -> dict[str, int]:
        """Its conditions and those near them that follow, with how far away they are."""
        known: dict[str, int] = {}
        for condition in select.conditions:
            known[str(condition)] = 0
            for distance, text in self._atoms.weaker(condition):
                known[text] = min(distance, known.get(text, distance))
        return known
