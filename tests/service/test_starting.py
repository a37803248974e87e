"""Attacks on streams that start side by side: whatever fails or interrupts, none is left behind that nobody stops."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest
from py4j.protocol import Py4JNetworkError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException

from headgate.errors import SourceError, StoreError
from headgate.ingress.sources import StreamSource
from headgate.model.stream import StreamDescriptor
from headgate.service import streams as runners
from headgate.service.streams import Runner
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
        sources = {name: StreamSource(StreamDescriptor(name, ()), "json") for name in streams}
        return found, lambda: found.read(sources)

    return make


def fails(error: Exception) -> Start:
    def start() -> Query:
        raise error

    return start


def test_streams_started_beside_one_that_fails_are_stopped(starting: Any) -> None:
    first, last = Query(), Query()
    runner, read = starting(
        a=lambda: first, b=fails(StoreError("the state is older")), c=fails(SourceError("no c")), d=lambda: last
    )
    with pytest.raises(StoreError, match="the state is older"):
        read()
    runner.stop()
    assert first.stopped and last.stopped


@pytest.fixture
def usual_ctrl_c() -> Iterator[None]:
    """Python's own handler: Spark, or a command that another test ran, may have put theirs in its place."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("usual_ctrl_c")
def test_a_stream_that_is_starting_during_an_interrupt_is_stopped(starting: Any) -> None:
    first, second = Query(), Query()

    def interrupting() -> Query:
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        return second

    runner, read = starting(a=lambda: first, b=interrupting)
    with pytest.raises(KeyboardInterrupt):
        read()
    runner.stop()
    assert first.stopped and second.stopped


def test_a_stream_that_cannot_be_stopped_does_not_keep_others_running(starting: Any) -> None:
    queries = [Query(), Query(ValueError("Spark does not answer")), Query()]
    runner, read = starting(**{f"s{n}": (lambda query=query: query) for n, query in enumerate(queries)})
    read()
    with pytest.raises(ValueError, match="Spark does not answer"):
        runner.stop()
    assert all(query.stopped for query in queries)
    runner.stop()  # there is nothing left of them


@pytest.mark.parametrize("harm", [Py4JNetworkError("gone"), PySparkException("stopped"), ConnectionRefusedError()])
@pytest.mark.parametrize("stopped", [True, False])
def test_streams_of_a_spark_that_ended_need_no_stop(starting: Any, harm: Exception, stopped: bool) -> None:
    """A signal to the whole process group ended Spark first, and the command with a page of Java."""
    query = Query(harm)
    runner, read = starting(a=lambda: query)
    read()
    runner._spark.sparkContext._jsc.sc().isStopped.return_value = stopped
    with nullcontext() if stopped else pytest.raises(type(harm)):
        runner.stop()
    assert query.stopped


SESSION = """
import sys
from pathlib import Path
from headgate.ingress.spark import spark_session
from headgate.errors import HeadgateError
try:
    spark_session(Path(sys.argv[1]), master=sys.argv[2])
except HeadgateError as error:
    print(error)
"""


def session(home: Path, master: str = "local[1]", **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", SESSION, str(home), master],
        env=os.environ | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


@pytest.mark.parametrize(("master", "java"), [("local[1]", "/nonexistent"), ("nowhere", "")])
def test_if_spark_cannot_be_started_one_line_says_so(tmp_path: Path, master: str, java: str) -> None:
    out, err = session(tmp_path / "home", master, **({"JAVA_HOME": java} if java else {})).communicate(timeout=120)
    assert err == ""
    assert out.startswith("cannot start Spark: ")
    assert out.count("\n") == 1
    assert str(tmp_path / "home" / "spark.err") in out


def test_why_spark_cannot_be_started_is_in_its_log(tmp_path: Path) -> None:
    out, _ = session(tmp_path / "home", SPARK_DRIVER_MEMORY="300m").communicate(timeout=120)
    assert out.startswith("cannot start Spark: ")
    assert "must be at least 471859200" in (tmp_path / "home" / "spark.err").read_text()


def java_of(home: Path) -> list[str]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            found.append(path.read_bytes().decode(errors="replace"))
    return [text for text in found if str(home) in text and "org.apache.spark" in text]


def test_an_interruption_while_spark_starts_leaves_no_java_behind(tmp_path: Path) -> None:
    with session(tmp_path / "home") as process:
        try:
            deadline = time.monotonic() + 60
            while not java_of(tmp_path):
                assert process.poll() is None and time.monotonic() < deadline
            os.kill(process.pid, signal.SIGINT)
            out, _ = process.communicate(timeout=60)
            assert (out, java_of(tmp_path)) == ("", [])
        finally:
            if java_of(tmp_path):
                os.killpg(process.pid, signal.SIGKILL)
