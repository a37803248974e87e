"""What `bench latency` sends and counts, without Spark."""

from __future__ import annotations

import math
import threading
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headgate.bench import latency
from headgate.bench.latency import PARTS, Followed, Sender, Watch, latencies, prepared, row, timed
from headgate.model.results import ResultBatch


def test_files_come_whole_and_their_names_are_timed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(latency, "EVERY", 0.01)
    flows = threading.Event()
    flows.set()
    sender = Sender(tmp_path, 500, 3, flows)
    sender.send()
    assert [path.name for path in sorted(tmp_path.iterdir())] == ["000000.parquet", "000001.parquet", "000002.parquet"]
    assert pq.read_table(tmp_path / "000002.parquet").column("file").to_pylist() == [2] * 5
    assert sender.named == sorted(sender.named)


def test_a_tuple_waits_from_its_files_name_to_the_mailbox() -> None:
    assert latencies([(10.0, [0, 1, 1, 2])], [1.0, 9.0, 9.5]) == [1000.0, 1000.0, 500.0]
    assert latencies([], []) == []


def test_the_mailbox_notes_what_came() -> None:
    watch = Watch()
    values = (pa.array([4, 4, 5], pa.int32()),)
    zeros = np.zeros(3, np.int64)
    watch.prepare([ResultBatch(("ann",), "q", zeros, zeros, values, zeros, ())], [], as_staged=True)
    watch.publish(lambda: None)
    assert watch.tuples == 3
    assert watch.flows.is_set()


def test_methods_are_timed_and_then_as_before() -> None:
    before = {name: owner.__dict__[method] for name, (owner, method) in PARTS.items()}

    class Some:
        def doubled(self, number: int) -> int:
            return 2 * number

    found: list[float] = []
    with timed(Some, "doubled", found):
        assert Some().doubled(4) == 8
    assert Some().doubled(1) == 2
    assert len(found) == 1
    assert {name: owner.__dict__[method] for name, (owner, method) in PARTS.items()} == before


def test_a_row_has_the_median_and_the_parts(tmp_path: Path) -> None:
    table = row(1_000, Followed([float(x) for x in range(101)], {"kernel": 1.25}, 2))
    assert table["median ms"] == 50
    assert table["95 of 100 below"] == 95
    assert table["kernel"] == 1.2
    prepared(tmp_path, tmp_path).close()


def test_nothing_that_came_is_no_number() -> None:
    assert math.isnan(float(row(1_000, Followed([], {}, 0))["median ms"] or 0))
