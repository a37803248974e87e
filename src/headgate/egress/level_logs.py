"""The delivery logs of levels that are kept apart: each holds the results of subscriptions of one level, and has
limits of its own, so that no level's results push out those of another."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Protocol

from headgate.egress.delivery_log import DeliveryLog


class Logs(Protocol):
    """One log for all levels, or one for each. `wake` is called with the subscribers and queries that have new
    results."""

    wake: Callable[[set[tuple[str, str]]], None]

    def of(self, level: str) -> DeliveryLog:
        """The log that holds the results of subscriptions of this level."""
        ...

    @property
    def size(self) -> int: ...


class LevelLogs:
    """`make` makes the log of a level."""

    def __init__(self, make: Callable[[str], DeliveryLog]) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._logs: dict[str, DeliveryLog] = {}
        self.wake: Callable[[set[tuple[str, str]]], None] = lambda _: None

    def of(self, level: str) -> DeliveryLog:
        with self._lock:
            if level not in self._logs:
                self._logs[level] = self._make(level)
                self._logs[level].wake = lambda readers: self.wake(readers)
            return self._logs[level]

    @property
    def size(self) -> int:
        return sum(log.size for log in self._logs.copy().values())
