"""What one batch gave back, the next one uses.

Usually the C library returns large blocks to the system as soon as they are free. Batches are much alike, so the next
one asks for as much again, and the system clears every page of it before it hands it over: half of a kernel's time.
Arrow has a store of its own, which does the same; it is told to ask the C library too.
"""

from __future__ import annotations

import ctypes
import gc

import pyarrow as pa

_TRIM_THRESHOLD, _TOP_PAD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -2, -3, -8  # malloc.h
_MOST = 2**31 - 1


_FEW_COLLECTIONS = (100_000, 20, 50)


def collect_rarely() -> None:
    """Labels are many small objects without cycles; looking for cycles among them took as long as reading them."""
    gc.set_threshold(*_FEW_COLLECTIONS)


def keep_freed() -> bool:
    """From now on in this process: up to 2 GiB stay with it. False where the C library has no such settings. Best said
    before there are threads: those that have a store of their own by then keep it."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):
        return False
    settings = ((_ARENA_MAX, 1), (_MMAP_THRESHOLD, _MOST), (_TRIM_THRESHOLD, _MOST), (_TOP_PAD, 1 << 26))
    kept = all(mallopt(name, value) == 1 for name, value in settings)
    if kept:
        pa.set_memory_pool(pa.system_memory_pool())
    return kept
