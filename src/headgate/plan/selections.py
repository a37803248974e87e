"""An index of the selections over one input, which finds the best selection to compute another one from.

A selection is stored under one of its conditions: the one that has the fewest others under it. That choice only makes
the search fast. The answer depends on which selections there are, never on the order in which they were added.
"""

from __future__ import annotations

from dataclasses import dataclass

from headgate.plan.atoms import Atoms, independent
from headgate.plan.nodes import Select


@dataclass(frozen=True)
class _Stored:
    select: Select
    conditions: frozenset[str]


class Selections:
    """The selections over one input.

    INVARIANT: following bases never leads in a circle. Therefore a selection with a condition that follows from another
    of its own has no base and is none; `lowering` leaves such conditions only if there are very many.
    """

    def __init__(self) -> None:
        self._atoms = Atoms()
        self._under: dict[str, dict[str, _Stored]] = {}
        self._home: dict[str, str | None] = {}

    def __len__(self) -> int:
        return len(self._home)

    def put(self, select: Select) -> None:
        self._home[select.key] = None
        if not independent(select.conditions):
            return
        stored = _Stored(select, frozenset(map(str, select.conditions)))
        home = min(sorted(stored.conditions), key=lambda text: len(self._under.get(text, ())))
        self._under.setdefault(home, {})[select.key] = stored
        self._home[select.key] = home
        for condition in select.conditions:
            self._atoms.put(condition)

    def drop(self, select: Select) -> None:
        home = self._home.pop(select.key)
        if home is None:
            return
        del self._under[home][select.key]
        if not self._under[home]:
            del self._under[home]
        for condition in select.conditions:
            self._atoms.drop(condition)

    def base(self, select: Select) -> Select | None:
        """The selection with the most conditions, all of which follow from those of this one; of several, the
        nearest."""
        if not independent(select.conditions):
            return None
        known = self._known(select)
        texts = frozenset(known)
        able = [
            stored
            for text in known
            for stored in self._under.get(text, {}).values()
            if stored.conditions <= texts and stored.select.key != select.key
        ]
        most = max((len(stored.conditions) for stored in able), default=0)
        best = [stored for stored in able if len(stored.conditions) == most]

        def rank(stored: _Stored) -> tuple[int, str]:
            return sum(map(known.__getitem__, stored.conditions)), stored.select.key

        return min(best, key=rank).select if best else None

    def _known(self, select: Select) -> dict[str, int]:
        """Its conditions and nearby conditions that follow from them, with their distances."""
        known: dict[str, int] = {}
        for condition in select.conditions:
            known[str(condition)] = 0
            for distance, text in self._atoms.weaker(condition):
                known[text] = min(distance, known.get(text, distance))
        return known
