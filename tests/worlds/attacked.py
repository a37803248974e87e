"""The bench that attacks on the engine begin at.

They are made by those who may write queries or send tuples: to learn of what they may not see, or to end the work of
others. Each is seen to succeed where its defence is switched off.
"""

from __future__ import annotations

from pathlib import Path

from headgate.model.limits import Limits
from headgate.recovery.pipeline import Pipeline
from worlds.harness import Bench, Row, stream

COLUMNS = "a INT, w STRING"
FEW = Limits(rows=1000, tuples=100, text=1000, bytes=1_000_000)


def bench(home: Path, **queries: str) -> Bench:
    found = Bench(home, stream("s", COLUMNS))
    for name, text in queries.items():
        found.query(name, text)
    return found


def small(rows: int, label: str = "TRUE") -> list[Row]:
    return [(label, n % 5, "abc") for n in range(rows)]


def begin(found: Bench, few: Limits = FEW) -> Pipeline:
    make = found.begin()
    make.close()
    found.pipeline = Pipeline(
        found.home, found, make._shared.graph._make, [found.mailbox, found.files()], found.clock, few
    )
    return found.pipeline
