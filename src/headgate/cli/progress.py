"""The progress of a run, on standard error: standard output holds the answers alone.

On a terminal one line changes. Without one, long runs (`--follow`, `--everyone`) write a log: that they are ready, and
then their progress, at first often and later once a minute, as long as data arrives.
"""

from __future__ import annotations

import datetime as dt

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from headgate.cli.context import say
from headgate.clock import Clock, SystemClock
from headgate.plain import counted
from headgate.recovery.counts import RunCounts

FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0
"""Seconds between two lines of the log; they double each time."""


class Bar:
    """`everyone`: the numbers of tuples and batches are only for the operator; some tuples may be hidden from
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
        if self._log is not None:
            self._log.begin()

    def show(self, counts: RunCounts) -> None:
        told = counted(counts.received.total(), "result")
        if self._everyone:
            told = f"{counted(counts.tuples.total(), 'tuple')} in {counted(counts.batches, 'batch', 'batches')}, {told}"
        self._progress.update(self._task, description=told)
        if self._log is not None:
            self._log.note(told)


class _Log:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._pause = FIRST_PAUSE
        self._due: float | None = None
        self._said = ""

    def begin(self) -> None:
        """Says that the sources are read, once: also if that was all there was to read."""
        if self._due is None:
            self._write("ready")
            self._due = self._clock.now() + self._pause

    def note(self, told: str) -> None:
        now = self._clock.now()
        if self._due is None:
            self.begin()
        elif now < self._due or told == self._said:
            return
        else:
            self._write(told)
            self._pause = min(2 * self._pause, LONGEST_PAUSE)
        self._said, self._due = told, now + self._pause

    def _write(self, text: str) -> None:
        now = dt.datetime.fromtimestamp(self._clock.now(), dt.UTC)
        say(f"{now:%Y-%m-%dT%H:%M:%SZ} {text}", err=True)
