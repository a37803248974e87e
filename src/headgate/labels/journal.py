"""Where numbers survive a restart: a journal gives each text one small number, forever."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol


class Journal(Protocol):
    """Numbers count from 1 without gaps; a number, once given, is on disk before it is returned."""

    def read(self) -> Iterable[tuple[int, str]]:
        """Every number given so far, with its text."""
        ...

    def number(self, text: str) -> int:
        """The number of a text, given now if it had none."""
        ...


class MemoryJournal:
    """For tests, and for processors that never restart."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def read(self) -> Iterable[tuple[int, str]]:
        return [(number, text) for text, number in self._numbers.items()]

    def number(self, text: str) -> int:
        return self._numbers.setdefault(text, len(self._numbers) + 1)
