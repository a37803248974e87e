"""Batches in tasks: read there and computed there; staged and published by the driver alone."""

from __future__ import annotations

import datetime as dt
import logging
import os
import socket
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from worlds.harness import NOW, RULES
from worlds.task_process import FileBatch, TasksHere
from worlds.tasks_bench import READERS, InTasks, Row

from headgate.egress import parquet_files, parquet_staging, result_splits
from headgate.egress.delivery import Delivered
from headgate.egress.gathered import GatheredBatch
from headgate.egress.parquet import ParquetSink
from headgate.errors import HeadgateError
from headgate.execution.executors import Executor, LocalExecutor
from headgate.execution.partitions import PartitionName
from headgate.execution.tasks import written
from headgate.execution.tasks.adaptive import AdaptiveExecutor, Placement
from headgate.execution.tasks.step import Outcome, TaskPlan
from headgate.labels import parse_label
from headgate.model.query import ContinuousQuery
from headgate.operators.program import Program
from headgate.recovery.state import StateFolder
from headgate.service.cluster import check_workers
from headgate.storage import LocalStorage

pytestmark = pytest.mark.usefixtures("no_waiting_for_disks")


@pytest.fixture(params=[1, 10_000], ids=["results in files", "results by the driver"], autouse=True)
def worth_it(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """From how many results on they are written to files."""
    monkeypatch.setattr(written, "WORTH_IT", request.param)
    return int(request.param)


def run(home: Path, partitions: int, batches: int = 2) -> InTasks:
    bench = InTasks(home, partitions)
    for number in range(batches):
        bench.give(number)
    bench.end()
    assert bench.pipeline is not None
    bench.pipeline.close()
    return bench


@pytest.mark.parametrize(
    "partitions", [pytest.param(1, marks=pytest.mark.long), 3, pytest.param(8, marks=pytest.mark.long)]
)
def test_readers_of_parquet_receive_from_tasks_what_they_receive_from_the_driver(
    tmp_path: Path, partitions: int, worth_it: int
) -> None:
    there, here = run(tmp_path / "tasks", partitions), run(tmp_path / "driver", 0)
    assert there.received() == here.received() and len(here.received()) == 6
    assert isinstance(there.tasks, TasksHere) and there.tasks.read == 4  # no batch was read by the driver
    assert bool(there.tasks.works) == (worth_it == 1)
    assert not [x for x in LocalStorage(there.home / "state").names() if "results" in x]
    assert there.pipeline is not None and here.pipeline is not None
    assert there.pipeline.counts.results == here.pipeline.counts.results
    assert there.pipeline.counts.unseen == here.pipeline.counts.unseen
    assert there.pipeline.counts.tuples == here.pipeline.counts.tuples


@pytest.mark.parametrize("worth", [1, 1 << 17])
def test_queries_over_results_are_computed_in_tasks_without_the_driver(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, worth: int
) -> None:
    monkeypatch.setattr(result_splits, "WORTH_SHARING", worth)
    monkeypatch.setattr(GatheredBatch, "here", property(lambda _: pytest.fail("the driver reads results")))
    found = []
    for partitions in (3, 0):
        bench = InTasks(tmp_path / str(partitions), partitions)
        bench.read_on()
        for number in range(3):
            bench.give(number)
        bench.everyone(bob="nurse", cy=None)
        for number in range(3, 5):
            bench.give(number)
        bench.end()
        assert bench.pipeline is not None
        bench.pipeline.close()
        found.append((bench.received(), bench.pipeline.counts.results, bench.pipeline.counts.unseen))
        if partitions:
            assert isinstance(bench.tasks, TasksHere) and bench.tasks.read == 10 and bench.tasks.handed_on > 15
    assert found[0] == found[1] and len(found[0][0]) == 18


@pytest.mark.parametrize(("rows", "worth"), [(7, 1), (7, 40), (16_384, 1)])
def test_tasks_that_share_the_results_of_a_reader_write_the_files_that_one_would(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: int, worth: int
) -> None:
    monkeypatch.setattr(parquet_files, "ROWS", rows)
    monkeypatch.setattr(parquet_staging, "WORTH_SHARING", worth)
    there, here = run(tmp_path / "tasks", 3), run(tmp_path / "driver", 0)
    files = [
        {path.relative_to(x.home): path.read_bytes() for path in (x.home / "out").glob("*/*/*.parquet")}
        for x in (there, here)
    ]
    assert files[0] == files[1] and len(files[0]) >= 6


def test_the_log_says_where_a_batch_ran_and_what_was_moved_there(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "headgate.pipeline"):
        run(tmp_path, 3, batches=1)
    facts = next(x.__dict__["headgate_facts"] for x in caplog.records if x.getMessage() == "batch done")
    assert facts["tasks"] == 3 and facts["processes"] == f"{socket.gethostname()}:{os.getpid()}=3"
    assert facts["moved_tuples"] == 24  # the tuples of porters go nowhere: nobody reads them
    assert facts["moved_bytes"] > 24 * 10 and facts["driver_seconds"] >= 0 and facts["task_seconds"] > 0


def test_tasks_take_a_split_of_which_nobody_sees_a_tuple(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    bench = InTasks(tmp_path)
    bench.give(0)
    assert bench.pipeline is not None and isinstance(bench.tasks, TasksHere)
    rows = [("porter" if x < 20 else "nurse", x % 4, x) for x in range(30)]
    table = bench.table("b", rows, [NOW + dt.timedelta(seconds=4)] * 30)
    bench.pipeline.take("b", 1, FileBatch(table, tmp_path / "input/porters", 3))
    bench.pipeline.close()
    assert bench.tasks.read == 3 and bench.pipeline.counts.unseen["b"] == 26
    assert not [x for x in caplog.records if x.levelno >= logging.WARNING]


def test_a_worker_keeps_all_partitions_that_it_advanced(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    bench = InTasks(tmp_path)
    bench.tasks = Faithful()
    with caplog.at_level(logging.INFO, "headgate.pipeline"):
        for number in range(2):
            bench.give(number)
    assert bench.pipeline is not None
    bench.pipeline.close()
    facts = [x.__dict__["headgate_facts"] for x in caplog.records if x.getMessage() == "batch done"]
    assert [x["cached"] for x in facts] == [0, 3, 3, 3]


class Faithful(TasksHere):
    """No attempt fails, and no memory is lost."""

    def _each(
        self, plan: TaskPlan, work: Callable[..., Outcome], step: object, parts: Mapping[PartitionName, Any]
    ) -> list[Outcome]:
        return [work(plan, step, name, parts[name]) for name in plan.names]


def test_a_batch_with_a_late_tuple_is_decided_by_the_driver(tmp_path: Path) -> None:
    found = {}
    for partitions in (0, 3):
        bench = InTasks(tmp_path / str(partitions), partitions)
        for number, back in enumerate((0, 0, 6, 0)):
            bench.give(number, back=back)
        bench.end()
        assert bench.pipeline is not None
        found[partitions] = bench.received(), bench.pipeline.counts.late
        bench.pipeline.close()
    assert found[0] == found[3] and found[0][1].total()
    assert isinstance(bench.tasks, TasksHere) and bench.tasks.read == 6


def revoked(bench: InTasks, number: int, **left: str | None) -> dict[str, list[Row]]:
    """What each reader gets of a batch that is computed and staged for all three, and published when these readers have
    other roles (None: no subscription)."""
    before, computed = bench.received(), bench.now
    bench.everyone(**left)
    bench.during, bench.now = bench.now, computed
    bench.give(number, 12)
    bench.during = None
    bench.everyone()
    return {
        key: list((Counter(rows) - Counter(before.get(key, ()))).elements()) for key, rows in bench.received().items()
    }


def forbidden(got: dict[str, list[Row]], bench: InTasks, **left: str | None) -> list[Row]:
    """The rows that a reader got and may not have."""
    found = []
    for key, rows in got.items():
        roles = {**READERS, **left}[key.partition(".")[0]]
        found += [
            row for row in rows if roles is None or not RULES.permits(parse_label(str(row[1])), bench.clearance(roles))
        ]
    return found


def test_a_right_that_is_lost_between_staging_and_publishing_takes_the_results_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = {"cy": "doctor", "bob": None}
    bench = InTasks(tmp_path)
    bench.give(0)
    with monkeypatch.context() as patch:
        patch.setattr(Delivered, "permitted", lambda *_: True)  # without the decision inside the lease
        got = revoked(bench, 1, **left)
        assert {key for key, rows in got.items() if rows} >= {"bob.mean/mean", "cy.mean/mean", "cy.joined/joined"}
        assert forbidden(got, bench, **left)
    got = revoked(bench, 2, **left)
    assert not forbidden(got, bench, **left)
    assert got["ann.mean/mean"] and got["cy.joined/joined"]
    assert bench.pipeline is not None
    bench.pipeline.close()


@pytest.mark.long
def test_rights_that_are_lost_1000_times_between_staging_and_publishing_take_the_results_away(tmp_path: Path) -> None:
    rng, rounds = Random(15), 50
    for run_ in range(1000 // rounds):
        bench = InTasks(tmp_path / str(run_))
        bench.give(0)
        for number in range(1, rounds + 1):
            left = {name: rng.choice((None, "porter", "nurse", "doctor")) for name in rng.sample(list(READERS), 2)}
            assert not forbidden(revoked(bench, number, **left), bench, **left)
        assert bench.pipeline is not None
        bench.pipeline.close()


def test_a_restart_continues_from_what_tasks_wrote_and_leaves_no_orphan(tmp_path: Path) -> None:
    bench, other = InTasks(tmp_path / "a"), run(tmp_path / "b", 3)
    for number in range(2):
        bench.give(number)
        assert bench.pipeline is not None
        bench.pipeline.close()
        bench.start()
    bench.end()
    assert bench.pipeline is not None
    bench.pipeline.close()
    assert bench.received() == other.received()
    bench.start().close()  # what an attempt left that does not count is removed with the next start
    states = StateFolder(bench.home / "state")
    needed = set[str]().union(*states._files.values())
    assert set(LocalStorage(bench.home / "state").names()) <= needed


def test_a_crash_between_commit_and_publishing_publishes_once(tmp_path: Path) -> None:
    bench, other = InTasks(tmp_path / "a"), run(tmp_path / "b", 3)
    for number in range(2):
        assert bench.pipeline or bench.start()
        pipeline = bench.pipeline
        assert pipeline is not None
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(ParquetSink, "publish", _crash)
            with pytest.raises(KeyboardInterrupt):
                bench.give(number)
        pipeline.close()
        bench.start()
        bench.give(number)  # the first stream's batch is committed: only the second one is taken
    bench.end()
    assert bench.received() == other.received()
    assert bench.pipeline is not None
    bench.pipeline.close()


def test_tasks_run_where_the_state_is_reached() -> None:
    def at(master: str) -> Any:
        return SimpleNamespace(sparkContext=SimpleNamespace(master=master))

    check_workers(at("local[2]"), None)
    with pytest.raises(HeadgateError, match=r"tasks on `spark://host:7077`: its workers do not reach the state"):
        check_workers(at("spark://host:7077"), None)


class _Alternating(Placement):
    """Every other batch runs in tasks."""

    turn = False

    def in_tasks(self, size: int, held: int, *, now: bool) -> bool:  # noqa: ARG002
        self.turn = not self.turn
        return self.turn


class _Moving(InTasks):
    def make(self, queries: Sequence[ContinuousQuery], program: Program, schema: pa.Schema) -> Executor:
        there = partial(super().make, queries, program, schema)
        here = partial(LocalExecutor, program, schema, self.evaluate)
        return AdaptiveExecutor(program, schema, here, there, _Alternating())  # type: ignore[arg-type]


def test_counts_of_steps_go_on_when_work_moves(tmp_path: Path) -> None:
    counts = []
    for bench in (InTasks(tmp_path / "driver", 0), InTasks(tmp_path / "tasks"), _Moving(tmp_path / "moving")):
        for number in range(2):
            bench.give(number)
        assert bench.pipeline is not None
        found = bench.pipeline.profile("mean", "ann.mean")
        counts.append([{name: (x.taken, x.given, x.held) for name, x in view.steps.items()} for view in found])
        bench.pipeline.close()
    assert counts[0] == counts[1] == counts[2] and counts[0][0]


def _crash(*_: object) -> None:
    raise KeyboardInterrupt
