"""Attacks by a query with which something goes wrong that nobody thought of: it ends, and nobody else notices.

Faults are put into every step between what is wanted and what goes out, for one query or one reader of it.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from worlds.adaptive import in_tasks
from worlds.harness import Bench, stream, table

from headgate.execution.tasks.adaptive import Placement
from headgate.model.snapshot import CatalogSnapshot
from headgate.model.stream import StreamDescriptor
from headgate.recovery.isolation import MOST_TRIES, without_faulty
from headgate.recovery.pipeline import Pipeline

TOLD = "it cannot be run (ZeroDivisionError)"
BAD = {
    "windows": "SELECT COUNT(*) AS n FROM s [ROWS 5] WHERE a > 1",
    "passing": "SELECT a + 1 AS b FROM s",
    "over results": 'SELECT COUNT(*) AS n FROM "out.other" [ROWS 5]',
}
PLACES: dict[str, Callable[..., bool]] = {
    "execution.compile._blocks": lambda query: query.name == "bad",
    "execution.stages.consumer": lambda subscriber, _: subscriber.query == "bad",
    "recovery.view_assignment.ViewAssignment._subscribe": lambda _, query, __: query == "bad",
    "execution.processor.Processor.subscribe": lambda _, query, __: query == "bad",
    "visibility.index.VisibilityIndex.add_view": lambda _, running, __: running.name == "bad",
    "visibility.policy.VisibilityPolicy.sees": lambda _, view, *__: view.running.name == "bad",
    "model.view.View.watermark": lambda view: view.running.name == "bad",
    "operators.partition.Partition._group_results": lambda _, group, visibility: any(
        visibility.targets[view][0] == "bad" for view in group.views
    ),
    "execution.executors.packed": lambda found, *_, **__: found.block.query == "bad",
    "egress.filter.ResultFilter._whole": lambda _, view, *__: view.running.name == "bad",
    "egress.filter.ResultFilter._shared_out": lambda _, views, __: views[0].running.name == "bad",
}
NO_PART = {
    "execution.stages.consumer": ("windows", "passing"),
    "model.view.View.watermark": (),
    "operators.partition.Partition._group_results": ("passing",),
}
"""Where a fault cannot be that of such a query."""


def faulty(monkeypatch: pytest.MonkeyPatch, place: str, when: Callable[..., bool]) -> list[int]:
    """From now on this function fails when this holds of what it is given; how often it did."""
    module, _, name = f"headgate.{place}".rpartition(".")
    try:
        owner: Any = importlib.import_module(module)
    except ModuleNotFoundError:
        module, _, class_ = module.rpartition(".")
        owner = getattr(importlib.import_module(module), class_)
    real, count = getattr(owner, name), [0]

    def fails(*given: Any, **named: Any) -> Any:
        if when(*given, **named):
            count[0] += 1
            raise ZeroDivisionError("a value of somebody's")
        return real(*given, **named)

    monkeypatch.setattr(owner, name, fails)
    return count


def bench(home: Path, bad: str) -> Bench:
    found = Bench(home, stream("s", "a INT, w STRING"))
    found.query("other", "SELECT a, w FROM s")
    found.query("count", "SELECT COUNT(*) AS n FROM s [ROWS 3]")
    if bad:
        found.query("bad", bad)
    return found


def told(found: Bench, who: str, query: str) -> list[str]:
    return [x.ended for x in found.mailbox.fetch(who, query, found.now) if x.ended]


@pytest.mark.parametrize("kind", BAD)
@pytest.mark.parametrize("place", PLACES)
def test_a_fault_in_one_query_ends_that_query_alone(
    place: str, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = bench(tmp_path, "")
    others = {"amy": ("count", ""), "dora": ("other", ""), "finn": ("count", "nurse")}
    found.subscribed(**others)
    found.take("s", *[("TRUE", n, "x") for n in range(4)])
    count = faulty(monkeypatch, place, PLACES[place])
    found.query("bad", BAD[kind])
    found.subscribed(**others, eve=("bad", ""), fay=("bad", "nurse"))
    for _ in range(2):
        found.take("s", *[("TRUE", n, "x") for n in range(4)])
    before = count[0]
    found.end()
    if kind in NO_PART.get(place, ()):
        assert not count[0]
        return
    assert told(found, "eve", "bad") == told(found, "fay", "bad") == [TOLD]
    assert before == count[0]  # it is not tried again and again
    assert len(found.fetched("amy", "count")) == len(found.fetched("dora", "other")) == 12
    assert [n for (n,) in found.fetched("finn", "count")] == [1, 2, *[3] * 10]


@pytest.mark.parametrize("warm", [False, True])
@pytest.mark.parametrize("mode", ["tasks", "auto"])
@pytest.mark.parametrize("place", [x for x in PLACES if x != "execution.executors.packed"])
def test_a_fault_in_a_query_whose_batches_tasks_read_ends_that_query_alone(
    place: str, mode: str, warm: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`warm`: the query ran before without a fault."""
    found, others = bench(tmp_path, ""), {"amy": ("count", ""), "dora": ("other", "")}
    found.subscribed(**others)
    take = in_tasks(found, Placement(bytes=1) if mode == "auto" else None)
    if warm:
        found.query("bad", BAD["windows"])
        found.subscribed(**others, eve=("bad", ""))
    take()
    count = faulty(monkeypatch, place, PLACES[place])
    if not warm:
        found.query("bad", BAD["windows"])
        found.subscribed(**others, eve=("bad", ""))
    for _ in range(2):
        take()
    found.end()
    assert told(found, "eve", "bad") == [TOLD] * bool(count[0])
    assert warm or count[0] or place == "execution.stages.consumer"
    assert len(found.fetched("amy", "count")) == len(found.fetched("dora", "other")) == 12


