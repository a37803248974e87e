"""The engine of the server: reads the sources and runs the queries of all subscribers, in a thread of its own.

It begins when somebody has subscribed to something: until then its libraries are not loaded. If it fails it is started
again from its saved state, after a pause that grows; meanwhile the server answers, and says that it is not ready.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from headgate.egress.sinks import Sink
from headgate.errors import HeadgateError
from headgate.logs import event, failure
from headgate.model.limits import Limits
from headgate.recovery.counts import RunCounts
from headgate.service import Headgate

if TYPE_CHECKING:
    from headgate.ingress.ingress_log import PublishedSource
    from headgate.service.runs import LevelsApart, Processing

FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0
OFTEN = 0.25
"""How often, in seconds, to look whether somebody has subscribed."""


class ServerEngine(Protocol):
    """What the server needs of an engine; tests give one that runs without Spark."""

    @property
    def is_ready(self) -> bool:
        """Whether queries are processed."""
        ...

    @property
    def is_idle(self) -> bool:
        """Whether there is nothing to process, because nobody has subscribed yet."""
        ...

    @property
    def counts(self) -> RunCounts: ...

    @property
    def failed(self) -> int:
        """How many sources cannot be read at the moment."""
        ...

    def start(self) -> None: ...

    def stop(self) -> None: ...


class _Stopped(BaseException):
    """Ends the work between two batches."""


class SparkEngine:
    def __init__(
        self,
        headgate: Headgate,
        home: Path,
        sinks: Callable[[], Sequence[Sink]],
        *,
        master: str,
        ingress: PublishedSource,
        limits: Limits | None = None,
        execution: tuple[str, int] = ("auto", 8),
        levels: Callable[[], LevelsApart] | None = None,
    ) -> None:
        """`execution`: where operators run, and in how many partitions. `levels`: each level has a processor of its
        own."""
        self._headgate, self._home, self._sinks = headgate, home, sinks
        self._levels = levels
        self._master, self._ingress, self._limits, self._execution = master, ingress, limits, execution
        self._asked = threading.Event()
        self._thread = threading.Thread(target=self._work, name="engine")
        self._processing: Processing | None = None
        self.is_ready = self.is_idle = False
        self.starts = 0

    @property
    def counts(self) -> RunCounts:
        return self._processing.counts if self._processing is not None else RunCounts()

    @property
    def failed(self) -> int:
        return len(self._processing.failed) if self._processing is not None else 0

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Ends between two batches; what was taken is delivered."""
        self._asked.set()
        if self._thread.is_alive():
            self._thread.join()

    def _work(self) -> None:
        self._wait_for_subscriptions()
        pause = FIRST_PAUSE
        while not self._asked.is_set():
            try:
                self._run()
            except _Stopped:
                return
            except Exception as error:
                reason = str(error) if isinstance(error, HeadgateError) else "a fault"  # others may repeat values
                failure("server", "the engine failed", error, reason=reason, again=f"{pause:.0f} s")
            finally:
                self.is_ready = False
            self._asked.wait(pause)
            pause = min(2 * pause, LONGEST_PAUSE)

    def _wait_for_subscriptions(self) -> None:
        while not (self._asked.is_set() or self._headgate.has_subscriptions()):
            self.is_idle = True
            self._asked.wait(OFTEN)
        self.is_idle = False

    def _run(self) -> None:
        from headgate.recovery.deadlines import Governing
        from headgate.service.runs import Execution, Processing

        self.starts += 1
        work = self._processing = Processing(
            self._headgate,
            self._home,
            self._sinks() if self._levels is None else (),
            master=self._master,
            ingress=self._ingress,
            limits=self._limits,
            execution=Execution(*self._execution),
            levels=self._levels() if self._levels is not None else None,
            governing=Governing(),
        )
        try:
            work.follow(lambda: self._watch(work))
        finally:
            work.close()

    def _watch(self, work: Processing) -> None:
        self.is_ready = True
        for warning in work.warnings():
            event("server", "warning", text=warning)
        work.notices()
        work.news()
        if self._asked.is_set():
            raise _Stopped
