"""Attacks on streams that start side by side: whatever fails or interrupts, none is left behind that nobody stops."""

from __future__ import annotations

import _thread
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest

from headgate.engine import runner as runners
from headgate.engine.ingress import Entrance
from headgate.engine.runner import Runner
from headgate.engine.sources import StreamSource
from headgate.errors import SourceError, StoreError
from headgate.testing import ManualClock


class Query:
    """Of Spark's, as far as it is stopped."""

    def __init__(self, harm: Exception | None = None) -> None:
        self.harm = harm
        self.stopped = False

    def stop(self) -> None:
        self.stopped = True
        if self.harm is not None:
            raise self.harm


Start = Callable[[], Query]


@pytest.fixture
def starting(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., tuple[Runner, Callable[[], None]]]:
    """A runner whose streams start as said, and what has it read them."""

    def make(**streams: Start) -> tuple[Runner, Callable[[], None]]:
        monkeypatch.setattr(runners, "ensure_callback_server_started", lambda _: None)
        monkeypatch.setattr(Runner, "_start", lambda _, source, finite: streams[source.name]())  # noqa: ARG005
        found = Runner(MagicMock(), tmp_path, MagicMock(), ManualClock(0))
        sources = {name: StreamSource(Entrance(name, ()), "json") for name in streams}
        return found, lambda: found.read(sources)

    return make


def fails(error: Exception) -> Start:
    def start() -> Query:
        raise error

    return start


def test_what_started_beside_one_that_cannot_go_on_is_stopped(starting: Any) -> None:
    first, last = Query(), Query()
    runner, read = starting(
        a=lambda: first, b=fails(StoreError("the state is older")), c=fails(SourceError("no c")), d=lambda: last
    )
    with pytest.raises(StoreError, match="the state is older"):
        read()
    runner.stop()
    assert first.stopped and last.stopped


def test_what_is_being_started_when_somebody_interrupts_is_stopped_too(starting: Any) -> None:
    first, second = Query(), Query()

    def interrupting() -> Query:
        _thread.interrupt_main()
        return second

    runner, read = starting(a=lambda: first, b=interrupting)
    with pytest.raises(KeyboardInterrupt):
        read()
    runner.stop()
    assert first.stopped and second.stopped


def test_one_that_cannot_be_stopped_does_not_keep_the_others_running(starting: Any) -> None:
    queries = [Query(), Query(ValueError("Spark does not answer")), Query()]
    runner, read = starting(**{f"s{n}": (lambda query=query: query) for n, query in enumerate(queries)})
    read()
    with pytest.raises(ValueError, match="Spark does not answer"):
        runner.stop()
    assert all(query.stopped for query in queries)
    runner.stop()  # there is nothing left of them
