"""Attacks by a query with a deadline with which something goes wrong: it ends, and nobody else notices."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from worlds.harness import stream, table
from worlds.live import LiveBench

from headgate.cql.deadlines import Deadline, Version
from headgate.realtime.settings import STRICT
from headgate.recovery.deadlines import Governing
from headgate.recovery.messages import NO_TABLE
from headgate.recovery.query_graph import QueryGraph
from recovery.test_fault_attacks import TOLD, faulty

DUE = Deadline(2000, (Version(sample=0.5),))
ENDED = {"ended": TOLD}
FAULT = "egress.filter.ResultFilter._whole"


def opened(home: Path, *, governed: bool, bad: str) -> LiveBench:
    bench = LiveBench(home, stream("V", "patient INT, bp INT"), table("T", "patient INT"))
    bench.governing = Governing(STRICT, seed=7) if governed else None
    bench.content["T"] = None
    bench.due("bad", bad, DUE)
    bench.query("ok", "SELECT COUNT(*) AS n FROM V [RANGE 5 SECOND SLIDE 5 SECOND]")
    bench.due("due", "SELECT COUNT(*) AS s FROM V [RANGE 5 SECOND SLIDE 5 SECOND]", DUE)
    bench.subscribed_at(ann=("bad", "", "U"), bob=("ok", "", "U"), cid=("due", "", "U"))
    bench.begin()
    return bench


@pytest.mark.parametrize("governed", [False, True])
def test_a_fault_at_the_end_of_a_run_ends_one_query_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, governed: bool
) -> None:
    bench = opened(tmp_path, governed=governed, bad="SELECT COUNT(*) AS n FROM V [RANGE 10 SECOND SLIDE 10 SECOND]")
    bench.arrive(0, "V", [("TRUE", n, 0) for n in range(5)])
    bench.run(2)
    faulty(monkeypatch, FAULT, lambda _, view, *__: view.running.name == "bad")
    bench.end()
    bench.fetch()
    assert bench.values("bob") == bench.values("cid") == [(5,)]
    assert [x.what for x in bench.by("ann")] == [ENDED]


def test_a_fault_when_a_table_cannot_be_read_ends_one_query_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    faulty(monkeypatch, "recovery.query_graph.QueryGraph.end", lambda _, keys, why: why == NO_TABLE and bool(keys))
    bench = opened(tmp_path, bad="SELECT v.bp FROM V [NOW] v, T WHERE v.patient = T.patient", governed=True)
    bench.arrive(0, "V", [("TRUE", 1, n) for n in range(5)])
    bench.run(2)
    bench.end()
    bench.fetch()
    assert bench.values("bob") == bench.values("cid") == [(5,)]
    assert [x.what for x in bench.by("ann")] == [ENDED]


def test_state_that_cannot_be_restored_ends_one_query_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bad = "SELECT COUNT(*) AS n FROM V [RANGE 10 SECOND SLIDE 10 SECOND]"
    bench = opened(tmp_path, bad=bad, governed=True)
    bench.arrive(0, "V", [("TRUE", n, 0) for n in range(5)])
    bench.run(2)
    assert bench.pipeline is not None
    bench.pipeline.close()
    faulty(monkeypatch, "recovery.live_query.LiveQuery.restore", lambda live, *_: live.key[0] == "bad")
    bench.begin()
    bench.end()
    bench.fetch()
    assert bench.values("bob") == bench.values("cid") == [(5,)]
    assert [x.what for x in bench.by("ann")] == [ENDED]


def test_late_tuples_are_told_once_although_the_next_piece_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = opened(tmp_path, bad="SELECT COUNT(*) AS n FROM V [RANGE 10 SECOND SLIDE 10 SECOND]", governed=True)
    count, runs = iter((3, 0)), iter(range(2))
    fails = faulty(
        monkeypatch, "recovery.live_query.LiveQuery.run", lambda live, _: live.key[0] == "bad" and next(runs) == 1
    )
    batch = QueryGraph.batch

    def late(graph: QueryGraph, *given: Any, **named: Any) -> Any:
        found = batch(graph, *given, **named)
        if "bad" in graph._snapshot.running and given[0]:
            graph.late = next(count, 0)
        return found

    monkeypatch.setattr(QueryGraph, "batch", late)
    for n in range(2):
        bench.arrive(n, "V", [("TRUE", 1, 0)])
    bench.run(4)
    assert bench.pipeline is not None
    assert (bench.pipeline.counts.late["V"], fails) == (3, [1])
