"""The limits of one view in one batch (SPEC.md, 4.3)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """The limits of one view.

    rows: rows that it combines or reads in one batch
    tuples: tuples that its windows hold, that wait for the watermark, and that it sees of tables
    text: bytes of one text
    bytes: bytes of everything that is computed for it in one batch
    """

    rows: int = 10_000_000
    tuples: int = 10_000_000
    text: int = 1_000_000
    bytes: int = 1 << 30
