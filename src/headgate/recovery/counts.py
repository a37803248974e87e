"""Counts of a run: what arrived, what was rejected, late or seen by nobody, and what each subscriber received."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from headgate.egress.delivery import Delivered
from headgate.model.results import ResultBatch
from headgate.model.snapshot import CatalogSnapshot
from headgate.plan.analysis import DeadlineCounts, LevelCounts


@dataclass
class RunCounts:
    """What happened, for the summary."""

    batches: int = 0
    tuples: Counter[str] = field(default_factory=Counter)
    """By stream: tuples whose results, as far as they are final, are out."""
    rejected: Counter[tuple[str, str]] = field(default_factory=Counter)
    unseen: Counter[str] = field(default_factory=Counter)
    """Tuples that nobody was permitted to see when they arrived."""
    late: Counter[str] = field(default_factory=Counter)
    """Tuples that came later than the lateness of their stream allows."""
    results: Counter[tuple[str, str]] = field(default_factory=Counter)
    """By query and subscriber, for current subscribers."""
    received: Counter[tuple[str, str]] = field(default_factory=Counter)
    """By user and stream, for all subscribers there ever were."""
    lag: dict[str, float] = field(default_factory=dict)
    """Seconds from the arrival of a stream's last batch until its results were out."""
    ended: dict[tuple[str, str, str], None] = field(default_factory=dict)
    """By user, stream and reason: queries that ended before their streams did."""
    withheld: int = 0
    left_out: dict[tuple[str, str], int] = field(default_factory=dict)
    """By level and stream: tuples that the level went without because too many waited for it."""
    due: tuple[Sequence[DeadlineCounts], Sequence[LevelCounts]] = ((), ())
    """The queries with deadlines, and the levels in the last control period."""

    def deliver(self, delivered: Sequence[Delivered]) -> None:
        """Counts the results of a batch once, however many sinks got them: each subscriber as the sink that was given
        most for it. After a restart a sink may be given what others had published before."""
        self.withheld += max((x.withheld for x in delivered), default=0)
        out: dict[tuple[str, str], int] = {}
        for found in delivered:
            for key, count in _received(found.results).items():
                out[key] = max(count, out.get(key, 0))
        for (query, name), count in out.items():
            self.results[query, name] += count
            if count:
                self.received[delivered[-1].now.account(name, query)] += count
        for found in delivered:
            self.end(found.now, found.results)

    def end(self, now: CatalogSnapshot, told: Sequence[ResultBatch]) -> None:
        """Counts queries that ended by themselves: a notice with a recipient of its own was caused by somebody."""
        for x in (x for x in told if x.ended and x.outgoing is None):
            for name in x.subscribers:
                self.ended[*now.account(name, x.query), x.ended] = None

    def retain(self, now: CatalogSnapshot) -> None:
        """Drops the counts of former subscribers."""
        for query, name in [key for key in self.results if (key[1], key[0]) not in now.clearances]:
            del self.results[query, name]


def _received(results: Sequence[ResultBatch]) -> Counter[tuple[str, str]]:
    """By query and subscriber: results."""
    found: Counter[tuple[str, str]] = Counter()
    for x in results:
        for name in x.subscribers:
            found[x.query, name] += len(x)
    return found
