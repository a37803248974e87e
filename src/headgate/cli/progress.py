"""How far a run is, on standard error: the answers alone stand on standard output.

On a terminal one line changes. Without one, what runs for long (`--follow`, `--everyone`) writes a log: that it is
ready, and then how far it is, at first often and later once a minute, as long as something comes.
"""

from __future__ import annotations

import datetime as dt

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from headgate.cli.context import say
from headgate.clock import Clock, SystemClock
from headgate.recovery.pipeline import Counts

FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0
"""Seconds between two lines of the log; each time twice as many."""


class Bar:
    """`everyone`: how many tuples and batches there are is for those who run the system; some may be hidden from
    others."""

    def __init__(self, *, follow: bool, everyone: bool, clock: Clock | None = None) -> None:
        console = Console(stderr=True)
        self._everyone = everyone
        self._progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            TimeElapsedColumn(),
            console=console,
            transient=not follow,
            disable=not console.is_terminal,
        )
        self._task = self._progress.add_task("starting Spark", total=None)
        self._log = _Log(clock or SystemClock()) if (follow or everyone) and not console.is_terminal else None

    def __enter__(self) -> Bar:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        self._progress.stop()

    def show(self, counts: Counts) -> None:
        told = f"{counts.received.total():,} results"
        if self._everyone:
            told = f"{counts.tuples.total():,} tuples in {counts.batches:,} batches, {told}"
        self._progress.update(self._task, description=told)
        if self._log is not None:
            self._log.note(told)


class _Log:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._pause = FIRST_PAUSE
        self._due: float | None = None
        self._said = ""

    def note(self, told: str) -> None:
        now = self._clock.now()
        if self._due is None:
            self._write("ready")
        elif now < self._due or told == self._said:
            return
        else:
            self._write(told)
            self._pause = min(2 * self._pause, LONGEST_PAUSE)
        self._said, self._due = told, now + self._pause

    def _write(self, text: str) -> None:
        now = dt.datetime.fromtimestamp(self._clock.now(), dt.UTC)
        say(f"{now:%Y-%m-%dT%H:%M:%SZ} {text}", err=True)
