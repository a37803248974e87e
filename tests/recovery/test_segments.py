"""Segments: what was written and what windows hold of it stay the same, however it was split, merged and lost.

Faults of the mechanism are planted, one after the other, and seen.
"""

from __future__ import annotations

import datetime as dt
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from worlds.harness import NOW, Bench, stream
from worlds.processor_replay import one_case

from headgate.operators import group_record, partition, segments
from headgate.plan.secure import Mode
from headgate.visibility.row_table import VisibilityTable


@pytest.fixture
def merged(monkeypatch: pytest.MonkeyPatch) -> None:
    """Segments are merged and written anew all the time."""
    monkeypatch.setattr(segments, "SMALL", 3)
    monkeypatch.setattr(segments, "MOST_SMALL", 2)


def test_results_do_not_depend_on_when_the_engine_starts_again(merged: None, tmp_path: Path) -> None:  # noqa: ARG001
    counts: Counter[str] = Counter()
    for seed in range(640, 650):
        one_case(seed, Mode.EXACT, counts, tmp_path)
        one_case(seed, Mode.CUMULATIVE, counts, tmp_path)
    assert counts["restarts"] > 20 and counts["results"] > 20


def counted(tmp_path: Path, window: str, *, restart: bool) -> list[object]:
    """Of five tuples a window of four held the last; with a right three of these are lost for good, also when the right
    is there again. Then another tuple comes."""
    found = Bench(tmp_path, stream("s", "k INT, v INT"))
    found.query("q", f"SELECT COUNT(*) AS n FROM s [{window}]")
    found.query("all", "SELECT COUNT(*) AS n FROM s [UNBOUNDED]")
    everyone = {"ann": ("q", "doctor,nurse"), "bob": ("all", "doctor,nurse")}
    found.subscribed(**everyone)
    pipeline = found.begin()
    found.take("s", ("doctor", 1, 1), ("doctor", 1, 2))
    found.take("s", *[("nurse", 1, v) for v in (3, 4, 5)])
    found.take("s", ("nurse", 1, 6))  # now those before it are final
    found.subscribed(**everyone | {"ann": ("q", "doctor")})
    found.take("s", ("nurse", 1, 7))
    found.subscribed(**everyone)
    found.take("s", ("doctor", 1, 8))
    if restart:
        pipeline.close()
        found.begin()
    found.take("s", ("doctor", 1, 9))
    found.end()
    return [n for (n,) in found.fetched("ann", "q")]


@pytest.mark.parametrize("window", ["ROWS 4", "PARTITIONED BY k ROWS 4", "RANGE 1 HOUR", "UNBOUNDED"])
def test_a_tuple_that_a_lost_one_had_displaced_does_not_return_with_a_restart(tmp_path: Path, window: str) -> None:
    assert counted(tmp_path / "a", window, restart=True) == counted(tmp_path / "b", window, restart=False)


@pytest.mark.parametrize(
    ("window", "owner", "name", "fault"),
    [
        ("ROWS 4", group_record, "_since", lambda tuples, *_: tuples),  # a removal is forgotten
        ("PARTITIONED BY k ROWS 4", partition, "needs_listing", lambda _: False),  # what it held is not listed
        ("ROWS 4", VisibilityTable, "_note_replaced", lambda *_: None),  # a visibility map is not applied
        ("UNBOUNDED", segments.Segments, "save", lambda *_: []),  # segments are dropped too early
    ],
)
def test_planted_faults_are_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, window: str, owner: Any, name: str, fault: Any
) -> None:
    right = counted(tmp_path / "a", window, restart=True)
    monkeypatch.setattr(owner, name, fault)
    assert counted(tmp_path / "b", window, restart=True) != right


def displaced_between_instants(tmp_path: Path, *, restart: bool) -> list[object]:
    """A window of one row for each key beside one that slides: the row of key 1 was there at the last instant, and is
    displaced before the next one, which says that it is gone."""
    found = Bench(tmp_path, stream("s", "k INT, v INT"), stream("t", "v INT"))
    found.query("q", "SELECT DSTREAM p.v FROM s [PARTITIONED BY k ROWS 1] p, t [RANGE 1 HOUR SLIDE 10 SECONDS] r")
    found.subscribed(ann=("q", ""))
    pipeline = found.begin()

    def take(name: str, second: int, *values: int) -> None:
        found.take(name, ("TRUE", *values), times=[NOW - dt.timedelta(minutes=5) + dt.timedelta(seconds=second)])

    take("t", 0, 0)
    for second, k, v in ((1, 1, 1), (2, 1, 2), (3, 2, 3), (12, 2, 4), (13, 1, 5), (14, 2, 6)):
        take("s", second, k, v)
        take("t", second, 0)
    if restart:
        pipeline.close()
        found.begin()
    for second in (15, 24, 35):
        take("s", second, 3, second)
        take("t", second, 0)
    found.end()
    return sorted((v for (v,) in found.fetched("ann", "q")), key=str)


def test_what_was_displaced_since_the_last_instant_is_gone_at_the_next_one_after_a_restart(tmp_path: Path) -> None:
    right = displaced_between_instants(tmp_path / "a", restart=False)
    assert {2, 3} <= set(right) and not {1, 4} & set(right)  # of all that were displaced, those that an instant saw
    assert displaced_between_instants(tmp_path / "b", restart=True) == right


def test_a_partition_that_keeps_more_than_its_last_rows_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = displaced_between_instants(tmp_path / "a", restart=True)
    monkeypatch.setattr(group_record, "_last_of_each", lambda tuples, *_: np.ones(len(tuples), np.bool_))
    assert displaced_between_instants(tmp_path / "b", restart=True) != right


def test_a_segment_that_is_mostly_dead_is_written_anew(merged: None, tmp_path: Path) -> None:  # noqa: ARG001
    found = Bench(tmp_path, stream("s", "k INT"))
    found.query("q", "SELECT k FROM s [PARTITIONED BY k ROWS 1]")
    found.subscribed(ann=("q", ""))
    found.begin()
    for number in range(30):
        found.take("s", ("TRUE", 100 + number), *[("TRUE", k) for k in range(8)])
    files = list((tmp_path / "state").glob("segment-*"))
    rows = sum(segments_read(file) for file in files)
    assert found.pipeline is not None and found.pipeline.held == 30 + 9  # one waits
    assert 39 <= rows <= 4 * 39  # of two versions, each at most twice what is held


def segments_read(file: Path) -> int:
    return int(pa.ipc.open_file(file).read_all().num_rows)
