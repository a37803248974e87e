"""Run work on whole columns on all cores: numpy, Arrow and DuckDB release the interpreter lock while they compute."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import TypeVar

T = TypeVar("T")
U = TypeVar("U")

WORTH_IT = 50_000
"""With fewer rows, handing work to a thread takes longer than doing it."""


def in_threads(work: Callable[[T], U], parts: Sequence[T], rows: Sequence[int]) -> list[U]:
    """The results in the order of the parts; `rows` is the size of each part. The largest parts start first, so that
    none of them is still running when all others are done."""
    if len(parts) < 2 or max(rows) < WORTH_IT:
        return [work(part) for part in parts]
    order = sorted(range(len(parts)), key=lambda part: -rows[part])
    done = dict(zip(order, _threads(os.getpid()).map(work, [parts[x] for x in order]), strict=True))
    return [done[part] for part in range(len(parts))]


@cache
def _threads(process: int) -> ThreadPoolExecutor:
    """The threads of this process: a forked copy of it, such as a Spark worker, has none of its parent's threads."""
    return ThreadPoolExecutor(len(os.sched_getaffinity(process)), "headgate")
