"""Queries with deadlines in a pipeline: what readers receive, what they are told, and what levels feel of each other."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from headgate.cql.deadlines import Deadline, Version
from worlds.harness import stream
from worlds.live import LiveBench

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
