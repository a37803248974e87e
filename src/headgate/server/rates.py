"""How fast one user may publish: a bucket of tuples for each user, which fills by the clock and which requests empty.

Nobody knows how many tuples a request has before it is read. So a request is taken whole while the bucket is not
overdrawn, and may overdraw it; the next one is told when to come again. Others do not notice it.
"""

from __future__ import annotations

import math
import threading
from dataclasses import dataclass

from headgate.clock import Clock, SystemClock
from headgate.server.answers import Refused

BURST_SECONDS = 10
"""A bucket holds the share of so many seconds."""


@dataclass
class _Bucket:
    left: float
    at: float


class Rates:
    """`per_second` tuples for each user, on average; 0: as many as it likes."""

    def __init__(self, per_second: int, clock: Clock | None = None) -> None:
        self._per_second, self._clock = per_second, clock or SystemClock()
        self._lock = threading.Lock()
        self._buckets: dict[str, _Bucket] = {}

    def admit(self, user: str) -> None:
        """Refuses a request of a user that has used up its share."""
        with self._lock:
            left = self._bucket(user).left if self._per_second else 0.0
        if left < 0:
            raise Refused(
                429,
                "busy",
                f"cannot take the request: you send more than {self._per_second:,} tuples a second",
                hint="send it again later",
                retry=math.ceil(-left / self._per_second),
            )

    def charge(self, user: str, rows: int) -> None:
        """Counts a request that was read: its tuples, and at least one."""
        if self._per_second:
            with self._lock:
                self._bucket(user).left -= max(1, rows)

    def _bucket(self, user: str) -> _Bucket:
        most, now = float(BURST_SECONDS * self._per_second), self._clock.now()
        found = self._buckets.setdefault(user, _Bucket(most, now))
        found.left = min(most, found.left + self._per_second * max(0.0, now - found.at))
        found.at = now
        return found
