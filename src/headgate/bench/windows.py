"""`headgate bench windows`: windows of every kind as their size, keys, views and queries grow; and windows of an hour
over a long stream, which tumble or slide.

Every tuple (or slide) gives an average over the window, so that the whole window counts.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from headgate.bench.growth import Case, Sizes, growth
from headgate.bench.harness import Goal, Progress, Report, Row
from headgate.bench.pipelines import measured
from headgate.bench.vitals import Vitals

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
_HOUR = "SELECT patient, AVG(hr) FROM hr [RANGE 1 HOUR SLIDE {slide}] GROUP BY patient"
SLIDES = ("1 HOUR", "1 MINUTE", "1 SECOND")
_USUAL = 1_000
_LONG_BATCH = 250_000
QUICK = Sizes(batch=5_000, filling=1, batches=2, most=1_000)
FULL = Sizes(batch=20_000, filling=2, batches=9, most=100_000)
QUICK_LONG, LONG = 500_000, 50_000_000


def run(quick: bool, progress: Progress) -> Report:
    return measure(QUICK if quick else FULL, QUICK_LONG if quick else LONG, progress)


def measure(sizes: Sizes, tuples: int, progress: Progress) -> Report:
    """`tuples` is the length of the long stream."""
    report = growth("Windows: tuples per second of processor time", list(cases()), sizes, _NOTES, progress)
    progress.expect(len(SLIDES))
    hours = [_hour(slide, tuples, progress) for slide in SLIDES]
    tumbling, minute, _ = (float(str(row["tuples per s"])) for row in hours)
    goal = Goal(
        f"RANGE 1 HOUR SLIDE 1 MINUTE over {tuples:,} tuples", minute / tumbling, 0.5, "of SLIDE 1 HOUR", "at least"
    )
    return replace(report, rows=[*report.rows, *hours], goals=[goal])


def _hour(slide: str, tuples: int, progress: Progress) -> Row:
    """A window of an hour over a stream of so many tuples, with a group for each of a thousand patients."""
    progress.step(f"RANGE 1 HOUR SLIDE {slide}, {tuples:,} tuples")
    vitals, taken, size = Vitals(), 0.0, min(_LONG_BATCH, tuples)
    with measured({0: Case("", "", 0, (_HOUR.format(slide=slide),)).snapshot()}) as pipelines:
        for _ in range(tuples // size):
            taken += pipelines[0].take(vitals.batch(size))
        results = pipelines[0].results
    return {
        "kind": f"RANGE 1 HOUR SLIDE {slide}",
        "grows": "tuples in all",
        "size": tuples,
        "tuples per s": round(tuples / taken),
        "results per tuple": round(results / tuples, 4),
    }


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
    "What is written down with every batch are its tuples, whatever windows hold.",
    "UNBOUNDED keeps sums of most tuples that came: what it keeps follows its groups and labels.",
    "Views: each has windows of its own, as it sees other tuples; ingress is shared, and tuples are kept once.",
    "Queries: windows of different sizes over one input share its tuples; each has sums of its own.",
    "Hours: the whole stream by processor time, from its first batch on; 1,000 groups come out at each slide.",
)
