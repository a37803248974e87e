"""Results kept in this process until their subscriber fetches them; what goes out is decided then, not when they
came."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from headgate.engine.demand import Demand
from headgate.engine.egress import Parcel
from headgate.engine.ingress import Refused
from headgate.engine.sinks import Sink, Verify

MOST_KEPT = 1_000_000
"""Results kept for one subscriber of one query; beyond it the oldest go, and are counted."""


class Mailbox(Sink):
    name = "mailbox"
    keeps = True

    def __init__(self, most: int = MOST_KEPT) -> None:
        self._most = most
        self._kept: dict[tuple[str, str], list[Parcel]] = {}
        self._sizes: dict[tuple[str, str], int] = {}
        self.lost: Counter[tuple[str, str]] = Counter()
        self._ready: Sequence[Parcel] = ()

    def state(self, results: Sequence[Parcel] = (), refused: Sequence[Refused] = ()) -> dict[str, Any]:  # noqa: ARG002
        """What nobody has fetched goes with the process, as its subscribers do."""
        return {}

    def restore(self, states: Mapping[str, Any], *, out: bool) -> None:
        pass

    def stage(self, version: int, results: Sequence[Parcel], refused: Sequence[Refused] = ()) -> None:
        pass

    def staged(self, version: int) -> list[Parcel]:  # noqa: ARG002
        return []

    def prepare(self, results: Sequence[Parcel], refused: Sequence[Refused], *, as_staged: bool) -> None:  # noqa: ARG002
        self._ready = results

    def publish(self, verify: Verify) -> None:
        verify()
        for parcel in self._ready:
            for key in ((subscriber, parcel.query) for subscriber in parcel.subscribers):
                kept = self._kept.setdefault(key, [])
                kept.append(parcel)
                self._sizes[key] = self._sizes.get(key, 0) + len(parcel)
                while self._sizes[key] > self._most:
                    gone = len(kept.pop(0))
                    self._sizes[key] -= gone
                    self.lost[key] += gone

    def keep(self, now: Demand) -> None:
        for key in self._kept.keys() - now.clearances.keys():
            self._kept.pop(key, None)
            self._sizes.pop(key, None)
        for key in self.lost.keys() - now.clearances.keys():
            del self.lost[key]

    def has(self, subscriber: str, query: str) -> bool:
        """Whether anything waits for it."""
        return bool(self._kept.get((subscriber, query)))

    def fetch(self, subscriber: str, query: str, now: Demand) -> list[Parcel]:
        """All that is there for it and that its rights of now permit; whatever they do not is gone as well."""
        self._sizes.pop((subscriber, query), None)
        waiting = self._kept.pop((subscriber, query), [])
        return [x for parcel in waiting for x in now.allowed(parcel.to((subscriber,)))]
