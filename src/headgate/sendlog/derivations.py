"""Which rule derived a tuple, and from which tuples: the graph that provenance is read from.

A derivation is a rule's label and the body's tuples. Derivations whose tuples are gone are dropped with them.
"""

from __future__ import annotations

from collections.abc import Mapping

from headgate.sendlog.core import Rel
from headgate.sendlog.values import Row

Fact = tuple[Rel, Row]
Derivation = tuple[str, tuple[Fact, ...]]


class Derivations:
    """By tuple, in both directions."""

    def __init__(self) -> None:
        self._of: dict[Fact, dict[Derivation, None]] = {}
        self._users: dict[Fact, dict[Fact, None]] = {}

    def clear(self) -> None:
        self._of.clear()
        self._users.clear()

    def of(self, fact: Fact) -> list[Derivation]:
        return sorted(self._of.get(fact, ()), key=repr)

    def add(self, fact: Fact, label: str, body: tuple[Fact, ...]) -> None:
        self._of.setdefault(fact, {})[label, body] = None
        for used in body:
            self._users.setdefault(used, {})[fact] = None

    def remove(self, fact: Fact, label: str, body: tuple[Fact, ...]) -> None:
        self._of.get(fact, {}).pop((label, body), None)

    def replace(self, fact: Fact, label: str, body: tuple[Fact, ...]) -> None:
        """The one derivation by this rule."""
        for known in [d for d in self._of.get(fact, ()) if d[0] == label]:
            self.remove(fact, *known)
        self.add(fact, label, body)

    def drop(self, gone: Mapping[Rel, set[Row]]) -> None:
        """Tuples that are gone derive nothing and are derived by nothing."""
        for rel, rows in gone.items():
            for row in rows:
                fact = (rel, row)
                self._of.pop(fact, None)
                for user in self._users.pop(fact, ()):
                    for known in [d for d in self._of.get(user, ()) if fact in d[1]]:
                        self.remove(user, *known)
