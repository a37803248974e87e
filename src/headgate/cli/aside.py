"""Something that may take as long as it likes, such as printing for a reader who does not read, beside work that must
not wait for it."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable

import click


class Aside:
    """One thing at a time, in a thread; what is begun while the last one is not done is left out."""

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None
        self._failed: BaseException | None = None

    def begin(self, act: Callable[[], None]) -> None:
        self._raise()
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(target=self._run, args=(act,), daemon=True)
            self._thread.start()

    def finish(self) -> None:
        """Waits for the last one. What went wrong in it goes wrong here."""
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
    """A line on standard output, beside its buffer: a process that ends would wait for that, and so for the reader."""
    try:
        descriptor = sys.stdout.fileno()
    except (OSError, ValueError):  # somebody else has taken its place
        click.echo(text)
        return
    left = f"{text}\n".encode(sys.stdout.encoding, "replace")
    while left:
        left = left[os.write(descriptor, left) :]
