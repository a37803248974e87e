"""A real process with its Spark is stopped (SIGSTOP), replaced, and continued: it publishes and commits nothing.

HEADGATE_STOPS says how often.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from system.test_crash_spark import Command, Hospital

pytestmark = pytest.mark.long


def wait_until(condition: Callable[[], bool], *alive: Command) -> None:
    until = time.monotonic() + 300
    while not condition():
        for command in alive:
            assert command.process.poll() is None, command.ends()
        assert time.monotonic() < until
        time.sleep(0.1)


def results(hospital: Hospital) -> int:
    return sum(map(len, hospital.written().values()))


def stop(command: Command) -> None:
    os.killpg(command.process.pid, signal.SIGSTOP)


def end(command: Command) -> None:
    """Nothing of it is left behind, however the test went."""
    if command.process.poll() is None:
        os.killpg(command.process.pid, signal.SIGKILL)
        command.process.communicate()


def test_a_process_that_was_stopped_and_replaced_publishes_nothing(tmp_path: Path) -> None:
    hospital, rng = Hospital(tmp_path, 31), Random(31)
    for number in range(int(os.environ.get("HEADGATE_STOPS", "5"))):
        old = Command(tmp_path, "--follow")
        new: Command | None = None
        try:
            before = results(hospital)
            for _ in range(3):
                hospital.arrive()
            wait_until(lambda before=before: results(hospital) > before, old)  # type: ignore[misc]
            for _ in range(4):
                hospital.arrive()
            time.sleep(rng.uniform(0, 1.5))  # the moment is what the test is about
            stop(old)
            new = Command(tmp_path, "--follow", "--take-over")
            before = results(hospital)
            for _ in range(3):
                hospital.arrive()
            wait_until(lambda before=before: results(hospital) > before, new)  # type: ignore[misc]
            os.killpg(old.process.pid, signal.SIGCONT)
            assert "another process has taken over" in old.fails()
            before = results(hospital)
            for _ in range(3):
                hospital.arrive()
            wait_until(lambda before=before: results(hospital) > before, new)  # type: ignore[misc]
            new.process.send_signal(signal.SIGTERM)
            assert new.ends()[0] == 0
        finally:
            end(old)
            if new is not None:
                end(new)
        print(f"stop {number + 1}: {results(hospital)} results", flush=True)
    last = Command(tmp_path)
    try:
        assert last.ends()[0] == 0
    finally:
        end(last)
    assert hospital.written() == hospital.expected()
    hospital.headgate.close()
