"""A sorted list that finds the nearest values before or after a position without scanning the rest."""

from __future__ import annotations

from bisect import bisect_left, insort
from operator import itemgetter
from typing import Any, Generic, TypeVar

T = TypeVar("T")
Place = tuple[Any, ...]
_place = itemgetter(0)


class Ordered(Generic[T]):
    """Values by position. Positions are comparable tuples; a tuple is before all longer ones that it is a prefix of."""

    def __init__(self) -> None:
        self._items: list[tuple[Place, T]] = []

    def __len__(self) -> int:
        return len(self._items)

    def put(self, place: Place, value: T) -> None:
        insort(self._items, (place, value), key=_place)

    def drop(self, place: Place) -> None:
        del self._items[self._at(place)]

    def before(self, place: Place, most: int) -> list[T]:
        """The values before the position, nearest first, without the one at the position itself."""
        end = self._at(place)
        return [value for _, value in reversed(self._items[max(0, end - most) : end])]

    def since(self, place: Place, most: int) -> list[T]:
        """The values from the position on, nearest first, beginning with the one at the position itself."""
        start = self._at(place)
        return [value for _, value in self._items[start : start + most]]

    def _at(self, place: Place) -> int:
        return bisect_left(self._items, place, key=_place)
