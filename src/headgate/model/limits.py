"""Limits of one view in one batch, and what is said when one is exceeded."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """Of one view: rows that it combines or looks at in one batch, tuples that its windows hold and that wait for
    their time, bytes of one text, and bytes of all that is computed for it in one batch."""

    rows: int = 10_000_000
    tuples: int = 10_000_000
    text: int = 1_000_000
    bytes: int = 1 << 30
