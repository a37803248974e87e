"""Orders of levels that many tests use."""

from __future__ import annotations

from headgate.labels.levels import Level, LevelOrder
from headgate.realtime.lattice import Lattice


def lattice(**above: str) -> Lattice:
    """Each level with the levels it stands directly above: `lattice(U="", A="U", B="U", T="A B")`."""
    order = LevelOrder({name: frozenset(lower.split()) for name, lower in above.items()})
    return Lattice.of(order, [Level(name) for name in above])


TWO = lattice(U="", S="U")
THREE = lattice(U="", C="U", S="C")
FORK = lattice(U="", A="U", B="U")
DIAMOND = lattice(U="", A="U", B="U", T="A B")
FIVE = lattice(U="", A="U", B="U", S="A B", T="S")
