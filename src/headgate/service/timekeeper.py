"""The thread that does the work of queries with deadlines when its time has come, by the clock of the machine.

It also writes a line for each control period to a file of the home folder.
"""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Protocol

from headgate.logs import failure
from headgate.recovery.deadline_samples import PeriodsFile, periods_since
from headgate.recovery.deadlines import Deadlines

_IDLE = 0.25
"""How often, in seconds, to look whether there are queries with deadlines."""


class Worker(Protocol):
    """A pipeline, as this thread uses it."""

    def work(self) -> float | None: ...

    @property
    def deadlines(self) -> Deadlines: ...


def load_governor() -> None:
    """Loads the compiled loops of the governor. That takes a while, and many engines never need them; nobody waits for
    this thread."""
    from headgate.realtime.governor import warm

    warm()


class Timekeeper:
    def __init__(self, pipeline: Worker, file: Path) -> None:
        self._pipeline, self._file = pipeline, PeriodsFile(file)
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="deadlines", daemon=True)
        self._periods = 0

    def start(self) -> None:
        if not self._thread.is_alive():
            self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        """If a step fails, the pipeline fails for everybody who asks it next, so this thread only ends."""
        try:
            warmed = False
            while not self._stopped.is_set():
                if self._pipeline.deadlines.queries and not warmed:
                    load_governor()
                    warmed = True
                again = self._pipeline.work()
                self._write()
                pause = _IDLE if again is None else again - time.time()
                if pause > 0:
                    self._stopped.wait(pause)
        except Exception as error:
            failure("deadlines", "the work of queries with deadlines failed", error)

    def _write(self) -> None:
        governor = self._pipeline.deadlines.governor
        if governor is None or governor.periods == self._periods:
            return
        if governor.periods < self._periods:  # the order of levels has changed: control began anew
            self._periods = 0
        self._file.add(periods_since(governor, self._periods, range(len(governor.lattice.levels))))
        self._periods = governor.periods
