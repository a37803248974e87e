"""Whom a fault is about: what fails for all is tried for fewer, until it is known for whom it fails.

Queries that share an engine share what they compute, so a fault in one of them, whatever it is, comes up in a step that
was taken for all. Which one it was is found by halving: one among many costs few tries.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

Part = TypeVar("Part")

MOST_TRIES = 100
"""Everybody waits meanwhile: whoever is still in doubt after so many is left out."""


def without_faulty(parts: Sequence[Part], works: Callable[[Sequence[Part]], bool]) -> list[Part]:
    """Those with which it works, all together; where some do not go together, the first."""
    left = MOST_TRIES

    def sound(kept: list[Part], some: Sequence[Part]) -> list[Part]:
        nonlocal left
        if not some or not left:
            return kept
        left -= 1
        if works([*kept, *some]):
            return [*kept, *some]
        if len(some) == 1:
            return kept
        half = len(some) // 2
        return sound(sound(kept, some[:half]), some[half:])

    return sound([], parts)
