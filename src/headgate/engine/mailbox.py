"""Results kept in this process until their subscriber fetches them; what goes out is decided then, not when they
came."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from headgate.engine.demand import Demand
from headgate.engine.ingress import Refused
from headgate.engine.processor import Delivery

MOST_KEPT = 1_000_000
"""Results kept for one subscriber of one query; beyond it the oldest go, and are counted."""


class Mailbox:
    name = "mailbox"

    def __init__(self, most: int = MOST_KEPT) -> None:
        self._most = most
        self._kept: dict[tuple[str, str], deque[Delivery]] = {}
        self._lost: dict[tuple[str, str], int] = {}

    def state(self) -> None:
        """What nobody has fetched goes with the process, as its subscribers do."""

    def restore(self, state: None) -> None:
        pass

    def write(self, results: Sequence[Delivery], refused: Sequence[Refused]) -> None:  # noqa: ARG002
        for result in results:
            key = result.subscriber, result.query
            kept = self._kept.setdefault(key, deque())
            kept.append(result)
            if len(kept) > self._most:
                kept.popleft()
                self._lost[key] = self._lost.get(key, 0) + 1

    def fetch(self, subscriber: str, query: str, now: Demand) -> list[Delivery]:
        """All that is there for it and that its rights of now permit; whatever they do not is gone as well."""
        waiting = self._kept.pop((subscriber, query), deque())
        return [x for x in waiting if now.permits(x.subscriber, x.query, x.block, x.label)]

    def lost(self, subscriber: str, query: str) -> int:
        return self._lost.get((subscriber, query), 0)
