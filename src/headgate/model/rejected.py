"""Rejected rows (dead letters): rows that ingress rejected, kept for the owner of the stream (SPEC.md, 5.2)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

MALFORMED = "headgate_malformed"
"""The column of a batch that holds the text of a malformed row, and is NULL for all other rows. The other columns of a
malformed row mean nothing."""


@dataclass(frozen=True)
class RejectedRows:
    """Rows of one stream that were rejected for one reason; `rows` holds them as they arrived, as plain values."""

    stream: str
    reason: str
    rows: Sequence[Mapping[str, object]]
    more: int = 0
    """How many further rows were rejected; these are counted, not kept."""
    details: Sequence[str] = ()
    """For each row a more precise reason, where one is known."""

    def __len__(self) -> int:
        return len(self.rows) + self.more
