"""Runs slow actions, such as printing to a reader who does not read, beside work that must not wait for them."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable

import click


class Aside:
    """Runs one action at a time, in a thread; an action that is begun before the last one has finished is skipped."""

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None
        self._failed: BaseException | None = None

    def begin(self, act: Callable[[], None]) -> None:
        self._raise()
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(target=self._run, args=(act,), daemon=True)
            self._thread.start()

    def finish(self) -> None:
        """Waits for the last action, and raises its error here."""
        if self._thread is not None:
            self._thread.join()
        self._raise()

    def _run(self, act: Callable[[], None]) -> None:
        try:
            act()
        except BaseException as error:
            self._failed = error

    def _raise(self) -> None:
        failed, self._failed = self._failed, None
        if failed is not None:
            raise failed


def write_out(text: str) -> None:
    """Writes a line to standard output without its buffer: a process that ends would wait for the buffer, and so for
    the reader."""
    try:
        descriptor = sys.stdout.fileno()
    except (OSError, ValueError):  # standard output was replaced
        click.echo(text)
        return
    left = f"{text}\n".encode(sys.stdout.encoding, "replace")
    while left:
        left = left[os.write(descriptor, left) :]
