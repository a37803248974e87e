"""The memory budget of one view in one batch (SPEC.md, 4.3, Limits), over all columns, blocks and stages.

Bytes are charged before they are computed. Input tuples are free; derived data is charged: texts that CONCAT makes,
results of expressions, columns of rows that joins and instants multiply. Views that see the same tuples are computed
once, but each is charged as if it were alone, also for values that were cached for another block. So whether a view
exceeds its budget never depends on other views.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

Value = TypeVar("Value")


class LimitExceeded(Exception):
    """A view exceeds one of its limits; the message names the limit in one line."""


class Budget:
    """The bytes that one view may compute in one batch. The lock is there because its blocks may run in parallel."""

    def __init__(self, most: int, spent: int = 0) -> None:
        self.most = most
        self.spent = spent
        self._lock = threading.Lock()

    def spend(self, size: int) -> bool:
        """Adds `size` bytes; returns whether the budget still holds."""
        with self._lock:
            self.spent += size
            return self.spent <= self.most

    @property
    def exceeded(self) -> str:
        return f"what is computed for it at once may have more than {self.most:,} bytes"


class Meter:
    """Charges the computation of one block to the budgets of the views that share it, by view number."""

    def __init__(self, budgets: Mapping[int, Budget]) -> None:
        self._budgets = dict(budgets)
        self.exceeded: dict[int, str] = {}
        """The views whose budget is exceeded, with the reason that their subscribers are told."""
        self._paid = set[Hashable]()
        self._open: list[tuple[Hashable, dict[Hashable, int]]] = []

    def charge(self, size: int) -> None:
        """Charges `size` bytes before they are computed. Raises LimitExceeded only when no view has budget left."""
        self._spend(size)
        if self._open:
            key, costs = self._open[-1]
            costs[key] = costs.get(key, 0) + size

    def begin(self, key: Hashable) -> None:
        """Starts to record the costs of a value that will be cached under `key`."""
        self._paid.add(key)
        self._open.append((key, {key: 0}))

    def end(self) -> Mapping[Hashable, int]:
        """Ends the recording; returns the costs of the value and of each cached value it was made from."""
        _, costs = self._open.pop()
        if self._open:
            self._open[-1][1].update(costs)
        return costs

    def pay(self, costs: Mapping[Hashable, int]) -> None:
        """Charges the costs of a cached value; each of its parts is charged once per block."""
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
    """A cache of values that the blocks of one view group share, by key, each with its costs."""

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
