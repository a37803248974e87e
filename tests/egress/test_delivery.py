"""Delivery: what is decided when, what happens if rights change or the lease is lost in the middle; during the lease
nothing outside of the process is waited for.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from worlds.harness import Bench, stream

from egress.spark_stand_in import Written
from headgate.egress import sinks
from headgate.egress.parquet import ParquetSink
from headgate.egress.sinks import FileSink, Sink
from headgate.egress.spark_sink import SparkSink
from headgate.errors import LeaseLost
from headgate.model.snapshot import CatalogSnapshot

KINDS: list[Callable[..., Any]] = [FileSink, ParquetSink]


class Attacked(Bench):
    """Rights change while results are made ready, or while they go out, and leases are lost."""

    def __init__(self, home: Path) -> None:
        super().__init__(home, stream("s", "x INT"))
        self.query("q", "SELECT x FROM s")
        self.all = dict.fromkeys(("ann", "bob", "cyd"), ("q", "r1,r2"))
        self.subscribed(**self.all)
        self.held = False
        self.losses: list[int] = []
        self.opened = self.verified = 0
        self.before_open: list[Callable[[], None]] = []
        self.on_loss: Callable[[], None] = lambda: None

    @contextmanager
    def open(self) -> Iterator[CatalogSnapshot]:
        if self.before_open:
            self.before_open.pop(0)()
        self.opened += 1
        self.held = True
        try:
            yield self.now
        finally:
            self.held = False

    def verify(self) -> None:
        self.verified += 1
        if self.verified in self.losses:
            self.on_loss()
            raise LeaseLost("gone")

    def lose(self, who: str) -> None:
        self.subscribed(**{name: x if name != who else ("q", "r2") for name, x in self.all.items()})

    def found(self, make: Callable[..., Any], who: str) -> list[int]:
        place = self.home / "out" / who
        if make is FileSink:
            lines = (place / "q.jsonl").read_text().splitlines() if (place / "q.jsonl").exists() else []
            return [json.loads(line)["values"]["x"] for line in lines]
        files = sorted((place / "q").iterdir()) if (place / "q").exists() else []
        return [x for file in files for x in pq.read_table(file).column("x").to_pylist()]


@pytest.fixture
def attacked(tmp_path: Path) -> Attacked:
    return Attacked(tmp_path)


@pytest.mark.parametrize("make", KINDS)
@pytest.mark.parametrize("lost", [[1], [2], [3], [1, 2, 3, 4], [4, 6]])
def test_a_lease_that_is_lost_in_the_middle_loses_and_repeats_nothing(
    attacked: Attacked, make: Callable[..., Any], lost: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sinks, "_PIECE", 100)
    pipeline = attacked.begin(make(attacked.home / "out", attacked))
    attacked.losses = [attacked.verified + x for x in lost]
    attacked.take("s", *(("r1", x) for x in range(20)))
    attacked.take("s", ("r1", 20))
    pipeline.close()
    assert {who: attacked.found(make, who) for who in attacked.all} == {key: list(range(21)) for key in attacked.all}
    assert attacked.verified > max(attacked.losses)


@pytest.mark.parametrize("make", KINDS)
@pytest.mark.parametrize("at", range(2, 9))
def test_a_right_that_is_lost_with_the_lease_takes_unpublished_results(
    attacked: Attacked, make: Callable[..., Any], at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was out by half is taken back; nobody else loses anything."""
    monkeypatch.setattr(sinks, "_PIECE", 100)
    pipeline = attacked.begin(make(attacked.home / "out", attacked))
    before: dict[str, list[int]] = {}

    def lose() -> None:
        before.update({who: attacked.found(make, who) for who in attacked.all} if make is ParquetSink else {})
        attacked.lose("cyd")

    attacked.on_loss, attacked.losses = lose, [attacked.verified + 1 + at]
    attacked.take("s", *(("r1", x) if x % 2 else ("r2", x) for x in range(6)))
    pipeline.close()
    found = {who: attacked.found(make, who) for who in attacked.all}
    assert found["ann"] == found["bob"] == list(range(6))
    assert found["cyd"] in (list(range(6)), [0, 2, 4])
    if before.get("cyd") == []:
        assert found["cyd"] == [0, 2, 4]


@pytest.mark.parametrize("make", KINDS)
def test_a_right_that_is_lost_while_results_are_prepared_counts(attacked: Attacked, make: Callable[..., Any]) -> None:
    pipeline = attacked.begin(make(attacked.home / "out", attacked))
    attacked.before_open = [lambda: None, lambda: attacked.lose("bob")]  # the mailbox is first
    attacked.take("s", ("r1", 1), ("r2", 2))
    pipeline.close()
    assert [attacked.found(make, who) for who in ("ann", "bob", "cyd")] == [[1, 2], [2], [1, 2]]


@pytest.mark.parametrize("make", KINDS)
def test_frequent_changes_of_rights_do_not_hold_results_up(attacked: Attacked, make: Callable[..., Any]) -> None:
    """The attack: an owner takes a right away and gives it back, for ever."""
    pipeline = attacked.begin(make(attacked.home / "out", attacked))
    for _ in range(40):
        attacked.before_open += [lambda: attacked.lose("bob"), lambda: attacked.lose("cyd")]
    attacked.take("s", ("r1", 1), ("r2", 2))
    pipeline.close()
    assert attacked.found(make, "ann") == [1, 2]
    assert attacked.opened < 10


@pytest.mark.parametrize("make", KINDS)
def test_during_the_lease_nothing_is_rendered_and_no_disk_is_waited_for(
    attacked: Attacked, make: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    waited: list[str] = []

    def watched(name: str, done: Callable[..., Any]) -> Callable[..., Any]:
        def act(*given: Any, **more: Any) -> Any:
            if attacked.held:
                waited.append(name)
            return done(*given, **more)

        return act

    monkeypatch.setattr(os, "fsync", watched("fsync", os.fsync))
    monkeypatch.setattr(sinks, "lines_of", watched("lines", sinks.lines_of))
    monkeypatch.setattr(pq, "write_table", watched("parquet", pq.write_table))
    pipeline = attacked.begin(make(attacked.home / "out", attacked))
    for number in range(4):
        attacked.take("s", ("r1", number), ("r2", number))
        attacked.lose("bob")
    pipeline.close()
    assert attacked.opened > 4 and waited == []


def test_a_change_of_rights_does_not_wait_for_what_spark_writes_to(attacked: Attacked) -> None:
    held: list[bool] = []

    class Slow(Written):
        def __call__(self) -> Any:
            held.append(attacked.held)
            return super().__call__()

    sink: Sink = SparkSink(written := Slow(), "any", {}, attacked)
    pipeline = attacked.begin(sink)
    attacked.take("s", ("r1", 1))
    pipeline.close()
    assert held == [False] and len(written.rows) == 3
