"""Keys that never come again are forgotten: what operators know follows what windows hold, not what ever came.

A sender who invents a new key for each tuple could otherwise fill the memory of the engine.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from worlds.harness import NOW, Bench, stream
from worlds.pipeline_replay import one_case

from headgate.operators import view_group
from headgate.operators.view_group import Operators

COLUMNS = "k INT, w STRING"
QUERIES = {
    "groups": "SELECT w, COUNT(*) AS n FROM s [RANGE 1 SECOND] GROUP BY w",
    "values": "SELECT COUNT(DISTINCT k) AS n FROM s [RANGE 1 SECOND]",
    "join": "SELECT s.w FROM s [RANGE 1 SECOND], t [RANGE 1 SECOND] WHERE s.k = t.k",
    "slides": "SELECT RSTREAM k, MAX(w) AS m FROM s [RANGE 1 SECOND SLIDE 1 SECOND] GROUP BY k",
    "distinct": "SELECT DISTINCT w FROM s [ROWS 50]",
}


class Flow:
    """Tuples a millisecond apart, each with a key of its own, on both streams; and four queries."""

    def __init__(self, home: Path, queries: dict[str, str]) -> None:
        self.found = Bench(home, stream("s", COLUMNS), stream("t", COLUMNS))
        for name, text in queries.items():
            self.found.query(name, text)
        self.found.subscribed(**{f"reader of {name}": (name, "") for name in queries})
        self.pipeline = self.found.begin()
        self.results: Counter[str] = Counter()
        self._came = self._batches = 0

    def take(self, count: int) -> None:
        numbers = np.arange(self._came, self._came + count)
        start = int(NOW.timestamp() * 1000) - 10_000_000
        columns = {
            "k": pa.array(numbers.astype(np.int32)),
            "w": pa.array([f"key {n}" for n in numbers]),
            "at": pa.array(start + numbers, pa.timestamp("ms", tz="UTC")).cast(pa.timestamp("us", tz="UTC")),
            "policy": pa.array(["TRUE"] * count),
        }
        for name in ("s", "t"):
            self.pipeline.take(name, self._batches, pa.table(columns))
        self._came += count
        self._batches += 1
        for query in self.found.queries:
            self.results[query] += sum(map(len, self.found.mailbox.fetch(f"reader of {query}", query, self.found.now)))

    @property
    def keys(self) -> int:
        partition = self.pipeline._shared.graph._processors._processors[0]._executor._partition  # type: ignore[attr-defined]
        return max(int(group.operators._keys) for group in partition._groups)


def test_keys_that_are_gone_are_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    remembering, forgetting = Flow(tmp_path / "a", QUERIES), Flow(tmp_path / "b", QUERIES)
    for _ in range(12):
        remembering.take(1000)
    assert remembering.keys > 11_000
    monkeypatch.setattr(view_group, "FEW_KEYS", 100)
    most = 0
    for _ in range(12):
        forgetting.take(1000)
        most = max(most, forgetting.keys)
    assert most < 4000  # of some 1,000 in the windows
    assert forgetting.results == remembering.results
    assert min(remembering.results.values()) >= 10


def test_keys_of_windows_that_lose_nothing_are_not_looked_through(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(view_group, "FEW_KEYS", 100)
    flow, built = Flow(tmp_path, {"q": "SELECT COUNT(*) AS n FROM s [UNBOUNDED] GROUP BY k"}), list[int]()
    begin = Operators._begin

    def counting(*given: Any) -> None:
        built.append(1)
        begin(*given)

    monkeypatch.setattr(Operators, "_begin", counting)
    for _ in range(5):
        flow.take(1000)
    assert flow.keys > 4000 and len(built) == 1


def test_operators_that_are_built_again_all_the_time_give_the_same_results(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Operators, "knows_the_gone", True)
    counts: Counter[str] = Counter()
    for seed in range(300, 320):
        one_case(seed, tmp_path / str(seed), counts, unrest=seed % 3 == 0, tables=seed % 12 in (0, 3))
    assert counts["exact results"] > 40 and counts["restart"] > 20


@pytest.mark.long
def test_a_million_keys_leave_nothing_behind(tmp_path: Path) -> None:
    def memory() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

    def state() -> int:
        return sum(file.stat().st_size for file in (tmp_path / "state").rglob("*") if file.is_file())

    flow = Flow(tmp_path, {name: text for name, text in QUERIES.items() if name != "slides"})
    for _ in range(10):
        flow.take(20_000)
    before, written = memory(), state()
    for _ in range(50):
        flow.take(20_000)
    print(f"memory {before:,} then {memory():,}; state {written:,} then {state():,}; keys {flow.keys:,}")
    assert memory() - before < 64 << 20 and state() < 1.1 * written and flow.keys < 200_000
