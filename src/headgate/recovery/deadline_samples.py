"""The control periods of queries with deadlines, as lines of a file of the home folder: `headgate deadlines` draws from
them."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headgate.realtime.governor import Governor

DEADLINES = "deadlines.jsonl"
COUNTS = ("submitted", "admitted", "timely", "tardy")
PERCENTAGES = ("misses", "utilisation", "quality", "limit")
_MOST_BYTES = 16 << 20
"""The file begins anew then; the one before is kept beside it."""


def periods_since(governor: Governor, known: int, levels: Sequence[int]) -> list[dict[str, Any]]:
    """The control periods after the first `known` ones, for these levels (by number): when each ended, by the clock in
    seconds; what was submitted, admitted, done in time and too late; the rest in percent."""
    new = min(governor.periods - known, len(governor.samples))
    return [
        {
            "time": governor.begun + x.time,
            "levels": [str(governor.lattice.levels[k]) for k in levels],
            **{name: [int(getattr(x, name)[k]) for k in levels] for name in COUNTS},
            "misses": [x.miss_ratio(k) for k in levels],
            "utilisation": [x.utilisation[k] for k in levels],
            "quality": [100 * x.quality[k] for k in levels],
            "limit": [x.limit[k] for k in levels],
        }
        for x in list(governor.samples)[len(governor.samples) - new :]
    ]


class PeriodsFile:
    """Several threads may add to it."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._lock = threading.Lock()

    def add(self, periods: Sequence[Mapping[str, Any]]) -> None:
        if not periods:
            return
        with self._lock:
            if self._file.exists() and self._file.stat().st_size > _MOST_BYTES:
                self._file.replace(self._file.with_suffix(".old.jsonl"))
            with open(os.open(self._file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600), "a") as out:
                out.write("".join(f"{json.dumps(x)}\n" for x in periods))
