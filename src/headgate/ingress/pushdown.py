"""Pushdown: the columns, labels and tuples that the running queries need of the next batch of a stream."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from headgate.model.limits import Limits
from headgate.model.snapshot import CatalogSnapshot
from headgate.plan.expressions import Expr

MOST_LISTED = 100
"""Labels, or blocks, that are listed one by one in Spark's expressions; beyond this, Headgate itself filters."""


@dataclass(frozen=True)
class Pushdown:
    """What a reader needs to know to drop tuples and columns early.

    snapshot: the catalog snapshot it was made for
    columns: the columns that any query reads
    labels: label numbers by the texts that the labels were read from
    keep: for each block the labels that it sees and the condition on its tuples (None: no condition); None: every
        tuple is needed
    longest: how many bytes a text may have
    unreadable: texts that are not labels
    """

    snapshot: CatalogSnapshot
    columns: tuple[str, ...]
    labels: Mapping[tuple[str | None, ...], int]
    keep: tuple[tuple[tuple[int, ...], Expr | None], ...] | None = None
    longest: int = Limits().text
    unreadable: frozenset[tuple[str | None, ...]] = frozenset()
    epoch: int = 0
    """The epoch of the label dictionary that gave the label numbers."""

    def still(self, now: CatalogSnapshot, epoch: int) -> bool:
        """Whether a batch that was read with this pushdown can be used under the current snapshot and dictionary epoch.

        Its labels may have been removed from the dictionary since. Other queries may read other columns; other rules
        and stream descriptors give other labels; a window (a block without a condition) needs every tuple that its
        views see, also those that a view has come to see since. If tuples were dropped, no subscriber may have been
        added or have changed its clearance since: it would receive of the batch the tuples that others needed, and so
        learn what they see."""
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
"""Registers new label texts and returns the pushdown that includes them; None: nothing is needed any more."""
