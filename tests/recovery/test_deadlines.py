"""Queries with deadlines in a pipeline: what readers receive, what they are told, what levels feel of each other."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from worlds.harness import stream
from worlds.live import LiveBench

from headgate.cql.deadlines import Deadline, Version
from headgate.recovery.deadlines import Governing

VITALS = "patient INT, bp INT"
TWO_SECONDS = Deadline(2000)
SAMPLED = Deadline(2000, (Version(sample=0.5), Version(sample=0.1)))
PLAIN = "SELECT patient, bp FROM V"
WINDOWED = "SELECT patient, COUNT(*) AS n, SUM(bp) AS s FROM V [ROWS 50] GROUP BY patient"


def batch(rng: np.random.Generator, rows: int, label: str) -> list[tuple[str, int, int]]:
    return [(label, int(x), int(y)) for x, y in rng.integers(0, 100, (rows, 2))]


def test_with_little_load_every_tuple_is_taken_and_nobody_is_told_anything(tmp_path: Path) -> None:
    bench = LiveBench(tmp_path, stream("V", VITALS))
    bench.due("q", PLAIN, SAMPLED)
    bench.subscribed_at(ann=("q", "", "U"))
    rng = np.random.default_rng(1)
    for n in range(10):
        bench.arrive(0.5 * n, "V", batch(rng, 10, "TRUE"))
    bench.run(6)
    sent = [tuple(row[1:]) for _, rows in bench.taken["V"] for row in rows]
    assert bench.values("ann") == sent
    assert bench.notices("ann") == []


def loaded(home: Path, loads: dict[str, float], seconds: float, governing: Governing | None = None) -> LiveBench:
    """A stream and a query at each level; a load of 100 is the whole processor at full QoS."""
    bench = LiveBench(home, *(stream(level, VITALS) for level in loads), governing=governing)
    for level in loads:
        bench.due(f"q{level}", PLAIN.replace("V", level), SAMPLED, level=level)
    bench.subscribed_at(**{f"reader{level}": (f"q{level}", "", level) for level in loads})
    for level, load in loads.items():
        rng = np.random.default_rng([ord(x) for x in level])
        gap = 0.25
        rows = int(load / 100 * gap / (bench.each + bench.fixed / 80))  # pieces have about 80 tuples
        for n in range(int(seconds / gap) if load else 0):
            bench.arrive(gap * n + 0.01, level, batch(rng, rows, f"TRUE AT {level}" if level != "U" else "TRUE"))
    bench.run(seconds)
    return bench


def ratio(bench: LiveBench, level: str) -> float:
    """Of the admitted pieces that ended, the share that missed the deadline, in percent."""
    counts = bench.deadlines.counts
    late = counts[f"q{level}", level, "missed"] + counts[f"q{level}", level, "late"]
    return 100 * late / max(1, late + counts[f"q{level}", level, "done"])


def test_under_twice_the_load_admitted_work_is_in_time_and_readers_are_told(tmp_path: Path) -> None:
    bench = loaded(tmp_path, {"U": 67, "C": 67, "S": 67}, 40)
    for level in "UCS":
        assert ratio(bench, level) < 5
    assert np.mean([sum(x.utilisation) for x in bench.samples][3:]) >= 80
