"""Rows that did not come in, for the owner of their stream."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class RejectedRows:
    """Tuples that did not come in, and why; rows are as they came, as plain values."""

    stream: str
    reason: str
    rows: Sequence[Mapping[str, object]]
    more: int = 0
    """How many are not among the rows: they are counted only."""
    details: Sequence[str] = ()
    """For each row what is wrong with it, where that is known more closely."""

    def __len__(self) -> int:
        return len(self.rows) + self.more
