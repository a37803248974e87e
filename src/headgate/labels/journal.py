"""Journals: persistent numbers for texts. A journal gives each text one small number, forever."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol


class Journal(Protocol):
    """INVARIANT: numbers count from 1 without gaps, and a number is on disk before it is returned."""

    def read(self) -> Iterable[tuple[int, str]]:
        """All numbers given so far, with their texts."""
        ...

    def number(self, text: str) -> int:
        """The number of a text; a new text gets the next number."""
        ...


class MemoryJournal:
    """A journal in memory, for tests and benchmarks."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def read(self) -> Iterable[tuple[int, str]]:
        return [(number, text) for text, number in self._numbers.items()]

    def number(self, text: str) -> int:
        return self._numbers.setdefault(text, len(self._numbers) + 1)
