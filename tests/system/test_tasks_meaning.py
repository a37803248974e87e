"""Batches in tasks give what the oracle says: in 1, 3 and 8 partitions, read by tasks or handed to them, with restarts
and changes of rights, and while work moves between the driver and tasks at random."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from worlds.pipeline_replay import one_case
from worlds.task_process import TasksHere

from headgate.execution.tasks import written
from headgate.execution.tasks.spark_tasks import SparkTasks
from headgate.execution.tasks.step import Tasks

pytestmark = pytest.mark.usefixtures("no_waiting_for_disks")


def check(first: int, cases: int, folder: Path, tasks: Tasks, patch: pytest.MonkeyPatch) -> Counter[str]:
    counts: Counter[str] = Counter()
    for seed in range(first, first + cases):
        patch.setattr(written, "WORTH_IT", 1 if seed % 2 else 10_000)  # results in files, or by the driver
        one_case(seed, folder / str(seed), counts, unrest=seed % 3 == 0, tables=seed % 12 in (0, 3), tasks=tasks)
        shutil.rmtree(folder / str(seed))
    return counts


def test_everyone_receives_in_tasks_what_the_oracle_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tasks = TasksHere()
    counts = check(0, 4, tmp_path, tasks, monkeypatch)
    assert counts["results"] > 20 and tasks.read and tasks.cached


@pytest.mark.long
def test_everyone_receives_in_tasks_what_the_oracle_says_in_300_cases(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tasks = TasksHere()
    counts = check(0, 300, tmp_path, tasks, monkeypatch)
    assert tasks.read > 200 and tasks.cached > 300
    assert counts["exact results"] > 1500 and counts["cumulative results"] > 300 and counts["restart"] > 300


@pytest.mark.long
def test_everyone_receives_in_sparks_tasks_what_the_oracle_says(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert check(1, 12, tmp_path, SparkTasks(lambda: spark), monkeypatch)["results"] > 50