@pytest.mark.parametrize("restarted", [False, True])
def test_a_notice_is_not_repeated_after_a_restart_and_other_queries_go_on(
    restarted: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = bench(tmp_path, BAD["windows"])
    found.subscribed(amy=("count", ""), eve=("bad", ""))
    faulty(monkeypatch, "egress.filter.ResultFilter._whole", lambda _, view, *__: view.running.name == "bad")
    found.take("s", *[("TRUE", n, "x") for n in range(4)])
    found.take("s", *[("TRUE", n, "x") for n in range(4)])
    assert told(found, "eve", "bad") == [TOLD]
    if restarted and found.pipeline is not None:
        found.pipeline.close()
        found.begin()
    found.take("s", *[("TRUE", n, "x") for n in range(4)])
    found.end()
    assert told(found, "eve", "bad") == []
    assert [n for (n,) in found.fetched("amy", "count")] == [1, 2, *[3] * 10]


def test_state_that_cannot_be_restored_ends_its_query_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = bench(tmp_path, BAD["windows"])
    found.subscribed(amy=("count", ""), eve=("bad", ""))
    pipeline = found.begin()
    found.take("s", *[("TRUE", n, "x") for n in range(4)])
    pipeline.close()
    faulty(monkeypatch, "operators.partition.derived", lambda *given: any(b.query == "bad" for b in given[2]))
    found.begin()
    found.take("s", *[("TRUE", n, "x") for n in range(4)])
    found.end()
    assert told(found, "eve", "bad") == [TOLD]
    assert [n for (n,) in found.fetched("amy", "count")] == [1, 2, *[3] * 6]


def test_a_query_that_fails_for_one_reader_ends_for_that_reader_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = bench(tmp_path, BAD["windows"])
    found.subscribed(amy=("bad", ""), eve=("bad", "nurse"), fay=("bad", ""))
    faulty(
        monkeypatch,
        "egress.filter.ResultFilter._shared_out",
        lambda _, views, __: any("eve" in x.clearances for x in views),
    )
    for _ in range(2):
        found.take("s", *[("TRUE", n, "x") for n in range(4)])
    found.end()
    assert told(found, "eve", "bad") == [TOLD]
    assert len(found.fetched("amy", "bad")) == len(found.fetched("fay", "bad")) == 4


def test_a_pushdown_that_fails_ends_no_query(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = bench(tmp_path, BAD["passing"])
    found.subscribed(amy=("count", ""), eve=("bad", ""))
    faulty(monkeypatch, "execution.processor.Processor.kept", lambda *_: True)
    found.take("s", ("TRUE", 1, "x"))
    assert found.fetched("eve", "bad") == [(2,)]


def test_a_stream_that_ingress_cannot_take_ends_its_readers_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = Bench(tmp_path, stream("s", "a INT"), stream("t", "a INT"))
    found.query("of_s", "SELECT a FROM s")
    found.query("of_t", "SELECT a FROM t")
    found.query("over", 'SELECT a FROM "out.of_t"')
    found.subscribed(amy=("of_s", ""), eve=("of_t", ""), fay=("over", ""))
    faulty(monkeypatch, "recovery.ingestion.Ingress", lambda descriptor, *_: descriptor.name == "t")
    found.take("t", ("TRUE", 1))
    found.take("s", ("TRUE", 2))
    assert found.fetched("amy", "of_s") == [(2,)]
    assert told(found, "eve", "of_t") == told(found, "fay", "over") == [TOLD]


def test_a_table_that_fails_in_any_way_ends_its_readers_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = Bench(tmp_path, stream("s", "a INT"), table("d", "a INT"))
    found.query("of_s", "SELECT a FROM s")
    found.query("both", "SELECT v.a FROM s [NOW] v, d WHERE v.a = d.a")
    found.subscribed(amy=("of_s", ""), eve=("both", ""))

    def read(_: StreamDescriptor) -> pa.Table:
        raise ZeroDivisionError

    monkeypatch.setattr(found, "read_table", read)
    found.take("s", ("TRUE", 2))
    found.end()
    assert found.fetched("amy", "of_s") == [(2,)]
    assert told(found, "eve", "both") == ["a table that the query reads is unavailable"]


def test_a_failure_without_any_query_is_a_fault_of_the_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = bench(tmp_path, BAD["windows"])
    found.subscribed(amy=("count", ""))
    faulty(monkeypatch, "recovery.query_graph.QueryGraph.batch", lambda *_, **__: True)
    with pytest.raises(ZeroDivisionError):
        found.take("s", ("TRUE", 2, "x"))


def test_a_query_that_a_snapshot_leaves_out_gives_its_subscriber_a_notice_at_once(tmp_path: Path) -> None:
    found = bench(tmp_path, BAD["windows"])
    found.subscribed(amy=("count", ""), eve=("bad", ""))
    snapshot = found.now
    queries = tuple(query for query in snapshot.queries if query.name != "bad")
    found.now = CatalogSnapshot(
        snapshot.rules, snapshot.descriptors, queries, snapshot.subscribers, {("eve", "bad"): TOLD}
    )
    pipeline: Pipeline = found.begin()
    pipeline.settle()
    assert told(found, "eve", "bad") == [TOLD]
    pipeline.settle()
    found.take("s", ("TRUE", 2, "x"))
    found.end()
    assert told(found, "eve", "bad") == []
    assert len(found.fetched("amy", "count")) == 1


def test_a_query_that_cannot_be_built_gives_its_subscriber_a_notice_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Perhaps no batch ever comes."""
    found = bench(tmp_path, "")
    found.subscribed(amy=("count", ""))
    found.take("s", ("TRUE", 1, "x"))
    faulty(monkeypatch, "execution.compile._blocks", PLACES["execution.compile._blocks"])
    found.query("bad", BAD["passing"])
    found.subscribed(amy=("count", ""), eve=("bad", ""))
    assert found.pipeline is not None
    found.pipeline.settle()
    assert told(found, "eve", "bad") == [TOLD]
    found.pipeline.settle()
    found.end()
    assert told(found, "eve", "bad") == []


def test_faults_are_found_by_halving() -> None:
    tried: list[int] = []

    def works(some: Any) -> bool:
        tried.append(len(some))
        return 77 not in some and not {3, 500} <= set(some)

    assert without_faulty(range(1000), works) == [x for x in range(1000) if x not in (77, 500)]
    assert len(tried) < 50
    tried.clear()
    assert len(without_faulty(range(1000), lambda some: tried.append(0) or not some)) == 0  # type: ignore[func-returns-value]
    assert len(tried) == MOST_TRIES
