"""`headgate bench joins`: joins of two and three streams as their windows, keys, views and queries grow."""

from __future__ import annotations

from collections.abc import Iterator

from headgate.bench.growth import Case, Sizes, growth
from headgate.bench.harness import Progress, Report

_WINDOWS = {"RANGE": "[RANGE {n} MILLISECONDS]", "ROWS": "[ROWS {n}]"}
_STREAMS = ("hr", "bp", "temp")
QUICK = Sizes(batch=5_000, filling=1, batches=2, most=1_000)
FULL = Sizes(batch=20_000, filling=2, batches=9, most=100_000)


def run(quick: bool, progress: Progress) -> Report:
    return measure(QUICK if quick else FULL, progress)


def measure(sizes: Sizes, progress: Progress) -> Report:
    return growth("Joins: tuples per second of processor time", list(cases()), sizes, _NOTES, progress)


def cases() -> Iterator[Case]:
    for kind in _WINDOWS:
        for streams in (2, 3):
            name, read = f"{streams} streams, {kind}", _STREAMS[:streams]
            for size in (10, 100, 1_000):
                yield Case(name, "tuples in each window", size, (text(kind, streams, size),), read)
            for keys in (100, 1_000, 10_000):
                yield Case(name, "keys", keys, (text(kind, streams, 100),), read, patients=keys)
            for views in (1, 2, 4):
                yield Case(name, "views", views, (text(kind, streams, 100),), read, views=views)
            for queries in (1, 4, 16):
                several = tuple(text(kind, streams, 100 + 10 * number) for number in range(queries))
                yield Case(name, "queries", queries, several, read)


def text(kind: str, streams: int, size: int) -> str:
    """A join of the first streams on their patients."""
    names = _STREAMS[:streams]
    window = _WINDOWS[kind].format(n=size)
    sources = ", ".join(f"{name} {window}" for name in names)
    same = " AND ".join(f"{names[0]}.patient = {name}.patient" for name in names[1:])
    return f"SELECT {names[0]}.patient, {', '.join(names)} FROM {sources} WHERE {same}"  # noqa: S608


_NOTES = (
    "Size and keys: rows are found by key, so the cost follows how many there are, not the product of the windows.",
    "Larger windows and fewer keys make more rows. A third stream is one more to bring into order, and one more step.",
    "Views: each joins what it sees; ingress and the order of tuples are shared.",
    "Queries: windows of different sizes are joined each by itself; they share the tuples and what is read of them.",
)
