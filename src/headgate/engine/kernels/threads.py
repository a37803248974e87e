"""Work on whole columns, on all cores: numpy, Arrow and DuckDB let other threads run while they compute."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import TypeVar

T = TypeVar("T")
U = TypeVar("U")

WORTH_IT = 50_000
"""With fewer rows, handing work over takes longer than doing it."""


def in_threads(work: Callable[[T], U], parts: Sequence[T], rows: int) -> list[U]:
    """The results in the order of the parts; `rows` says how large each of them may be."""
    if len(parts) < 2 or rows < WORTH_IT:
        return [work(part) for part in parts]
    return list(_threads(os.getpid()).map(work, parts))


@cache
def _threads(process: int) -> ThreadPoolExecutor:
    """Of this process: a copy of it (a worker of Spark's) has no threads of its own."""
    return ThreadPoolExecutor(len(os.sched_getaffinity(process)), "headgate")
