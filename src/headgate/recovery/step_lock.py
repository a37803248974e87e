"""The lock of a pipeline: one step at a time, and none after one that failed.

A failed step leaves memory neither in the state before it nor in the state after it. Everything can be done again from
the written state.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from headgate.errors import SourceError


class StepLock:
    def __init__(self) -> None:
        self._lock, self._turnstile = threading.Lock(), threading.Lock()
        self._failed: BaseException | None = None

    @contextmanager
    def step(self) -> Iterator[None]:
        """A step. A batch that cannot be read (SourceError) has changed nothing, so steps may follow it."""
        with self._turnstile:
            self._lock.acquire()  # who waits longest is next: a thread that works all the time keeps nobody out
        try:
            if self._failed is not None:
                raise self._failed
            try:
                yield
            except SourceError:
                raise
            except BaseException as error:
                self._failed = error
                raise
        finally:
            self._lock.release()

    @contextmanager
    def between_steps(self) -> Iterator[None]:
        """For reading what steps change, also after one that failed."""
        with self._lock:
            yield
