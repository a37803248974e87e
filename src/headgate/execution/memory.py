"""Memory of a process that runs for months: what it frees it keeps, so that the next batch reuses it, and garbage is
collected rarely, by the clock.

By default the C library returns large blocks to the system as soon as they are free. Batches are much alike: the next
one asks for as much again, and the system clears every page before it hands it over, which took half of the operators'
time. Arrow's own allocator does the same, so Arrow is set to allocate through the C library.
"""

from __future__ import annotations

import ctypes
import gc
import time
from collections.abc import Callable

import pyarrow as pa

_TRIM_THRESHOLD, _TOP_PAD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -2, -3, -8  # from malloc.h
_MOST = 2**31 - 1


_FEW_COLLECTIONS = (100_000, 20, 50)


def collect_rarely() -> None:
    """Run the garbage collector less often. Labels are many small objects without cycles; searching them for cycles
    took as long as reading them."""
    gc.set_threshold(*_FEW_COLLECTIONS)


class GarbageCollector:
    """Collects all garbage once a minute. Spark's gateway leaves objects that refer to each other with every batch; by
    the number of objects alone (`collect_rarely`) they would be collected after months.

    What there is at first, mostly modules, stays and is not searched again, so that a collection takes milliseconds;
    at the end all of it counts again, as it must when a process ends."""

    def __init__(self, seconds: float = 60.0, clock: Callable[[], float] = time.monotonic) -> None:
        self._seconds = seconds
        self._clock = clock
        self._last: float | None = None

    def __enter__(self) -> GarbageCollector:
        return self

    def __exit__(self, *_: object) -> None:
        gc.unfreeze()

    def collect_if_due(self) -> None:
        """Collect, if the last collection was long ago."""
        now = self._clock()
        if self._last is not None and now - self._last < self._seconds:
            return
        gc.collect()
        if self._last is None:
            gc.freeze()
        self._last = now


def keep_freed() -> bool:
    """Let this process keep up to 2 GiB of freed memory from now on. Return False where the C library has no such
    settings.

    Call it before threads start: a thread that already has an arena of its own keeps it.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):
        return False
    settings = ((_ARENA_MAX, 1), (_MMAP_THRESHOLD, _MOST), (_TRIM_THRESHOLD, _MOST), (_TOP_PAD, 1 << 26))
    kept = all(mallopt(name, value) == 1 for name, value in settings)
    if kept:
        pa.set_memory_pool(pa.system_memory_pool())
    return kept
