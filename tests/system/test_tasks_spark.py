"""Batches in Spark's own tasks: in other processes than the driver's, which reads no file; and with workers that
die."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from worlds.tasks_bench import InTasks

from headgate.execution.tasks.executor import TaskExecutor
from headgate.execution.tasks.spark_tasks import SparkTasks
from headgate.execution.tasks.step import Outcome
from headgate.ingress import parquet_reader
from headgate.testing.dying import DyingOnce

pytestmark = [pytest.mark.usefixtures("no_waiting_for_disks"), pytest.mark.long]


@pytest.mark.parametrize("stages", [1, 4])
def test_operators_run_in_other_processes_and_the_driver_reads_no_file(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, stages: int
) -> None:
    outcomes: list[Outcome] = []
    take = TaskExecutor.take

    def noted(self: TaskExecutor, found: list[Outcome], visibility: object) -> object:
        outcomes.extend(found)
        return take(self, found, visibility)  # type: ignore[arg-type]

    def unread(*_: object, **__: object) -> None:
        raise AssertionError("the driver reads a file")

    there, here = InTasks(tmp_path / "tasks", 3), InTasks(tmp_path / "driver", 0)
    there.tasks = SparkTasks(lambda: spark)
    for bench in (there, here) if stages > 1 else ():
        bench.read_on()
    monkeypatch.setattr(TaskExecutor, "take", noted)
    for number in range(3):
        outcomes.clear()
        with monkeypatch.context() as patch:
            patch.setattr(parquet_reader, "opened_paths", unread)
            there.give(number)
        here.give(number)
        # a batch of each stream; a partition is in the memory of the worker that advanced it before
        windowed = [x for x in outcomes if x.record is not None]
        assert len({x.process for x in outcomes}) == 2 and (number == 0 or all(x.cached for x in windowed))
        assert str(os.getpid()) not in {x.process.rpartition(":")[2] for x in outcomes}
    for bench in (there, here):
        bench.end()
        assert bench.pipeline is not None
        bench.pipeline.close()
    assert there.received() == here.received() and len(here.received()) == (6 if stages == 1 else 18)


def test_a_worker_that_dies_in_mid_batch_loses_nothing_and_repeats_nothing(tmp_path: Path, spark: SparkSession) -> None:
    bench, here, mark = InTasks(tmp_path / "tasks", 3), InTasks(tmp_path / "driver", 0), tmp_path / "die"
    bench.tasks, bench.evaluate = SparkTasks(lambda: spark), DyingOnce(mark)
    for number in range(2):
        mark.touch()
        bench.give(number)
        assert not mark.exists()
        here.give(number)
    for x in (bench, here):
        x.end()
        assert x.pipeline is not None
        x.pipeline.close()
    assert bench.received() == here.received()
