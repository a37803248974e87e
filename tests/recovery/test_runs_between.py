"""Queries with deadlines in an engine that governs none, before and after one that does: no tuple is lost, and windows
go on."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from worlds.harness import stream
from worlds.live import LiveBench

from headgate.cql.deadlines import Deadline, Version
from headgate.recovery.messages import LEFT_OUT
from headgate.storage import Storage

VITALS = "patient INT, bp INT"
COUNTED = "SELECT COUNT(*) AS n, SUM(bp) AS s FROM V [UNBOUNDED]"
DUE = Deadline(2000, (Version(sample=0.5),))


def opened(home: Path, storage: Storage | None, begun: float, numbers: dict[str, int], *, governed: bool) -> LiveBench:
    bench = LiveBench(home, stream("V", VITALS))
    if not governed:
        bench.governing = None
    if storage is not None:
        bench.storage = storage
    bench.due("q", COUNTED, DUE)
    bench.subscribed_at(ann=("q", "", "U"))
    bench.clock.advance(begun)
    bench.begun, bench._numbers = bench.clock.now(), numbers
    bench.begin()
    return bench


def batch(rng: np.random.Generator) -> list[tuple[str, int, int]]:
    return [("TRUE", int(x), int(y)) for x, y in rng.integers(0, 5, (20, 2))]


@pytest.mark.parametrize("order", ["gug", "ugu", "ggu", "uug"])
@pytest.mark.parametrize("waiting", [False, True])
def test_windows_go_on_and_nothing_that_waits_is_lost(tmp_path: Path, order: str, waiting: bool) -> None:
    """g: an engine that governs deadlines; u: one that does not. If tuples are `waiting`, an engine that governs ends
    before it has done them; the next one that governs leaves out what is too late by then, and says so."""
    left_out = 0
    rng, storage, numbers, came = np.random.default_rng(1), None, dict[str, int](), 0
    received = list[object]()
    for place, kind in enumerate(order):
        bench = opened(tmp_path, storage, 100.0 * place, numbers, governed=kind == "g")
        assert bench.pipeline is not None
        for n in range(3):
            bench.arrive(0.3 * n, "V", batch(rng))
            came += 20
        bench.run(3 if not waiting or kind == "u" else 0.65)
        if place == len(order) - 1:
            bench.pipeline.end()
        bench.fetch()
        received += bench.values("ann")
        rejected = [x for x in bench.deadlines.decisions if x.word == "rejected"]
        assert len({x.batch for x in rejected}) == (waiting and order[:2] == "gg" and place == 1)
        assert ({"qos": LEFT_OUT} in bench.notices("ann")) == bool(rejected)
        left_out += sum(x.stop - x.start for x in rejected)
        bench.pipeline.close()
        storage, numbers = bench.storage, bench._numbers
    counts = [n for n, _ in received]  # type: ignore[misc, has-type]
    assert counts == sorted(counts)
    assert counts[-1] == came - left_out


def test_an_engine_without_deadlines_computes_the_full_version_at_once(tmp_path: Path) -> None:
    bench = opened(tmp_path, None, 0.0, {}, governed=False)
    rng = np.random.default_rng(1)
    bench.arrive(0, "V", batch(rng))
    bench.arrive(1, "V", batch(rng))
    bench.run(1.5)
    assert bench.deadlines.governor is None
    assert [n for n, _ in bench.values("ann")] == list(range(1, 21))  # type: ignore[misc, has-type]
    assert bench.notices("ann") == []


def test_what_is_left_alone_keeps_its_windows(tmp_path: Path) -> None:
    """A stream has no end here; another engine goes on with it."""
    rng = np.random.default_rng(1)
    first = opened(tmp_path, None, 0.0, {}, governed=True)
    first.arrive(0, "V", batch(rng))
    first.run(1)
    assert first.pipeline is not None
    first.pipeline.close()
    second = opened(tmp_path, first.storage, 100.0, first._numbers, governed=False)
    assert second.pipeline is not None
    second.pipeline.end(left_alone=["V"])
    second.fetch()
    assert second.values("ann") == []
    second.pipeline.close()
    third = opened(tmp_path, second.storage, 200.0, second._numbers, governed=True)
    third.arrive(0, "V", batch(rng))
    third.run(1)
    assert third.pipeline is not None
    third.pipeline.end()
    third.fetch()
    assert [n for n, _ in third.values("ann")][-1] == 40  # type: ignore[misc, has-type]
