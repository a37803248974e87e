"""How large batches are: as large as tasks like them only where tasks can run."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from headgate.errors import Conflict
from headgate.ingress.sources import PACKED_AT_MOST
from headgate.server.settings import Settings
from headgate.service.runs import PACKED_IN_TASKS, Execution, Processing


@pytest.mark.parametrize(
    ("mode", "fit", "wanted"),
    [
        ("driver", True, PACKED_AT_MOST),
        ("auto", True, PACKED_IN_TASKS),
        ("auto", False, PACKED_AT_MOST),
        ("tasks", True, PACKED_IN_TASKS),
    ],
)
def test_batches_are_large_only_where_tasks_can_run(mode: str, fit: bool, wanted: int) -> None:
    work: Any = SimpleNamespace(_execution=Execution(mode), _workers_fit=fit)
    found = Processing._packed_at_most
    assert isinstance(found, property) and found.fget is not None
    assert found.fget(work) == wanted


def test_levels_with_processors_of_their_own_do_not_compute_in_tasks() -> None:
    with pytest.raises(Conflict, match="cannot compute in tasks with architecture `kernelized`"):
        Settings(architecture="kernelized", execution="tasks")
    Settings(architecture="kernelized", execution="auto")
