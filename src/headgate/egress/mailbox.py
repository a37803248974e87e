"""A sink that keeps results in this process until their subscriber fetches them. Rights are applied when results are
fetched, not when they arrived."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from headgate.egress.filter import permitted
from headgate.egress.sinks import Sink, Verify
from headgate.model.rejected import RejectedRows
from headgate.model.results import ResultBatch
from headgate.model.snapshot import CatalogSnapshot

MOST_KEPT = 1_000_000
"""The most results kept for one subscriber of one query; beyond it the oldest are dropped, and counted."""


class Mailbox(Sink):
    name = "mailbox"
    keeps = True

    def __init__(self, most: int = MOST_KEPT) -> None:
        self._most = most
        self._kept: dict[tuple[str, str], list[ResultBatch]] = {}
        self._sizes: dict[tuple[str, str], int] = {}
        self.lost: Counter[tuple[str, str]] = Counter()
        """Results dropped since the last fetch, by subscriber and query."""
        self._ready: Sequence[ResultBatch] = ()

    def state(self, results: Sequence[ResultBatch] = (), rejected: Sequence[RejectedRows] = ()) -> dict[str, Any]:  # noqa: ARG002
        """Nothing: results that were not fetched end with the process, as its subscribers do."""
        return {}

    def restore(self, states: Mapping[str, Any], *, out: bool) -> None:
        pass

    def stage(self, version: int, results: Sequence[ResultBatch], rejected: Sequence[RejectedRows] = ()) -> None:
        pass

    def staged(self, version: int) -> list[ResultBatch]:  # noqa: ARG002
        return []

    def prepare(self, results: Sequence[ResultBatch], rejected: Sequence[RejectedRows], *, as_staged: bool) -> None:  # noqa: ARG002
        self._ready = results

    def publish(self, verify: Verify) -> None:
        verify()
        ready, self._ready = self._ready, ()
        for result_batch in (x for x in ready if x.outgoing is None):  # notices go to the operator at once
            for key in ((subscriber, result_batch.query) for subscriber in result_batch.subscribers):
                self._kept.setdefault(key, []).append(result_batch)
                self._sizes[key] = self._sizes.get(key, 0) + len(result_batch)
                if self._sizes[key] > self._most:
                    self._drop_oldest(key)

    def _drop_oldest(self, key: tuple[str, str]) -> None:
        """Drops the oldest results down to the limit; notices stay."""
        kept, gone = self._kept[key], self._sizes[key] - self._most
        self.lost[key] += gone
        self._sizes[key] = self._most
        place = 0
        while gone:
            first = kept[place]
            if first.word:
                place += 1
            elif len(first) <= gone:
                gone -= len(kept.pop(place))
            else:
                kept[place] = first.left(np.arange(len(first)) >= gone)
                gone = 0

    def retain(self, now: CatalogSnapshot) -> None:
        for key in self._kept.keys() - now.clearances.keys():
            self._kept.pop(key, None)
            self._sizes.pop(key, None)
        for key in self.lost.keys() - now.clearances.keys():
            del self.lost[key]

    def has(self, subscriber: str, query: str) -> bool:
        """Whether anything waits to be fetched."""
        return bool(self._kept.get((subscriber, query)))

    def fetch(self, subscriber: str, query: str, now: CatalogSnapshot) -> list[ResultBatch]:
        """Returns everything kept for this subscriber that its current rights permit, and drops the rest. The count of
        `lost` results starts again."""
        self._sizes.pop((subscriber, query), None)
        self.lost.pop((subscriber, query), None)
        waiting = self._kept.pop((subscriber, query), [])
        return [x for result_batch in waiting for x in permitted(now, result_batch.to((subscriber,)))]
