"""`headgate bench windows`: windows of every kind as their size, keys, views and queries grow.

Every tuple (or slide) gives an average over the window, so that the whole window counts.
"""

from __future__ import annotations

from collections.abc import Iterator

from headgate.bench.growth import Case, Sizes, growth
from headgate.bench.harness import Progress, Report

KINDS = {
    "ROWS": "SELECT AVG(hr), COUNT(*) FROM hr [ROWS {n}]",
    "RANGE": "SELECT AVG(hr), COUNT(*) FROM hr [RANGE {n} MILLISECONDS]",
    "RANGE SLIDE": "SELECT AVG(hr), COUNT(*) FROM hr [RANGE {n} MILLISECONDS SLIDE {slide} MILLISECONDS]",
    "PARTITIONED": "SELECT ward, AVG(hr) FROM hr [PARTITIONED BY ward ROWS {n}] GROUP BY ward",
    "UNBOUNDED": "SELECT AVG(hr), COUNT(*) FROM hr [UNBOUNDED]",
}
"""The window holds {n} tuples: one comes each millisecond."""
_GROUPED = {
    "RANGE": "SELECT ward, AVG(hr) FROM hr [RANGE {n} MILLISECONDS] GROUP BY ward",
    "PARTITIONED": KINDS["PARTITIONED"],
    "UNBOUNDED": "SELECT ward, AVG(hr) FROM hr [UNBOUNDED] GROUP BY ward",
}
_USUAL = 1_000
QUICK = Sizes(batch=5_000, filling=1, batches=2, most=1_000)
FULL = Sizes(batch=20_000, filling=2, batches=9, most=100_000)


def run(quick: bool, progress: Progress) -> Report:
    return measure(QUICK if quick else FULL, progress)


def measure(sizes: Sizes, progress: Progress) -> Report:
    return growth("Windows: tuples per second of processor time", list(cases()), sizes, _NOTES, progress)


def cases() -> Iterator[Case]:
    for kind, text in KINDS.items():
        if kind != "UNBOUNDED":
            for size in (10, 100, 1_000, 10_000):
                yield Case(kind, "tuples in the window", size, (_written(text, size),))
    for kind, text in _GROUPED.items():
        for keys in (1, 100, 1_000):
            yield Case(kind, "keys", keys, (_written(text, 20),), wards=keys)
    for kind, text in KINDS.items():
        for views in (1, 2, 4):
            yield Case(kind, "views", views, (_written(text, _USUAL),), views=views)
        if kind != "UNBOUNDED":
            for queries in (1, 4, 16):
                yield Case(kind, "queries", queries, tuple(_written(text, _USUAL + 10 * i) for i in range(queries)))


def _written(text: str, size: int) -> str:
    return text.format(n=size, slide=max(size // 10, 1))


_NOTES = (
    "Size: flat: a tuple enters once and leaves once, whatever lies between.",
    "What does grow with a window is the state that is written down with every batch.",
    "UNBOUNDED holds every tuple that ever came, and writes it down with every batch: it slows down as time goes on.",
    "Views: each has windows of its own, as it sees other tuples; ingress is shared, and tuples are kept once.",
    "Queries: windows of different sizes over one input share its tuples; each has sums of its own.",
)
