"""The thread that does the work of queries with deadlines when its time has come, by the clock of the machine.

It also writes a line for each control period to a file of the home folder, from which `headgate deadlines` draws.
"""

from __future__ import annotations

import json
import os
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from headgate.logs import failure
from headgate.recovery.deadlines import Deadlines

if TYPE_CHECKING:
    from headgate.realtime.handler import Sample

DEADLINES = "deadlines.jsonl"
_IDLE = 0.25
"""How often, in seconds, to look whether there are queries with deadlines."""
_MOST_BYTES = 16 << 20
"""The file begins anew then; the one before is kept beside it."""


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
        self._pipeline, self._file = pipeline, file
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
        new = min(governor.periods - self._periods, len(governor.samples))
        self._periods = governor.periods
        names = [str(level) for level in governor.lattice.levels]
        lines = [json.dumps(plain_sample(x, names)) for x in list(governor.samples)[len(governor.samples) - new :]]
        if self._file.exists() and self._file.stat().st_size > _MOST_BYTES:
            self._file.replace(self._file.with_suffix(".old.jsonl"))
        with open(os.open(self._file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600), "a") as out:
            out.write("".join(f"{line}\n" for line in lines))


def plain_sample(sample: Sample, levels: list[str]) -> dict[str, object]:
    """A control period, by level: what was submitted, admitted, done in time and too late; the rest in percent."""
    return {
        "time": sample.time,
        "levels": levels,
        "submitted": sample.submitted.tolist(),
        "admitted": sample.admitted.tolist(),
        "timely": sample.timely.tolist(),
        "tardy": sample.tardy.tolist(),
        "misses": [sample.miss_ratio(k) for k in range(len(levels))],
        "utilisation": list(sample.utilisation),
        "quality": [100 * x for x in sample.quality],
        "limit": list(sample.limit),
    }
