"""An index of the windows over one input, which finds the best window to compute another one from.

The base holds at least what the window holds, at every instant of the window. So a sliding window may serve a window
that slides by a multiple of its step, and no other sliding window.
"""

from __future__ import annotations

from collections.abc import Iterator

from headgate.plan.nodes import Window
from headgate.plan.ordered import Ordered, Place

NEAREST = 8
"""The most windows with other steps that are considered. Without a bound, adding a query would cost more the more
queries run."""

Line = tuple[str, ...]
_SLIDING: Line = ("SLIDING",)
_RANGE: Line = ("RANGE", "0")
_UNBOUNDED: Line = ("UNBOUNDED", "0")


class Windows:
    """The windows over one input, in lines; on a line each window holds what the windows before it hold."""

    def __init__(self) -> None:
        self._lines: dict[Line, Ordered[Window]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def put(self, window: Window) -> None:
        self._count += 1
        for line in _lines(window):
            self._lines.setdefault(line, Ordered()).put(_place(window), window)

    def drop(self, window: Window) -> None:
        self._count -= 1
        for line in _lines(window):
            self._lines[line].drop(_place(window))
            if not self._lines[line]:
                del self._lines[line]

    def base(self, window: Window) -> Window | None:
        """The smallest window that holds this one; of two with the same range, the one with the longer step."""
        return min(self._holding(window), key=_place, default=None) or self._unbounded(window)

    def _holding(self, window: Window) -> Iterator[Window]:
        if window.kind == "NOW":
            yield from self._since(_RANGE, (), 1)
            return
        next_place = (*_place(window), 1)
        yield from self._since(_lines(window)[0], next_place, 1)
        if window.slide:
            yield from self._since(_RANGE, (0, window.range), 1)
            others = self._since(_SLIDING, next_place, NEAREST)
            yield from (other for other in others if window.slide % other.slide == 0)

    def _since(self, line: Line, place: Place, most: int) -> list[Window]:
        windows = self._lines.get(line)
        return windows.since(place, most) if windows is not None else []

    def _unbounded(self, window: Window) -> Window | None:
        held = window.kind in ("ROWS", "RANGE", "NOW")
        return next(iter(self._since(_UNBOUNDED, (), 1)), None) if held else None


def _lines(window: Window) -> tuple[Line, ...]:
    """The lines of a window, its own first: windows of the same kind with the same columns and the same step."""
    if window.kind == "PARTITIONED":
        return ((window.kind, *map(str, window.partition)),)
    own = (window.kind, str(window.slide))
    return (own, _SLIDING) if window.slide else (own,)


def _place(window: Window) -> Place:
    return window.rows, window.range, -window.slide
