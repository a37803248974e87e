"""Garbage is collected by the clock."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from headgate.execution.memory import GarbageCollector, collect_rarely


@pytest.fixture
def seldom() -> Iterator[None]:
    """The thresholds of an engine."""
    before = gc.get_threshold()
    collect_rarely()
    yield
    gc.set_threshold(*before)


class Gateway:
    """An object that refers to itself, as those of Spark's gateway do."""

    def __init__(self) -> None:
        self.own = self


@pytest.mark.usefixtures("seldom")
def test_objects_that_refer_to_each_other_are_collected_once_a_minute() -> None:
    now = [0.0]
    with GarbageCollector(60, lambda: now[0]) as garbage:
        garbage.collect_if_due()
        assert gc.get_freeze_count() > 0
        left = weakref.ref(Gateway())
        gc.collect(1)  # older now: only a full collection finds it
        second = weakref.ref(Gateway())
        now[0] = 59.0
        garbage.collect_if_due()
        assert second() is not None
        now[0] = 60.0
        garbage.collect_if_due()
        assert left() is None and second() is None
    assert gc.get_freeze_count() == 0  # libraries clean up at the end of the process
