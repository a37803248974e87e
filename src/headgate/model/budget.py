"""How many bytes are computed for one view in one batch: judged before they are, over all columns, blocks and stages.

What a view is given is free; what is made of it counts: texts that are joined, results of expressions, columns of rows
that joins and instants multiply. Views that see the same are computed once, and each pays for it as if it were alone,
also for what was remembered from another block: so whether one ends never depends on who else is there.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

Value = TypeVar("Value")


class LimitExceeded(Exception):
    """What a view asked for goes beyond its limits; says in one line which."""


class Budget:
    """Of one view in one batch. Its blocks may be computed side by side."""

    def __init__(self, most: int, spent: int = 0) -> None:
        self.most = most
        self.spent = spent
        self._lock = threading.Lock()

    def spend(self, size: int) -> bool:
        """Whether that was within it."""
        with self._lock:
            self.spent += size
            return self.spent <= self.most

    @property
    def exceeded(self) -> str:
        return f"what is computed for it at once may have more than {self.most:,} bytes"


class Meter:
    """Of one block, for the views that look at it alike, by number."""

    def __init__(self, budgets: Mapping[int, Budget]) -> None:
        self._budgets = dict(budgets)
        self.exceeded: dict[int, str] = {}
        """Views for which it was too much, and what they are told."""
        self._paid = set[Hashable]()
        self._open: list[tuple[Hashable, dict[Hashable, int]]] = []

    def charge(self, size: int) -> None:
        """For so many bytes, before they are there. Goes on as long as any of the views may have them."""
        self._spend(size)
        if self._open:
            key, costs = self._open[-1]
            costs[key] = costs.get(key, 0) + size

    def begin(self, key: Hashable) -> None:
        """What is charged from here on is for something that will be remembered."""
        self._paid.add(key)
        self._open.append((key, {key: 0}))

    def end(self) -> Mapping[Hashable, int]:
        """All that it cost, part by part."""
        _, costs = self._open.pop()
        if self._open:
            self._open[-1][1].update(costs)
        return costs

    def pay(self, costs: Mapping[Hashable, int]) -> None:
        """For what was remembered, and each of its parts once."""
        new = costs.keys() - self._paid
        self._paid |= new
        self._spend(sum(costs[key] for key in new))
        if self._open:
            self._open[-1][1].update(costs)

    def _spend(self, size: int) -> None:
        for view, budget in list(self._budgets.items()):
            if not budget.spend(size):
                self.exceeded[view] = budget.exceeded
                del self._budgets[view]
        if self.exceeded and not self._budgets:
            raise LimitExceeded(next(iter(self.exceeded.values())))


_METER: ContextVar[Meter | None] = ContextVar("meter", default=None)


@contextmanager
def metered(meter: Meter) -> Iterator[None]:
    token = _METER.set(meter)
    try:
        yield
    finally:
        _METER.reset(token)


def charge(size: int) -> None:
    meter = _METER.get()
    if meter is not None and size:
        meter.charge(size)


class Remembered:
    """What blocks of one class have in common, by key, and what it cost."""

    def __init__(self) -> None:
        self._known: dict[Hashable, tuple[Any, Mapping[Hashable, int]]] = {}

    def once(self, key: Hashable, make: Callable[[], Value]) -> Value:
        meter = _METER.get()
        if key in self._known:
            found, costs = self._known[key]
            if meter is not None:
                meter.pay(costs)
            kept: Value = found
            return kept
        if meter is None:
            made, costs = make(), {}
        else:
            meter.begin(key)
            try:
                made = make()
            finally:
                costs = meter.end()
        self._known[key] = made, costs
        return made
