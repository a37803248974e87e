"""Splits are dealt out to tasks: few tasks for small files, and as many for each core."""

from __future__ import annotations

import pytest

from headgate.ingress.splits import TARGET, Split, tasks_for


@pytest.mark.parametrize(
    ("sizes", "cores", "tasks"),
    [
        ([], 2, 1),
        ([100], 2, 1),
        ([100] * 10, 2, 2),
        ([TARGET] * 3, 2, 3),
        ([TARGET // 4] * 12, 2, 4),
        ([TARGET] * 40, 4, 40),
        ([TARGET // 2] * 10, 4, 8),
    ],
)
def test_small_splits_are_read_together_by_equally_many_tasks_for_each_core(
    sizes: list[int], cores: int, tasks: int
) -> None:
    assert tasks_for([Split(x, "", 0, 1, size) for x, size in enumerate(sizes)], cores) == tasks
