"""What is wanted of the next batch of a stream: which columns, which labels, which tuples at all."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from headgate.model.limits import Limits
from headgate.model.snapshot import CatalogSnapshot
from headgate.plan.expressions import Expr

MOST_LISTED = 100
"""Labels, or blocks, that Spark is told of one by one; more are looked at here."""


@dataclass(frozen=True)
class Pushdown:
    """`labels` are the numbers of labels by the texts they were read from; `keep` says which labels each block sees and
    under which condition a tuple yields anything there, None if whatever comes is wanted; `longest` is how many bytes a
    text may have; `unreadable` are texts that are no labels."""

    snapshot: CatalogSnapshot
    columns: tuple[str, ...]
    labels: Mapping[tuple[str | None, ...], int]
    keep: tuple[tuple[tuple[int, ...], Expr | None], ...] | None = None
    longest: int = Limits().text
    unreadable: frozenset[tuple[str | None, ...]] = frozenset()
    epoch: int = 0
    """That of the dictionary which the numbers of labels are from."""

    def still(self, now: CatalogSnapshot, epoch: int) -> bool:
        """Whether a batch that was read for this will do now. Its labels may have been forgotten since. Other queries
        may read other columns, other rules and entrances give other labels, and windows may hold what somebody has come
        to see. Where something was dropped, nobody may have come or see otherwise since: such a one would receive of
        the batch what the others wanted of it, and so learn what they see."""
        if epoch != self.epoch:
            return False
        if now is self.snapshot:
            return True
        then = self.snapshot
        if self.keep is not None and any(condition is None for _, condition in self.keep):
            return False
        if self.keep is not None and not now.clearances.items() <= then.clearances.items():
            return False
        return (now.queries, now.rules, now.descriptors) == (then.queries, then.rules, then.descriptors)


RegisterLabels = Callable[[Sequence[tuple[str | None, ...]]], Pushdown | None]
"""Reads the texts of labels, and says what is wanted then; None: nothing any more."""
