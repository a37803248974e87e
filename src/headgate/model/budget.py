"""The budget of one view in one batch (SPEC.md, 4.3, Limits), over all columns, blocks, partitions and stages.

Bytes are charged before they are computed. Input tuples are free; derived data is charged: texts that CONCAT makes,
results of expressions, columns of rows that joins and instants multiply. Views that see the same tuples are computed
once, but each is charged as if it were alone, also for values that were cached for another block. So whether a view
exceeds its budget never depends on other views.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextvars import ContextVar
from typing import Any, TypeVar

from headgate.model.limits import NEAR, Limits

Value = TypeVar("Value")


class LimitExceeded(Exception):
    """A view exceeds one of its limits; the message names the limit in one line."""


class Budget:
    """What one view may use in one batch, and what it has used. The lock is there because its blocks may run in
    parallel.

    spent: bytes that were computed
    rows: the most rows that were combined or read at once
    held: tuples that windows keep, tuples that wait, and tuples that windows hold, also where they keep only sums of
        them, by the rows of blocks; partitions add up
    """

    def __init__(self, limits: Limits, spent: int = 0) -> None:
        self.limits = limits
        self.spent = spent
        self.rows = 0
        self.held: dict[Hashable, tuple[int, int, int]] = {}
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[object, ...]:
        used = {"rows": self.rows, "held": self.held}
        return Budget, (self.limits, self.spent), used  # a lock cannot be sent to another process

    def spend(self, size: int) -> bool:
        """Adds `size` bytes; returns whether the budget still holds."""
        with self._lock:
            self.spent += size
            return self.spent <= self.limits.bytes

    def hold(self, rows: Hashable, windows: int, waiting: int, held: int) -> str:
        """Adds the tuples that the windows of some rows keep in one partition, those that wait, and those that the
        windows hold. Returns the limit that is exceeded, if any."""
        with self._lock:
            before = self.held.get(rows, (0, 0, 0))
            windows, waiting, held = (x + y for x, y in zip(before, (windows, waiting, held), strict=True))
            self.held[rows] = windows, waiting, held
            return _held(windows, waiting) if windows + waiting > self.limits.tuples else ""

    def record_rows(self, rows: int) -> None:
        with self._lock:
            self.rows = max(self.rows, rows)

    def add(self, other: Budget, before: int) -> Iterator[str]:
        """Adds what was used in another process, where `before` bytes had been spent already. Returns the limits that
        are exceeded with it."""
        if not self.spend(other.spent - before):
            yield "bytes"
        self.record_rows(other.rows)
        yield from filter(None, [self.hold(rows, *held) for rows, held in other.held.items()])

    def near(self) -> dict[str, str]:
        """The limits that are near, each with a warning."""
        found = {}
        if self.spent >= NEAR * self.limits.bytes:
            found["bytes"] = self.limits.near("bytes")
        if self.rows >= NEAR * self.limits.rows:
            found["rows"] = self.limits.near("rows")
        for windows, waiting, _ in self.held.values():
            if windows + waiting >= NEAR * self.limits.tuples:
                found["tuples"] = self.limits.near(_held(windows, waiting))
        return found


def _held(windows: int, waiting: int) -> str:
    """What to name where there are too many tuples: those that are more."""
    return "waiting" if waiting > windows else "tuples"


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
                self._exceed(view, budget.limits.exceeded("bytes"))
        self._check()

    def hold(self, rows: Hashable, windows: int, waiting: int, held: int) -> None:
        """Counts the tuples that the windows of some rows keep, those that wait, and those that windows hold. Raises as
        `charge` does."""
        for view, budget in list(self._budgets.items()):
            exceeded = budget.hold(rows, windows, waiting, held)
            if exceeded:
                self._exceed(view, budget.limits.exceeded(exceeded))
        self._check()

    def record_rows(self, rows: int) -> None:
        """Counts rows that are combined or read at once."""
        for budget in self._budgets.values():
            budget.record_rows(rows)

    def _exceed(self, view: int, why: str) -> None:
        self.exceeded[view] = why
        del self._budgets[view]

    def _check(self) -> None:
        if self.exceeded and not self._budgets:
            raise LimitExceeded(next(iter(self.exceeded.values())))


_METER: ContextVar[Meter | None] = ContextVar("meter", default=None)


class Metered:
    """A context: charge the cost of the code inside to a meter."""

    def __init__(self, meter: Meter) -> None:
        self._meter = meter

    def __enter__(self) -> None:
        self._token = _METER.set(self._meter)

    def __exit__(self, *_: object) -> None:
        _METER.reset(self._token)


def charge(size: int) -> None:
    meter = _METER.get()
    if meter is not None and size:
        meter.charge(size)


def hold(rows: Hashable, windows: int, waiting: int, held: int) -> None:
    meter = _METER.get()
    if meter is not None:
        meter.hold(rows, windows, waiting, held)


def record_rows(rows: int) -> None:
    meter = _METER.get()
    if meter is not None:
        meter.record_rows(rows)


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
