"""Counts of a run: what arrived, what was rejected, late or seen by nobody, and what each subscriber received."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

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

    def deliver(self, now: CatalogSnapshot, results: Sequence[ResultBatch], allowed: Sequence[ResultBatch]) -> None:
        """Counts the results that are out (`allowed`), of those that were computed."""
        self.withheld += _rows(results) - _rows(allowed)
        for x in allowed:
            self.results.update(dict.fromkeys(((x.query, name) for name in x.subscribers), len(x)))
            for name in x.subscribers if len(x) else ():
                self.received[now.account(name, x.query)] += len(x)
        self.end(now, allowed)

    def end(self, now: CatalogSnapshot, told: Sequence[ResultBatch]) -> None:
        """Counts queries that ended by themselves: a notice with a recipient of its own was caused by somebody."""
        for x in (x for x in told if x.ended and x.outgoing is None):
            for name in x.subscribers:
                self.ended[*now.account(name, x.query), x.ended] = None

    def retain(self, now: CatalogSnapshot) -> None:
        """Drops the counts of former subscribers."""
        for query, name in [key for key in self.results if (key[1], key[0]) not in now.clearances]:
            del self.results[query, name]


def _rows(result_batches: Sequence[ResultBatch]) -> int:
    return sum(len(result_batch) * len(result_batch.subscribers) for result_batch in result_batches)
