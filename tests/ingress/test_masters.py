"""A master that does not answer is refused in one line, before Spark is started."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from headgate.errors import HeadgateError
from headgate.ingress import masters
from headgate.ingress.masters import check_answers
from headgate.ingress.spark import spark_session

NO_FILE = b"\x08\x00\x00\x00\x0f/files/headgate\x00\x00\x00'Stream '/files/headgate' was not found."
"""What Spark 4.3's master answered."""


@contextmanager
def listening(answer: bytes | None) -> Iterator[str]:
    """A machine that takes one connection, answers what it is asked with this and hangs up; None: it is silent."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(1000)
                if answer is None:
                    connection.recv(1000)  # until the other side has had enough
                else:
                    connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        thread.join()


def closed() -> str:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return f"127.0.0.1:{server.getsockname()[1]}"


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (None, "timed out"),
        (b"", "what is there is no master of Spark's"),
        (b"HTTP/1.1 400 Bad Request\r\n", "what is there is no master of Spark's"),
        (b"\x00\x00", "what is there is no master of Spark's"),
    ],
    ids=["silent", "hangs up", "web page", "half"],
)
def test_an_invalid_master_is_refused_in_one_line_and_no_java_is_started(
    answer: bytes | None, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(masters, "ANSWERS_WITHIN", 0.2)
    with listening(answer) as place, pytest.raises(HeadgateError) as caught:
        spark_session(tmp_path / "home", master=f"spark://{place}")
    assert caught.value.message == f"Spark's master `spark://{place}` does not answer: {why}"
    assert not (tmp_path / "home").exists()


def test_a_closed_port_is_refused_at_once_also_if_there_are_several() -> None:
    one, other = closed(), closed()
    with pytest.raises(HeadgateError, match="does not answer: Connection refused"):
        check_answers(f"spark://{one},{other}")


@pytest.mark.parametrize(
    "answer",
    [struct.pack(">q", 8 + len(NO_FILE)) + NO_FILE, b"\x15\x03\x03\x00\x02\x02\x46"],
    ids=["in the clear", "secured"],
)
def test_a_master_that_answers_is_left_to_spark(answer: bytes) -> None:
    with listening(answer) as place:
        check_answers(f"spark://{closed()},{place}")


@pytest.mark.parametrize("master", ["spark://", "spark://host", "spark://host:x", "spark://h:99999", "spark://h:1,"])
def test_a_master_that_is_not_written_as_one_is_refused(master: str) -> None:
    hint = r" \(a standalone master is written spark://HOST:PORT\)"
    with pytest.raises(HeadgateError, match=f"^cannot use master `{master}`{hint}$"):
        check_answers(master)


@pytest.mark.parametrize("master", ["local", "local[2]", "yarn", "k8s://https://nowhere:1", "nowhere"])
def test_other_masters_are_not_asked(master: str) -> None:
    check_answers(master)
