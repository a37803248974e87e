"""The limits of one view (SPEC.md, 4.3): how many there are of each, by which setting, and what people are told.

By default they follow the memory of the machine, so that one view cannot fill it. A view is warned about at `NEAR` of a
limit, and ends beyond it.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

NEAR = 0.8
"""The share of a limit from which on a view is warned about."""
SETTINGS = {"tuples": "view_tuples", "rows": "view_rows", "bytes": "view_bytes", "text": "text_bytes"}
"""The settings by which each limit is chosen."""

_CGROUPS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
_BYTES_OF_A_TUPLE, _BYTES_OF_A_ROW = 256, 128
_LEAST = 1 << 30
"""A machine that says nothing, or less, counts as one with so many bytes."""

_USED = {
    "tuples": "its windows hold more than {} tuples",
    "waiting": "more than {} tuples wait for their time",
    "rows": "it has more than {} rows at once",
    "bytes": "what is computed for it at once may have more than {} bytes",
    "text": "a text of it may have more than {} bytes",
}
_REMEDIES = {
    "tuples": "use smaller windows",
    "waiting": "declare a DELAY for its streams",
    "rows": "use smaller windows or stricter joins",
    "bytes": "use smaller windows or shorter texts",
    "text": "make shorter texts",
}


@cache
def machine_memory() -> int:
    """The bytes of memory that this process may use: those of the machine, or of its container if that has fewer."""
    found = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for path in _CGROUPS:
        with suppress(OSError, ValueError):  # there is no such limit
            found.append(int(Path(path).read_text()))
    return max(_LEAST, min(found))


def _tuples() -> int:
    return machine_memory() // 4 // _BYTES_OF_A_TUPLE


def _rows() -> int:
    return machine_memory() // 4 // _BYTES_OF_A_ROW


def _bytes() -> int:
    return machine_memory() // 8


@dataclass(frozen=True)
class Limits:
    """The limits of one view.

    rows: rows that it combines or reads in one batch
    tuples: tuples that its windows hold, that wait for the watermark, and that it sees of tables
    text: bytes of one text
    bytes: bytes of everything that is computed for it in one batch
    """

    rows: int = field(default_factory=_rows)
    tuples: int = field(default_factory=_tuples)
    text: int = 1_000_000
    bytes: int = field(default_factory=_bytes)

    def exceeded(self, what: str) -> str:
        """Why a view ends, and what to do: `what` is a limit, or `waiting` for tuples of which most wait."""
        return f"{_USED[what].format(f'{self._most(what):,}')}; {self._remedy(what)}"

    def near(self, what: str) -> str:
        """The warning before that."""
        share = f"{round(100 * NEAR)} % of {self._most(what):,}"
        return f"{_USED[what].format(share)}, and the query ends beyond them; {self._remedy(what)}"

    def _remedy(self, what: str) -> str:
        return f"{_REMEDIES[what]}, or have the setting {SETTINGS[_limit(what)]} raised"

    def _most(self, what: str) -> int:
        found: int = getattr(self, _limit(what))
        return found


def _limit(what: str) -> str:
    return "tuples" if what == "waiting" else what
