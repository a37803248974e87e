"""Work that moves between the driver and tasks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from worlds.adaptive import in_tasks
from worlds.harness import Bench, stream
from worlds.task_process import TasksHere

from headgate.execution.tasks.adaptive import Placement


class Unfit(TasksHere):
    """Workers that cannot run our code."""

    def _each(self, *_: Any) -> Any:
        raise RuntimeError("no such module")


@pytest.mark.parametrize("size", [1, 1 << 30], ids=["a large batch", "a small batch"])
def test_after_a_restart_work_stays_beside_the_driver_if_workers_are_not_fit(tmp_path: Path, size: int) -> None:
    found, fit, unfit = Bench(tmp_path, stream("s", "a INT, w STRING")), TasksHere(), Unfit()
    found.query("count", "SELECT COUNT(*) AS n FROM s [ROWS 3]")
    found.subscribed(amy=("count", ""))
    in_tasks(found, Placement(bytes=1), fit)()
    assert fit.read == 1
    assert found.pipeline is not None
    found.pipeline.close()
    in_tasks(found, Placement(bytes=size, possible=lambda: False), unfit)()
    found.end()
    assert [n for (n,) in found.fetched("amy", "count")] == [1, 2, *[3] * 6]
